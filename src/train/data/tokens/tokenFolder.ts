/** A folder of token files that was made of examples once, with an index that says of which. */
import { existsSync, mkdir, readFile, rm } from "#platform/fs";
import { sha256 } from "#platform/hashing";
import { join } from "#platform/path";
import { tokenizeExamples } from "#train/data/tokens/tokenize";
import { arrayOf, count, matching, object, ofKind, string } from "../../../ir/jsonReaders.js";
import { FileError } from "../../files/disk/fileError.js";
import { replaceFile } from "../../files/disk/files.js";
import { parseJsonFile } from "../../files/disk/json.js";
import type { ExampleFields } from "../sources/examples.js";
import { type ExampleKind, exampleBatches, exampleKinds, kindOfExample } from "../sources/examples.js";
import { type DataSource, filesOf } from "../sources/records.js";
import { joinDocuments, type MarkedTokens } from "./encodeExample.js";
import type { TokenizeSettings } from "./tokenizeSettings.js";
import { openTokenShards, type TokenShards, writeTokenShard } from "./tokenShards.js";

/** The file that describes the others; it is written last. */
const indexFile = "index.json";

/** The most tokens of a file. */
const shardTokens = 2 ** 23;

/** What a folder of tokens holds. */
export interface TokenIndex {
  /** Identifies the data and how it was turned into tokens. */
  readonly key: string;
  readonly kind: ExampleKind;
  readonly files: readonly string[];
  readonly numExamples: number;
  readonly numDocuments: number;
  readonly numTokens: number;
  /** The number of records that could not be read and were left out. */
  readonly numSkipped: number;
}

const tokenIndex = object({
  key: string,
  kind: ofKind((value): value is ExampleKind => exampleKinds.some((kind) => kind === value), "is unknown"),
  files: arrayOf(matching(/^\w+\.tokens$/, "must be the name of a file of tokens in the folder")),
  ...{ numExamples: count, numDocuments: count, numTokens: count, numSkipped: count },
});

/** How the examples of a source become files of tokens. */
export interface TokenFolderOptions extends TokenizeSettings {
  readonly vocabSize: number;
  readonly fields: ExampleFields;
  readonly onError: "stop" | "skip";
  readonly numWorkers: number;
  /** Told how far it is. */
  readonly progress?: ((done: { numExamples: number; numTokens: number }) => void) | undefined;
  /** Told of records that are left out. */
  readonly skipped?: ((error: FileError) => void) | undefined;
}

/** Opens a folder of tokens. */
export async function openTokenFolder(folder: string): Promise<{ index: TokenIndex; tokens: TokenShards }> {
  const index = await readIndex(folder);
  if (!index) throw new FileError("tokens", join(folder, indexFile), 0, "there is no index of tokens");
  return { index, tokens: await openTokenShards(index.files.map((name) => join(folder, name))) };
}

/** The index of a folder; undefined if it has none. */
export async function readIndex(folder: string): Promise<TokenIndex | undefined> {
  const path = join(folder, indexFile);
  if (!existsSync(path)) return undefined;
  const json = parseJsonFile(await readFile(path, "utf8"), "tokens", path);
  return tokenIndex(
    json,
    "",
    (where, rule) => new FileError("tokens", path, 0, `the index is damaged: ${where} ${rule}`),
  );
}

/** Turns the examples of a source into files of tokens, unless the folder has those already. */
export async function writeTokenFolder(
  folder: string,
  source: DataSource,
  options: TokenFolderOptions,
): Promise<void> {
  const key = await keyOf(source, options);
  if ((await readIndex(folder).catch(() => undefined))?.key === key) return;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  try {
    const index = { key, ...(await writeShards(folder, source, options)) };
    await replaceFile(join(folder, indexFile), `${JSON.stringify(index, null, 2)}\n`);
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Writes the tokens of the examples of a source; returns what the index says of them. */
async function writeShards(
  folder: string,
  source: DataSource,
  options: TokenFolderOptions,
): Promise<Omit<TokenIndex, "key">> {
  let numSkipped = 0;
  const onError = (error: FileError) => {
    if (options.onError === "stop") throw error;
    numSkipped++;
    options.skipped?.(error);
  };
  let kind: ExampleKind | undefined;
  async function* examples() {
    for await (const batch of exampleBatches(source, { fields: options.fields, onError })) {
      const [first] = batch;
      if (first) kind ??= kindOfExample(first);
      yield batch;
    }
  }
  const writer = new ShardWriter(folder, options.vocabSize);
  const counts = { numExamples: 0, numDocuments: 0, numTokens: 0 };
  const { tokenizer, template, variables, numWorkers } = options;
  for await (const part of tokenizeExamples(examples(), { tokenizer, template, variables }, numWorkers)) {
    counts.numExamples += part.numExamples;
    counts.numDocuments += part.numDocuments;
    counts.numTokens += part.tokens.length;
    await writer.add(part);
    options.progress?.(counts);
  }
  return { kind: kind ?? "text", files: await writer.finish(), ...counts, numSkipped };
}

/** Files in the order of their tokens, each written when it is full. */
class ShardWriter {
  private readonly folder: string;
  private readonly vocabSize: number;
  private readonly names: string[] = [];
  private pending: MarkedTokens[] = [];
  private numPending = 0;

  constructor(folder: string, vocabSize: number) {
    this.folder = folder;
    this.vocabSize = vocabSize;
  }

  async add(part: MarkedTokens): Promise<void> {
    this.pending.push(part);
    this.numPending += part.tokens.length;
    if (this.numPending >= shardTokens) await this.write();
  }

  async finish(): Promise<readonly string[]> {
    if (this.numPending > 0 || this.names.length === 0) await this.write();
    return this.names;
  }

  private async write(): Promise<void> {
    const { tokens, marks } = joinDocuments(this.pending);
    const name = `${String(this.names.length).padStart(5, "0")}.tokens`;
    this.names.push(name);
    [this.pending, this.numPending] = [[], 0];
    await writeTokenShard(join(this.folder, name), tokens, this.vocabSize, marks);
  }
}

async function keyOf(source: DataSource, options: TokenFolderOptions): Promise<string> {
  const { tokenizer, template, variables, fields, onError } = options;
  const files = await filesOf(source);
  const what = JSON.stringify({ files, tokenizer, template, variables, fields, onError });
  return sha256(new TextEncoder().encode(what));
}
