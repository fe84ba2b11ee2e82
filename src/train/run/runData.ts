import { existsSync, mkdir, rm } from "#platform/fs";
import { join } from "#platform/path";
import { ConfigError } from "../../ir/errors.js";
import type { RunConfig } from "../config/runConfig.js";
import {
  cutRows,
  documentStarts,
  packDocuments,
  pairRows,
  type RowSource,
  withReference,
} from "../data/batches/rows.js";
import { trainBpe } from "../data/tokenizers/bpeTrainer.js";
import { byteTokenizer, type Tokenizer } from "../data/tokenizers/tokenizer.js";
import { readTokenizer } from "../data/tokenizers/tokenizerFile.js";
import { formatTokenizer } from "../data/tokenizers/tokenizerJson.js";
import { type TokenSource, tokenRange } from "../data/tokens/tokens.js";
import { alone, type ProcessGroup } from "../files/checkpoints/processGroup.js";
import { replaceFile } from "../files/disk/files.js";
import {
  isTokens,
  type OpenedTokens,
  openTokens,
  sourceNames,
  textsToLearn,
  tokensName,
} from "./runTokens.js";

/** Rows of one or several sources, mixed by weights. */
export interface RunRows {
  readonly sources: readonly (RowSource | TokenSource)[];
  readonly weights?: readonly number[];
}

/** The data of a run as rows of tokens. */
export interface RunData {
  readonly tokenizer: Tokenizer;
  readonly training: RunRows;
  /** The rows held out for evaluation; undefined if they are too few. */
  readonly validation: RunRows | undefined;
  /** The number of tokens to train on. */
  readonly numTokens: number;
  /** What should be known about the data. */
  readonly notes: readonly string[];
  /** Closes the files of tokens. */
  close(): Promise<void>;
}

/** The file in a run's folder that stores its tokeniser. */
export const tokenizerFile = "tokenizer.json";

/** The tokeniser of a run that was started before. @param folder the run's folder */
export async function storedTokenizer(config: RunConfig, folder: string): Promise<Tokenizer> {
  return config.data.tokenizer === "bytes" ? byteTokenizer() : readTokenizer(join(folder, tokenizerFile));
}

/** Whether a run is resumed, so that it uses its stored tokeniser and tokens; or the tokeniser to use. */
export type OpenMode = {
  readonly group?: ProcessGroup;
  readonly progress?: (text: string) => void;
} & ({ readonly begun: boolean } | { readonly tokenizer: Tokenizer });

/**
 * Opens the data that a run is trained on and the tokeniser for it, and splits off the part that is held out for
 * evaluation.
 *
 * @param folder the run's folder, where a tokeniser other than that of bytes is stored, and tokens that are made once
 */
export async function openRunData(config: RunConfig, folder: string, how: OpenMode): Promise<RunData> {
  const isRead = "tokenizer" in how;
  const begun = !isRead && how.begun;
  const tokenizer = isRead ? how.tokenizer : await openTokenizer(config, folder, begun);
  const { group = alone, progress = () => {} } = how;
  const parts: { training: RowSource; validation: RowSource | undefined; numTokens: number }[] = [];
  const notes: string[] = [];
  const closing: (() => Promise<void>)[] = [];
  const close = async () => void (await Promise.all(closing.splice(0).map((one) => one())));
  const sources = sourceNames(config);
  const weights = weightsOf(config, sources.length);
  for (const [index, source] of sources.entries()) {
    const options = { folder, begun, readOnly: isRead, tokenizer, group, progress };
    try {
      const opened = await openTokens(config, source, index, options);
      closing.push(opened.close);
      checkVocabulary(opened.tokens, source, tokenizer);
      parts.push(await splitRows(config, source, opened));
      notes.push(...opened.notes);
    } catch (error) {
      await close();
      if (!begun && !isRead) await removeMade(folder, index);
      throw error;
    }
  }
  const validation = parts.flatMap((part) => (part.validation ? [part.validation] : []));
  return {
    tokenizer,
    training: { sources: parts.map((part) => part.training), ...weights },
    // Weights belong to all sources, or to none.
    validation:
      validation.length === 0
        ? undefined
        : { sources: validation, ...(validation.length === parts.length ? weights : {}) },
    numTokens: parts.reduce((sum, part) => sum + part.numTokens, 0),
    notes,
    close,
  };
}

/** Removes what a run that cannot begin has made, but for the tokens of sources before the one that failed. */
async function removeMade(folder: string, failed: number): Promise<void> {
  await rm(join(folder, tokenizerFile), { force: true });
  if (failed === 0) await rm(join(folder, tokensName), { recursive: true, force: true });
}

