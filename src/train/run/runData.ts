import { existsSync, mkdir } from "#platform/fs";
import { join } from "#platform/path";
import { ShardwiseError } from "../../ir/errors.js";
import type { RunConfig } from "../config/runConfig.js";
import { BpeTokenizer } from "../data/bpe.js";
import { trainBpe } from "../data/bpeTrainer.js";
import { bundledText } from "../data/corpus.js";
import { JsonTokenizer } from "../data/jsonTokenizer.js";
import { readTextFile } from "../data/textFile.js";
import { byteTokenizer, type Tokenizer } from "../data/tokenizer.js";
import { readTokenizer } from "../data/tokenizerFile.js";
import { formatTokenizer } from "../data/tokenizerJson.js";
import { openTokenShards } from "../data/tokenShards.js";
import { type TokenSource, tokenRange, tokensInMemory } from "../data/tokens.js";
import { replaceFile } from "../files/files.js";

/** The text of a run as tokens. */
export interface RunData {
  readonly tokenizer: Tokenizer;
  readonly training: TokenSource;
  /** The tokens held out for evaluation; undefined if they are too few for a row. */
  readonly validation: TokenSource | undefined;
}

/** The file in a run's folder that stores its tokeniser. */
export const tokenizerFile = "tokenizer.json";

/** The tokeniser of a run that was started before. @param folder the run's folder */
export async function storedTokenizer(config: RunConfig, folder: string): Promise<Tokenizer> {
  return config.data.tokenizer === "bytes" ? byteTokenizer() : readTokenizer(join(folder, tokenizerFile));
}

/**
 * Opens the text that a run is trained on and the tokeniser for it, and splits off the part that is held out for
 * evaluation.
 *
 * @param folder the run's folder, where a tokeniser other than that of bytes is stored
 * @param how whether the run is resumed, so that it uses its stored tokeniser; or the tokeniser to use
 */
export async function openRunData(
  config: RunConfig,
  folder: string,
  how: { readonly begun: boolean } | { readonly tokenizer: Tokenizer },
): Promise<RunData> {
  const { data } = config;
  const isTokens = data.source.endsWith(".tokens");
  const isBytes = data.tokenizer === "bytes" && data.source !== "bundled";
  const documents = isTokens || isBytes ? [] : await readDocuments(data.source);
  const tokenizer =
    "tokenizer" in how ? how.tokenizer : await openTokenizer(config, folder, how.begun, documents);
  const all = isTokens
    ? await openTokenShards([data.source])
    : isBytes
      ? joinTokens([Int32Array.from(await readTextFile(data.source))], tokenizer)
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
  if (source === "bundled") return bundledText();
  return [new TextDecoder("utf-8", { ignoreBOM: true }).decode(await readTextFile(source))];
}

async function openTokenizer(
  { data }: RunConfig,
  folder: string,
  begun: boolean,
  documents: readonly string[],
): Promise<Tokenizer> {
  if (data.tokenizer === "bytes") return byteTokenizer();
  const own = join(folder, tokenizerFile);
  // A file left behind by a run without a checkpoint may belong to other settings.
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
  if (tokenizer instanceof BpeTokenizer || tokenizer instanceof JsonTokenizer)
    await replaceFile(own, formatTokenizer(tokenizer));
  return tokenizer;
}

/** The concatenated tokens of all documents, separated by the end-of-text token. */
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
