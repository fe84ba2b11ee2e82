/** The tokens of a run's sources, which are made once and kept in the run's folder unless they fit in memory. */
import { existsSync, stat } from "#platform/fs";
import { join } from "#platform/path";
import { numCores } from "#platform/system";
import type { RunConfig } from "../config/runConfig.js";
import { parseChatTemplate } from "../data/chat/chatTemplate.js";
import { bundledText } from "../data/sources/corpus.js";
import {
  type Example,
  type ExampleKind,
  exampleBatches,
  kindOfExample,
  parseFields,
  textOf,
} from "../data/sources/examples.js";
import { formatNamed } from "../data/sources/formats.js";
import { BpeTokenizer } from "../data/tokenizers/bpe.js";
import { JsonTokenizer } from "../data/tokenizers/jsonTokenizer.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import { formatTokenizer } from "../data/tokenizers/tokenizerJson.js";
import { encodeExample, joinDocuments, type MarkedTokens } from "../data/tokens/encodeExample.js";
import {
  openTokenFolder,
  readIndex,
  type TokenFolderOptions,
  writeTokenFolder,
} from "../data/tokens/tokenFolder.js";
import { openTokenShards } from "../data/tokens/tokenShards.js";
import { endedBy, type TokenSource, tokensInMemory } from "../data/tokens/tokens.js";
import { type ProcessGroup, together } from "../files/checkpoints/processGroup.js";
import type { FileError } from "../files/disk/fileError.js";
import { readChatTemplate } from "../pretrained/chatFiles.js";

/** The tokens of a source. */
export interface OpenedTokens {
  readonly tokens: TokenSource;
  readonly kind: ExampleKind;
  /** What should be known about it, such as the number of records left out. */
  readonly notes: readonly string[];
  /** Closes its files. */
  readonly close: () => Promise<void>;
}

const nothing = async () => {};

/** How the tokens of a run are opened. */
export interface TokensOptions {
  /** The run's folder. */
  readonly folder: string;
  /** Whether the run has begun, so that its tokens exist. */
  readonly begun: boolean;
  /** Whether the folder is left as it is. */
  readonly readOnly: boolean;
  readonly tokenizer: Tokenizer;
  readonly group: ProcessGroup;
  /** Shows how far it is. */
  readonly progress: (text: string) => void;
}

/** The folder in that of a run with the tokens of its sources. */
export const tokensName = "tokens";

/** The folder of the tokens of a source. */
const tokensFolder = (run: string, index: number) => join(run, tokensName, String(index));

/** The sources that a configuration names, separated by commas unless there is a file of the whole name. */
export function sourceNames({ data }: RunConfig): string[] {
  if (existsSync(data.source)) return [data.source];
  return data.source.split(",").map((name) => name.trim());
}

const statusOf = (path: string) => stat(path).catch(() => undefined);

/** Whether a source holds tokens already. */
export function isTokens(source: string): boolean {
  return source.endsWith(".tokens") || existsSync(join(source, "index.json"));
}

/** Whether a source is a single file that is read whole: a text, or a file that does not say what it is. */
async function isWholeFile(source: string): Promise<boolean> {
  const isText = (formatNamed(source) ?? "text") === "text" && !/\.(gz|zst|zstd)$/i.test(source);
  return isText && (await statusOf(source))?.isFile() === true;
}

/** Opens the tokens of a source. */
export async function openTokens(
  config: RunConfig,
  source: string,
  index: number,
  options: TokensOptions,
): Promise<OpenedTokens> {
  const { tokenizer, folder, begun, readOnly, group, progress } = options;
  if (source.endsWith(".tokens")) return ofShards([source], tokenizer);
  if (isTokens(source)) return ofFolder(source);
  if (source === "bundled") {
    const texts = (await bundledText()).map((text) => ({ text }));
    return inMemory([texts], config, folder, tokenizer);
  }
  const own = tokensFolder(folder, index);
  if ((begun || readOnly) && (await readIndex(own))) return ofFolder(own);
  const notes: string[] = [];
  const skipped = (error: FileError) => {
    if (notes.length < maxNotes) notes.push(`left out: ${error.message}`);
  };
  const { onError } = config.data;
  const fields = parseFields(config.data.fields);
  if (readOnly || (await isWholeFile(source))) {
    const examples = exampleBatches(source, { fields, onError: onError === "stop" ? onError : skipped });
    const opened = await inMemory(examples, config, folder, tokenizer);
    return { ...opened, notes };
  }
  await together(group, async () => {
    if (group.index > 0) return "";
    const settings = await settingsOf(config, folder, tokenizer);
    let shown = 0;
    await writeTokenFolder(own, source, {
      ...settings,
      fields,
      onError,
      skipped,
      numWorkers: Math.min(maxWorkers, Math.max(1, numCores() - 1)),
      progress: ({ numExamples, numTokens }) => {
        if (performance.now() - shown < 1000) return;
        shown = performance.now();
        progress(`tokenising ${source}: ${count(numExamples)} examples, ${count(numTokens)} tokens`);
      },
    });
    return "";
  });
  const opened = await ofFolder(own);
  return { ...opened, notes: [...opened.notes, ...notes] };
}