function weightsOf({ data }: RunConfig, numSources: number): { weights?: number[] } {
  if (data.weights.trim() === "") return {};
  const weights = data.weights.split(",").map(Number);
  if (weights.length === numSources && weights.every((w) => Number.isFinite(w) && w > 0)) return { weights };
  throw new ConfigError(
    `[train] data.weights is ${JSON.stringify(data.weights)}: use ${numSources} positive numbers, one for each source of data.source, such as ${Array.from({ length: numSources }, (_, i) => i + 1).join(",")}`,
  );
}

function checkVocabulary({ vocabSize }: TokenSource, source: string, tokenizer: Tokenizer): void {
  if (vocabSize <= tokenizer.vocabSize) return;
  throw new ConfigError(
    `[train] ${source} has tokens up to ${vocabSize - 1}, but the tokeniser knows ${tokenizer.vocabSize}: set data.tokenizer to the tokenizer.json that the file was made with`,
  );
}

/** The rows of a source to train on, and those that are kept for evaluation. */
async function splitRows(config: RunConfig, source: string, { tokens, kind }: OpenedTokens) {
  const { data } = config;
  const packing = data.packing === "auto" ? (kind === "text" ? "joined" : "whole") : data.packing;
  const isPairs = kind === "preference";
  checkObjective(config, source, isPairs);
  if (tokens.numTokens === 0) {
    throw new ConfigError(`[train] ${source} has no examples: there is nothing to train on`);
  }
  if (packing === "whole" || isPairs) {
    const rows = async (part: TokenSource, length: number): Promise<RowSource> =>
      isPairs ? withReference(await pairRows(part, length)) : packDocuments(part, length);
    const starts = await documentStarts(tokens);
    const numDocuments = starts.length - 1;
    const unit = isPairs ? 2 : 1;
    const kept = Math.floor((numDocuments / unit) * data.validation) * unit;
    const end = starts[numDocuments - kept] ?? tokens.numTokens;
    return {
      training: await rows(tokenRange(tokens, 0, end), data.sequence),
      validation: kept > 0 ? await rows(tokenRange(tokens, end, tokens.numTokens), data.sequence) : undefined,
      numTokens: end,
    };
  }
  const least = data.sequence + 1;
  const kept = Math.floor(tokens.numTokens * data.validation);
  const numTokens = kept >= least ? tokens.numTokens - kept : tokens.numTokens;
  if (numTokens < least) {
    throw new ConfigError(
      numTokens < 2
        ? `[train] ${source} has ${numTokens} tokens, too few to train on: use more text`
        : `[train] ${source} has ${numTokens} tokens to train on, fewer than one row of data.sequence + 1 = ${least}: set data.sequence to ${numTokens - 1} or less, or use more text`,
    );
  }
  const rows = (start: number, end: number) =>
    cutRows(tokenRange(tokens, start, end), data.sequence, packing === "separate");
  return {
    training: rows(0, numTokens),
    validation: numTokens < tokens.numTokens ? rows(numTokens, tokens.numTokens) : undefined,
    numTokens,
  };
}

/** Pairs of answers are trained on by DPO, and nothing else is. */
function checkObjective({ dpo }: RunConfig, source: string, isPairs: boolean): void {
  if (isPairs === dpo.beta > 0) return;
  throw new ConfigError(
    isPairs
      ? `[train] ${source} has pairs of chosen and rejected answers: set dpo.beta, such as 0.1, to train on them, or name other fields with data.fields`
      : `[train] dpo.beta is ${dpo.beta}, but ${source} has no pairs of chosen and rejected answers: use dpo.beta 0, or other data`,
  );
}

async function openTokenizer(config: RunConfig, folder: string, begun: boolean): Promise<Tokenizer> {
  const { data } = config;
  if (data.tokenizer === "bytes") return byteTokenizer();
  const own = join(folder, tokenizerFile);
  // A file left behind by a run without a checkpoint may belong to other settings.
  if (begun && existsSync(own)) return readTokenizer(own);
  if (data.tokenizer === "bpe" && sourceNames(config).some(isTokens)) {
    throw new ConfigError(
      `[train] a BPE tokeniser cannot be trained on ${data.source}, which holds tokens already: set data.tokenizer to the tokenizer.json that it was made with`,
    );
  }
  const tokenizer =
    data.tokenizer === "bpe"
      ? trainBpe(await textsToLearn(config), { vocabSize: data.vocabSize })
      : await readTokenizer(data.tokenizer);
  await mkdir(folder, { recursive: true });
  await replaceFile(own, formatTokenizer(tokenizer));
  return tokenizer;
}
