/** The tokens of examples, with what the loss counts. */
import { ValueError } from "../../../ir/errors.js";
import { type ChatMessage, type ChatTemplate, encodeChat } from "../chat/chatTemplate.js";
import type { Example, TextOrChat } from "../sources/examples.js";
import type { Tokenizer } from "../tokenizers/tokenizer.js";
import { tokenMarks } from "./tokens.js";

/** Tokens with their {@link tokenMarks}. */
export interface MarkedTokens {
  readonly tokens: Int32Array;
  readonly marks: Uint8Array;
}

/** How examples become tokens. */
export interface EncodeSettings {
  readonly tokenizer: Tokenizer;
  /** Turns messages into a text; needed for chats only. */
  readonly template?: ChatTemplate | undefined;
  /** Variables of the template, such as `bos_token`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * The documents of an example: one, or a chosen and a rejected one. Texts end with the tokeniser's token for it, if it
 * has one; chats end as their template says. The loss counts all of a text, and of the others what is to be written: the
 * assistant's messages, or completions.
 */
export function encodeExample(example: Example, settings: EncodeSettings): MarkedTokens[] {
  const { tokenizer } = settings;
  if ("text" in example) {
    const tokens = withEnd(tokenizer.encode(example.text), tokenizer);
    return example.text === "" ? [] : [marked(tokens, 0)];
  }
  if ("messages" in example) return [chatOf(example.messages, settings)];
  if ("completion" in example) return [answerOf(example.prompt, example.completion, settings)];
  const { prompt, chosen, rejected } = example;
  const [first, second] = [chosen, rejected].map((answer) => answerOf(...parted(prompt, answer), settings));
  return first && second && first.tokens.length > 0 && second.tokens.length > 0 ? [first, second] : [];
}

/** A prompt and an answer; in chats without a prompt of their own, the answer is the last message. */
function parted(prompt: TextOrChat | undefined, answer: TextOrChat): [TextOrChat, TextOrChat] {
  if (prompt !== undefined) return [prompt, answer];
  return typeof answer === "string" ? ["", answer] : [answer.slice(0, -1), answer.slice(-1)];
}

function chatOf(messages: readonly ChatMessage[], settings: EncodeSettings): MarkedTokens {
  const { tokenizer, variables = {} } = settings;
  const { tokens, mask } = encodeChat(messages, templateOf(settings), tokenizer, { variables });
  const marks = mask.map((isTrained) => (isTrained ? 0 : tokenMarks.unscored));
  if (marks.length > 0) marks[0] = (marks[0] ?? 0) | tokenMarks.start;
  return { tokens, marks };
}

/** A prompt, which is read only, and the answer to it. */
function answerOf(prompt: TextOrChat, answer: TextOrChat, settings: EncodeSettings): MarkedTokens {
  const { tokenizer, variables = {} } = settings;
  if (typeof prompt === "string" && typeof answer === "string") {
    const read = tokenizer.encode(prompt);
    return marked(joined(read, withEnd(tokenizer.encode(answer), tokenizer)), read.length);
  }
  if (typeof prompt === "string" || typeof answer === "string") {
    throw new ValueError("[data] prompts and answers must both be texts or both be messages");
  }
  const template = templateOf(settings);
  const before = template(prompt, { addGenerationPrompt: true, variables });
  const all = template([...prompt, ...answer], { variables });
  if (!all.startsWith(before)) {
    throw new ValueError(
      "[data] the template writes a prompt differently when an answer follows: it cannot be used here",
    );
  }
  const read = tokenizer.encode(before);
  return marked(joined(read, tokenizer.encode(all.slice(before.length))), read.length);
}

function templateOf({ template }: EncodeSettings): ChatTemplate {
  if (template) return template;
  throw new ValueError(
    "[data] messages need a chat template: start from a model that has one (--init), or name a file with --data.template",
  );
}

function marked(tokens: Int32Array, numRead: number): MarkedTokens {
  const marks = new Uint8Array(tokens.length).fill(tokenMarks.unscored, 0, numRead);
  if (marks.length > 0) marks[0] = (marks[0] ?? 0) | tokenMarks.start;
  return { tokens, marks };
}

function withEnd(tokens: Int32Array, { endOfText }: Tokenizer): Int32Array {
  return endOfText === undefined ? tokens : joined(tokens, Int32Array.of(endOfText));
}

function joined(first: Int32Array, second: Int32Array): Int32Array {
  const all = new Int32Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

/** Documents one after the other. */
export function joinDocuments(documents: readonly MarkedTokens[]): MarkedTokens {
  const length = documents.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const [tokens, marks] = [new Int32Array(length), new Uint8Array(length)];
  let end = 0;
  for (const document of documents) {
    tokens.set(document.tokens, end);
    marks.set(document.marks, end);
    end += document.tokens.length;
  }
  return { tokens, marks };
}