const maxNotes = 5;
const maxWorkers = 8;
const count = (n: number) => n.toLocaleString("en-US");

async function ofShards(paths: readonly string[], { endOfText }: Tokenizer): Promise<OpenedTokens> {
  const shards = await openTokenShards(paths);
  const isPlain = !shards.hasMarks && endOfText !== undefined;
  const tokens = isPlain ? endedBy(shards, endOfText) : shards;
  return { tokens, kind: "text", notes: [], close: () => shards.close() };
}

async function ofFolder(folder: string): Promise<OpenedTokens> {
  const { index, tokens } = await openTokenFolder(folder);
  const { numSkipped, kind } = index;
  const notes = numSkipped > 0 ? [`${count(numSkipped)} records could not be read and were left out`] : [];
  return { tokens, kind, notes, close: () => tokens.close() };
}

/** The tokens of examples in memory. */
async function inMemory(
  batches: AsyncIterable<readonly Example[]> | Iterable<readonly Example[]>,
  config: RunConfig,
  folder: string,
  tokenizer: Tokenizer,
): Promise<OpenedTokens> {
  const chat = await chatTemplateOf(config, folder);
  const template = chat && parseChatTemplate(chat.template);
  const documents: MarkedTokens[] = [];
  let kind: ExampleKind | undefined;
  for await (const batch of batches) {
    for (const example of batch) {
      kind ??= kindOfExample(example);
      documents.push(...encodeExample(example, { tokenizer, template, variables: chat?.variables }));
    }
  }
  const { tokens, marks } = joinDocuments(documents);
  const { vocabSize, endOfText } = tokenizer;
  if (kind === "text" && endOfText !== undefined) {
    return { tokens: endedBy(tokensInMemory(tokens, vocabSize), endOfText), kind, notes: [], close: nothing };
  }
  return {
    tokens: tokensInMemory(tokens, vocabSize, marks),
    kind: kind ?? "text",
    notes: [],
    close: nothing,
  };
}

async function settingsOf(
  config: RunConfig,
  folder: string,
  tokenizer: Tokenizer,
): Promise<Pick<TokenFolderOptions, "tokenizer" | "template" | "variables" | "vocabSize">> {
  const isJson = tokenizer instanceof BpeTokenizer || tokenizer instanceof JsonTokenizer;
  const chat = await chatTemplateOf(config, folder);
  return {
    tokenizer: isJson ? formatTokenizer(tokenizer) : "bytes",
    vocabSize: tokenizer.vocabSize,
    ...chat,
  };
}

/** The chat template of a run: the file that it names, or that of the model it starts from. */
async function chatTemplateOf({ data, init }: RunConfig, folder: string) {
  if (data.template !== "") return readChatTemplate(data.template, "train");
  const from = init !== "" && existsSync(init) ? init : join(folder, "pretrained");
  return existsSync(from) ? readChatTemplate(from, "train") : undefined;
}

/** Characters of examples that a BPE vocabulary is learnt from. */
const maxLearnt = 2 ** 25;

/** Texts to learn a vocabulary from: the first of all sources. */
export async function textsToLearn(config: RunConfig): Promise<string[]> {
  const texts: string[] = [];
  let length = 0;
  for (const source of sourceNames(config)) {
    if (source === "bundled") texts.push(...(await bundledText()));
    else if (!isTokens(source)) {
      const fields = parseFields(config.data.fields);
      for await (const batch of exampleBatches(source, { fields, onError: config.data.onError })) {
        for (const example of batch) {
          const text = textOf(example);
          texts.push(text);
          length += text.length;
        }
        if (length > maxLearnt) return texts;
      }
    }
  }
  return texts;
}
