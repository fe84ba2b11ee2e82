/** Examples to train on: which fields of a record hold them. */
import { ValueError } from "../../../ir/errors.js";
import { nearest } from "../../../ir/nearest.js";
import { type OptionsOf, optional, schema } from "../../../ir/schema.js";
import { FileError } from "../../files/disk/fileError.js";
import { isObject } from "../../files/disk/json.js";
import type { ChatMessage } from "../chat/chatTemplate.js";
import { type DataRecord, type DataSource, type OnDataError, recordBatches } from "./records.js";
import { dataError } from "./sourceFile.js";

/** A text, or the messages of a chat. */
export type TextOrChat = string | readonly ChatMessage[];

/** An example by the fields that it has. */
export type Example =
  | { readonly text: string }
  | { readonly messages: readonly ChatMessage[] }
  | { readonly prompt: TextOrChat; readonly completion: TextOrChat }
  | { readonly prompt?: TextOrChat; readonly chosen: TextOrChat; readonly rejected: TextOrChat };

/** The parts of examples, each with the name of the field that holds it. */
export type ExampleFields = Readonly<
  Partial<Record<"text" | "messages" | "prompt" | "completion" | "chosen" | "rejected", string>>
>;

type Part = keyof ExampleFields;

/** The kinds of examples by the parts that each needs, in the order in which they are looked for. */
const kinds: readonly (readonly Part[])[] = [
  ["messages"],
  ["chosen", "rejected"],
  ["prompt", "completion"],
  ["text"],
];

/** What examples are: texts, chats, prompts with completions, or pairs of a better and a worse answer. */
export type ExampleKind = "text" | "chat" | "completion" | "preference";

/** @internal */
export const exampleKinds: readonly ExampleKind[] = ["text", "chat", "completion", "preference"];

/** The kind of an example. */
export function kindOfExample(example: Example): ExampleKind {
  if ("text" in example) return "text";
  if ("messages" in example) return "chat";
  return "completion" in example ? "completion" : "preference";
}

const parts: readonly Part[] = ["text", "messages", "prompt", "completion", "chosen", "rejected"];

const exampleOptions = schema({
  /**
   * The names of the fields: `{ text: "content" }`. By default those called `messages`, `chosen` and `rejected`,
   * `prompt` and `completion`, or `text`, whichever the first record has.
   */
  fields: optional<ExampleFields>("object", {}),
  /** What a record that cannot be read does; `stop` by default. */
  onError: optional<OnDataError>("any", "stop"),
});

/** Options of {@link readExamples}. */
export interface ExampleOptions extends OptionsOf<typeof exampleOptions> {}

/**
 * Reads the examples of a source in order.
 *
 * @example
 * ```ts
 * const file = new File(["id,body\n7,one\n"], "some.csv");
 * const found: unknown[] = [];
 * for await (const example of train.readExamples(file, { fields: { text: "body" } })) found.push(example);
 * found; // [{ text: 'one' }]
 * ```
 */
export async function* readExamples(
  source: DataSource,
  options: ExampleOptions = {},
): AsyncGenerator<Example, void> {
  for await (const examples of exampleBatches(source, options)) yield* examples;
}

/** @internal {@link readExamples}, some at a time. */
export async function* exampleBatches(
  source: DataSource,
  options: ExampleOptions = {},
): AsyncGenerator<Example[], void> {
  for await (const batch of placedExamples(source, options)) yield batch.map(({ example }) => example);
}

/** An example and where it was read. */
export interface PlacedExample extends Pick<DataRecord, "file" | "line"> {
  readonly example: Example;
}

/** @internal {@link readExamples} with the places of examples, some at a time. */
export async function* placedExamples(
  source: DataSource,
  options: ExampleOptions = {},
): AsyncGenerator<PlacedExample[], void> {
  const { fields, onError } = exampleOptions.read(options, "readExamples");
  const given = checkFields(fields);
  const columns = Object.values(given);
  let names: ExampleFields | undefined;
  const own = columns.length > 0 ? { columns } : {};
  for await (const records of recordBatches(source, { onError, ...own })) {
    const examples: PlacedExample[] = [];
    for (const record of records) {
      names ??= fieldsOf(record, given);
      try {
        examples.push({ file: record.file, line: record.line, example: exampleOf(record, names) });
      } catch (error) {
        if (!(error instanceof FileError) || onError === "stop") throw error;
        if (typeof onError === "function") onError(error);
      }
    }
    yield examples;
  }
}

