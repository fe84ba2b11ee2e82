/** Chat templates: a safe subset of Jinja that turns messages into the text of a prompt. */
import { need } from "../../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../../ir/schema.js";
import type { Tokenizer } from "../tokenizers/tokenizer.js";
import { parseTemplate } from "./template/statements.js";
import { fromJson, templateError, toText, type Value } from "./template/values.js";

/** A message of a chat; templates may use more fields, such as `tool_calls`. */
export interface ChatMessage {
  readonly role: string;
  readonly content: unknown;
  readonly [field: string]: unknown;
}

const chatOptions = schema({
  /** Whether the text ends with the start of an answer; false by default. */
  addGenerationPrompt: false,
  /** Other variables of the template, such as `bos_token`, `eos_token` or `tools`. */
  variables: optional<Readonly<Record<string, unknown>>>("object", {}),
});

/** Options of a {@link ChatTemplate}. */
export interface ChatOptions extends OptionsOf<typeof chatOptions> {}

/** Turns messages into a text. */
export type ChatTemplate = (messages: readonly ChatMessage[], options?: ChatOptions) => string;

/** A template that does more than this many steps is stopped: real ones do a few hundred per message. */
const maxSteps = 1_000_000;

/** The longest range of a template. */
const maxRange = 100_000;

/**
 * Parses the template of a `tokenizer_config.json` or `chat_template.jinja`: loops, conditions, macros, namespaces, the
 * common filters and tests. A template reaches nothing but its variables and is stopped when it does not end.
 *
 * @example
 * ```ts
 * const chat = train.parseChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
 * chat([{ role: "user", content: "Hi" }]); // "<user>Hi"
 * ```
 */
export function parseChatTemplate(source: string): ChatTemplate {
  need("string", source, "the template", "parseChatTemplate");
  const run = parseTemplate(source);
  return (messages, options) => {
    need("list", messages, "messages", "chat template");
    const { addGenerationPrompt, variables } = chatOptions.read(options, "chat template");
    let steps = 0;
    const tick = () => {
      if (++steps > maxSteps)
        throw templateError(`stopped after ${maxSteps} steps: the template does not end`);
    };
    const own = new Map<string, Value>([
      ...Object.entries(variables).map(([name, value]) => [name, fromJson(value)] as const),
      ["messages", fromJson(messages)],
      ["add_generation_prompt", addGenerationPrompt],
      ["namespace", (_args, named) => new Map(named)],
      ["dict", (_args, named) => new Map(named)],
      [
        "raise_exception",
        ([message]) => {
          throw templateError(toText(message));
        },
      ],
      [
        "range",
        (args) => {
          const [first = 0, last] = args.map(Number);
          const [start, end] = last === undefined ? [0, first] : [first, last];
          if (end - start > maxRange)
            throw templateError(`range has ${end - start} numbers, more than ${maxRange}`);
          return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
        },
      ],
    ]);
    try {
      return run({ variables: own, tick });
    } catch (error) {
      if (error instanceof RangeError) throw templateError("stopped: its macros call each other without end");
      throw error;
    }
  };
}

/** The tokens of a chat, and which of them a model is trained to write. */
export interface EncodedChat {
  readonly tokens: Int32Array;
  /** 1 for tokens of the assistant's answers, 0 for others. */
  readonly mask: Uint8Array;
}

/**
 * Encodes a chat for training: the loss counts only the tokens that the assistant writes, up to the sign that ends its
 * answer.
 *
 * @example
 * ```ts
 * const chat = train.parseChatTemplate("{% for m in messages %}{{ m.content }}|{% endfor %}");
 * const messages = [{ role: "user", content: "Hi" }, { role: "assistant", content: "Yo" }];
 * Array.from(train.encodeChat(messages, chat, train.byteTokenizer()).mask); // [0, 0, 0, 1, 1, 1]
 * ```
 */
export function encodeChat(
  messages: readonly ChatMessage[],
  template: ChatTemplate,
  tokenizer: Tokenizer,
  options: Pick<ChatOptions, "variables"> = {},
): EncodedChat {
  need("list", messages, "messages", "encodeChat");
  need("function", template, "template", "encodeChat");
  need("object", tokenizer, "tokenizer", "encodeChat");
  const tokens: number[] = [];
  const mask: number[] = [];
  let done = "";
  const append = (text: string, isTrained: 0 | 1) => {
    need("string", text, "what the template returns", "encodeChat");
    if (!text.startsWith(done)) {
      throw templateError(
        "the text of the first messages changes when others follow: its answers cannot be marked",
      );
    }
    const added = tokenizer.encode(text.slice(done.length));
    tokens.push(...added);
    mask.push(...Array.from(added, () => isTrained));
    done = text;
  };
  messages.forEach(({ role }, i) => {
    if (role !== "assistant") return;
    append(template(messages.slice(0, i), { ...options, addGenerationPrompt: true }), 0);
    append(template(messages.slice(0, i + 1), options), 1);
  });
  append(template(messages, options), 0);
  return { tokens: Int32Array.from(tokens), mask: Uint8Array.from(mask) };
}
