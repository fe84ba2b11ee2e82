/** What a folder of Hugging Face's says about texts: the template of chats, and the tokens that end a text. */
import { existsSync, readFile, stat } from "#platform/fs";
import { join } from "#platform/path";
import { type ChatMessage, parseChatTemplate } from "../data/chat/chatTemplate.js";
import { JsonTokenizer } from "../data/tokenizers/jsonTokenizer.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import { onFile, systemCode } from "../files/disk/fileError.js";
import { isObject } from "../files/disk/json.js";
import { readJson } from "./pretrainedFolder.js";

/** How texts are made for a model, and how they end. */
export interface TextFormat {
  /** Adds the tokens that a text starts with, and decodes without the special ones. */
  readonly tokenizer: Tokenizer;
  /** The tokens of a chat, up to the start of the next answer; undefined without a template. */
  readonly chatPrompt: ((messages: readonly ChatMessage[]) => readonly number[]) | undefined;
  readonly stopTokens: ReadonlySet<number>;
}

/** Reads how the model of a folder writes texts; a folder or file that does not exist says nothing. */
export async function readTextFormat(
  folder: string,
  tokenizer: Tokenizer,
  caller: string,
): Promise<TextFormat> {
  const read = (name: string) => readJson(join(folder, name), caller);
  const [config, generation] = await Promise.all(["config.json", "generation_config.json"].map(read));
  const ends = [config?.eos_token_id, generation?.eos_token_id, tokenizer.endOfText].flat();
  const chat = existsSync(folder) ? await readChatTemplate(folder, caller) : undefined;
  const template = chat && parseChatTemplate(chat.template);
  return {
    tokenizer: withSpecialTokens(tokenizer),
    chatPrompt:
      template &&
      // The template writes special tokens itself.
      ((messages) =>
        Array.from(
          tokenizer.encode(template(messages, { addGenerationPrompt: true, variables: chat.variables })),
        )),
    stopTokens: new Set(ends.filter((one): one is number => Number.isInteger(one))),
  };
}

/** The source of a chat template, with the special tokens that it may use. */
export interface ChatTemplateSource {
  readonly template: string;
  readonly variables: Readonly<Record<string, string>>;
}

/** The chat template of a folder, or of a file; undefined if the folder has none. */
export async function readChatTemplate(
  path: string,
  caller: string,
): Promise<ChatTemplateSource | undefined> {
  const isFolder = (await stat(path).catch(() => undefined))?.isDirectory() === true;
  const about = isFolder ? await readJson(join(path, "tokenizer_config.json"), caller) : undefined;
  const template = isFolder
    ? ((await templateFile(join(path, "chat_template.jinja"), true)) ?? templateIn(about?.chat_template))
    : await templateFile(path, false);
  if (template === undefined) return undefined;
  const variables = { bos_token: specialText(about?.bos_token), eos_token: specialText(about?.eos_token) };
  return { template, variables };
}

async function templateFile(path: string, mayLack: boolean): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (mayLack && systemCode(error) === "ENOENT") return undefined;
    return onFile("chat template", path, () => {
      throw error;
    });
  }
}

/** The template of a `tokenizer_config.json`, which may be a list of named ones. */
function templateIn(field: unknown): string | undefined {
  const named = Array.isArray(field)
    ? field.find((one) => isObject(one) && one.name === "default")?.template
    : field;
  return typeof named === "string" ? named : undefined;
}

/** The text of a special token, which is a string or an object with its content. */
function specialText(field: unknown): string {
  const text = isObject(field) ? field.content : field;
  return typeof text === "string" ? text : "";
}

function withSpecialTokens(tokenizer: Tokenizer): Tokenizer {
  if (!(tokenizer instanceof JsonTokenizer)) return tokenizer;
  return {
    vocabSize: tokenizer.vocabSize,
    endOfText: tokenizer.endOfText,
    encode: (text) => tokenizer.encode(text, { addSpecialTokens: true }),
    decode: (tokens) => tokenizer.decode(tokens, { skipSpecialTokens: true }),
  };
}