/** All that an example says. */
export function textOf(example: Example): string {
  const parts = Object.values(example).flatMap((part: TextOrChat) =>
    typeof part === "string"
      ? [part]
      : part.map(({ content }) => (typeof content === "string" ? content : JSON.stringify(content))),
  );
  return parts.join("\n");
}

function checkFields(fields: ExampleFields): ExampleFields {
  for (const [part, name] of Object.entries(fields)) {
    if (!parts.includes(part as Part)) {
      const near = nearest(part, parts);
      const hint = near ? `; did you mean ${near}?` : "";
      throw new ValueError(`[data] examples have no part "${part}": use ${parts.join(", ")}${hint}`);
    }
    if (typeof name !== "string") throw new ValueError(`[data] the field of ${part} must be a string`);
  }
  if (Object.keys(fields).length > 0 && !kinds.some((kind) => kind.every((part) => part in fields))) {
    throw new ValueError(
      `[data] the fields ${Object.keys(fields).join(", ")} do not make an example: use text, messages, prompt and completion, or chosen and rejected`,
    );
  }
  return fields;
}

/** Parses `text=content` or `prompt=question,completion=answer`; a name alone is that of the text. */
export function parseFields(text: string): ExampleFields {
  if (text.trim() === "") return {};
  return checkFields(
    Object.fromEntries(
      text.split(",").map((pair) => {
        const [part = "", name] = pair.split("=").map((side) => side.trim());
        return name === undefined ? ["text", part] : [part, name];
      }),
    ),
  );
}

/** The names of an example's fields in the records of a source, from the first of them. */
function fieldsOf({ fields, file, line }: DataRecord, given: ExampleFields): ExampleFields {
  const there = Object.keys(fields);
  if (Object.keys(given).length > 0) {
    const missing = Object.values(given).filter((name) => !(name in fields));
    if (missing.length === 0) return given;
    const near = nearest(missing[0] ?? "", there);
    throw new ValueError(
      `[data] ${file}, line ${line} has no field ${missing.map((name) => `"${name}"`).join(" and ")}: its fields are ${listed(there)}${near ? `; did you mean ${near}?` : ""}`,
    );
  }
  const found = kinds.find((kind) => kind.every((part) => part in fields));
  if (!found) {
    throw new ValueError(
      `[data] ${file}, line ${line} has no field text, messages, prompt and completion, or chosen and rejected: its fields are ${listed(there)}; name those to train on, as in text=${there[0] ?? "content"}`,
    );
  }
  const withPrompt = found[0] === "chosen" && "prompt" in fields ? ["prompt", ...found] : found;
  return Object.fromEntries(withPrompt.map((part) => [part, part]));
}

const listed = (names: readonly string[]) => (names.length === 0 ? "none" : names.join(", "));

function exampleOf({ fields, file, line }: DataRecord, names: ExampleFields): Example {
  const wrong = (name: string, rule: string): never => {
    throw dataError(file, `the field ${name} ${rule}`, { line });
  };
  const read = (part: Part): TextOrChat => {
    const name = names[part] ?? part;
    const value = fields[name];
    if (part !== "messages" && typeof value === "string") return value;
    if (part !== "text" && Array.isArray(value) && value.every(isMessage)) return value;
    const wanted = part === "text" ? "a string" : part === "messages" ? "messages" : "a string or messages";
    const messages = part === "text" ? "" : " (objects with a role and a content)";
    return wrong(name, value === undefined ? "is missing" : `is not ${wanted}${messages}`);
  };
  const own = Object.fromEntries(Object.keys(names).map((part) => [part, read(part as Part)]));
  const turns = ["prompt", "completion", "chosen", "rejected"].filter((part) => part in own);
  if (new Set(turns.map((part) => typeof own[part])).size > 1) {
    wrong(turns.join(", "), "mix strings and messages: use one kind for all of them");
  }
  // Which parts there are was checked against the kinds of examples.
  return own as Example;
}

const isMessage = (value: unknown): value is ChatMessage =>
  isObject(value) && typeof value.role === "string" && "content" in value;
