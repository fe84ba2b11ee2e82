import { isUtf8 } from "node:buffer";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ShardwiseError } from "../../ir/errors.js";
import type { RunConfig } from "../config/runConfig.js";
import { BpeTokenizer } from "../data/bpe.js";
import { trainBpe } from "../data/bpeTrainer.js";
import { bundledText } from "../data/corpus.js";
import { byteTokenizer, type Tokenizer } from "../data/tokenizer.js";
import { formatTokenizer, readTokenizer } from "../data/tokenizerJson.js";
import { openTokenShards, type TokenSource, tokenRange, tokensInMemory } from "../data/tokenShards.js";
import { FileError, reasonOf } from "../files/fileError.js";
import { replaceFile } from "../files/files.js";

/** The text of a run as tokens. */
export interface RunData {
  readonly tokenizer: Tokenizer;
  readonly training: TokenSource;
  /** What is kept for evaluation; undefined when it is too little for a row. */
  readonly validation: TokenSource | undefined;
}

/** The file in a run's folder that keeps a tokeniser made or read for it. */
export const tokenizerFile = "tokenizer.json";

/** The tokeniser of a run that was started before. @param folder the run's folder */
export async function storedTokenizer(config: RunConfig, folder: string): Promise<Tokenizer> {
  return config.data.tokenizer === "bytes" ? byteTokenizer() : readTokenizer(join(folder, tokenizerFile));
}

/**
 * Opens the text that a run is trained on and the tokeniser for it, and splits off what is kept for evaluation.
 *
 * @param folder the run's folder, where a tokeniser other than that of bytes is kept
 * @param how whether the run was begun before, so that it goes on with its tokeniser; or the tokeniser to use
 */
export async function openRunData(
  config: RunConfig,
  folder: string,
  how: { readonly begun: boolean } | { readonly tokenizer: Tokenizer },
): Promise<RunData> {
  const { data } = config;
  const isTokens = data.source.endsWith(".tokens");
  // Bytes are bytes, whether or not they are text.
  const isBytes = data.tokenizer === "bytes" && data.source !== "bundled";
  const documents = isTokens || isBytes ? [] : await readDocuments(data.source);
  const tokenizer =
    "tokenizer" in how ? how.tokenizer : await openTokenizer(config, folder, how.begun, documents);
  const all = isTokens
    ? await openTokenShards([data.source])
    : isBytes
      ? joinTokens([Int32Array.from(await readBytes(data.source))], tokenizer)
      : joinTokens(
          documents.map((text) => tokenizer.encode(text)),
          tokenizer,
        );
  if (all.vocabSize > tokenizer.vocabSize) {
    throw new ShardwiseError(
      "config",
      `[train] ${data.source} has tokens up to ${all.vocabSize - 1}, but the tokeniser knows ${tokenizer.vocabSize}: set data.tokenizer to the tokenizer.json that the file was made with`,
    );
  }
  const least = data.sequence + 1;
  const kept = Math.floor(all.numTokens * data.validation);
  const numTraining = kept >= least ? all.numTokens - kept : all.numTokens;
  if (numTraining < least) {
    throw new ShardwiseError(
      "config",
      numTraining < 2
        ? `[train] ${data.source} has ${numTraining} tokens, too few to train on: use more text`
        : `[train] ${data.source} has ${numTraining} tokens to train on, fewer than one row of data.sequence + 1 = ${least}: set data.sequence to ${numTraining - 1} or less, or use more text`,
    );
  }
  return {
    tokenizer,
    training: tokenRange(all, 0, numTraining),
    validation: numTraining < all.numTokens ? tokenRange(all, numTraining, all.numTokens) : undefined,
  };
}

async function readDocuments(source: string): Promise<string[]> {
  return source === "bundled" ? bundledText() : [decodeText(await readBytes(source), source)];
}

async function readBytes(source: string): Promise<Uint8Array> {
  try {
    return await readFile(source);
  } catch (cause) {
    throw new FileError("text", source, 0, `the text cannot be read (${reasonOf(cause)})`, { cause });
  }
}

/** The text of bytes; throws where they are none instead of putting marks in their place. */
function decodeText(bytes: Uint8Array, source: string): string {
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  if (isUtf8(bytes)) return text;
  for (let at = text.indexOf("\uFFFD"); at >= 0; at = text.indexOf("\uFFFD", at + 1)) {
    const offset = Buffer.byteLength(text.slice(0, at));
    const isMark = bytes[offset] === 0xef && bytes[offset + 1] === 0xbf && bytes[offset + 2] === 0xbd;
    if (isMark) continue;
    const rule = "the text is not UTF-8 here: convert it, or set data.tokenizer to bytes";
    throw new FileError("text", source, offset, rule);
  }
  return text;
}

async function openTokenizer(
  { data }: RunConfig,
  folder: string,
  begun: boolean,
  documents: readonly string[],
): Promise<Tokenizer> {
  if (data.tokenizer === "bytes") return byteTokenizer();
  const own = join(folder, tokenizerFile);
  // A file that a start without a checkpoint left behind may be of other settings.
  if (begun && existsSync(own)) return readTokenizer(own);
  if (data.tokenizer === "bpe" && documents.length === 0) {
    throw new ShardwiseError(
      "config",
      `[train] a BPE tokeniser cannot be trained on ${data.source}, which holds tokens already: set data.tokenizer to the tokenizer.json that it was made with`,
    );
  }
  const tokenizer =
    data.tokenizer === "bpe"
      ? trainBpe(documents, { vocabSize: data.vocabSize })
      : await readTokenizer(data.tokenizer);
  await mkdir(folder, { recursive: true });
  if (tokenizer instanceof BpeTokenizer) await replaceFile(own, formatTokenizer(tokenizer));
  return tokenizer;
}

/** The tokens of all documents, one after the other, with the mark of the end of a text between them. */
function joinTokens(parts: readonly Int32Array[], { endOfText, vocabSize }: Tokenizer): TokenSource {
  const between = endOfText === undefined ? [] : [endOfText];
  const tokens = new Int32Array(parts.reduce((n, part) => n + part.length + between.length, 0));
  let end = 0;
  for (const part of parts) {
    tokens.set(part, end);
    tokens.set(between, end + part.length);
    end += part.length + between.length;
  }
  return tokensInMemory(tokens, vocabSize);
}
