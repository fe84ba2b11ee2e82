import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import type { Json } from "../files/checkpointManifest.js";
import type { TokenSource } from "./tokens.js";

/** Larger batches would not fit in memory. */
const maxElements = 2 ** 31;

const batchesOptions = schema({
  /** The number of tokens per row. */
  sequenceLength: required("number"),
  /** The number of rows of a batch over all ranks. */
  batchSize: required("number"),
  /** Seed of the order of rows. */
  seed: optional("integer", 0),
  /** Whether rows are shuffled anew in every epoch (the default) or keep the order of the data. */
  shuffle: true,
  /** Which part of each batch this process reads; all of it by default. */
  rank: 0,
  /** The number of processes that read parts of each batch; 1 by default. */
  numRanks: 1,
  /** Where to continue, as returned by {@link Batches.position}. */
  position: optional<Json>("any", null),
});

/** Options of {@link openBatches}. */
export interface BatchesOptions extends OptionsOf<typeof batchesOptions> {}

/** Rows of tokens, and for each token the one that follows it; both row-major. */
export interface Batch {
  readonly inputs: Int32Array;
  readonly targets: Int32Array;
  readonly shape: readonly [rows: number, sequenceLength: number];
  /** The number of whole passes over the data before this batch's first row. */
  readonly epoch: number;
}

/**
 * An endless stream of batches. Row i of the stream depends on seed and i alone: not on the number of ranks, the batch
 * size or where the stream was resumed.
 */
export class Batches {
  private readonly source: TokenSource;
  private readonly options: Omit<Values<typeof batchesOptions.fields>, "position">;
  private readonly numRows: number;
  /** The number of rows returned so far over all ranks. */
  private rows: number;
  private ahead: { readonly rows: number; readonly batch: Promise<Batch> } | undefined;

  /** @internal */
  constructor(source: TokenSource, options: Values<typeof batchesOptions.fields>) {
    need("object", source, "source", "openBatches");
    need("object", options, "the options", "openBatches");
    const { seed, shuffle, rank, numRanks, position, ...sizes } = options;
    const numbers = { ...sizes, numRanks };
    const wrong = Object.entries(numbers).filter(([, n]) => !(Number.isInteger(n) && n >= 1));
    if (
      wrong.length > 0 ||
      !(Number.isInteger(rank) && rank >= 0 && rank < numRanks) ||
      !Number.isSafeInteger(seed)
    ) {
      throw new ValueError(
        `[openBatches] sizes must be integers of at least 1 and the rank one of numRanks, got ${Object.entries(
          { ...numbers, rank, seed },
        )
          .map(([name, n]) => `${name}: ${describe(n)}`)
          .join(", ")}`,
      );
    }
    if (sizes.batchSize % numRanks !== 0) {
      throw new ValueError(
        `[openBatches] a batch of ${sizes.batchSize} rows does not split over ${numRanks} ranks (${sizes.batchSize} / ${numRanks} = ${sizes.batchSize / numRanks}): use a multiple of ${numRanks}`,
      );
    }
    const numElements = (sizes.batchSize / numRanks) * sizes.sequenceLength;
    if (numElements > maxElements) {
      throw new ValueError(
        `[openBatches] a batch of ${sizes.batchSize} x ${sizes.sequenceLength} tokens over ${numRanks} ranks is ${numElements} on each, more than ${maxElements}: use smaller batches`,
      );
    }
    this.source = source;
    this.options = { ...sizes, seed, shuffle, rank, numRanks };
    // The target of a row's last token is the first token of the next row.
    this.numRows = Math.floor((source.numTokens - 1) / sizes.sequenceLength);
    if (this.numRows < 1) {
      throw new ValueError(
        `[openBatches] ${source.numTokens} tokens are too few for a row of ${sizes.sequenceLength} and the token after it: use shorter rows or more text`,
      );
    }
    this.rows = position === null ? 0 : this.readPosition(position);
  }

  /** The number of rows of one pass over the data. */
  get rowsPerEpoch(): number {
    return this.numRows;
  }

  /** The next batch of this rank; prefetches the one after it. */
  async next(): Promise<Batch> {
    const { batchSize } = this.options;
    const batch = this.ahead?.rows === this.rows ? this.ahead.batch : this.readAt(this.rows);
    const result = await batch;
    this.rows += batchSize;
    const following = this.readAt(this.rows);
    // A failure is thrown by the call that would return the batch.
    following.catch(() => {});
    this.ahead = { rows: this.rows, batch: following };
    return result;
  }

  /** The position of the stream, for a checkpoint: just after the last batch that `next` returned. */
  position(): Json {
    const { seed, shuffle, sequenceLength } = this.options;
    return { rows: this.rows, seed, shuffle, sequenceLength, data: this.source.fingerprint };
  }

  /** The row of the data at a position of the stream. */
  rowAt(place: number): number {
    const epoch = Math.floor(place / this.numRows);
    const index = place % this.numRows;
    return this.options.shuffle ? permute(index, this.numRows, this.options.seed, epoch) : index;
  }

  private async readAt(rows: number): Promise<Batch> {
    const { sequenceLength, batchSize, rank, numRanks } = this.options;
    const own = batchSize / numRanks;
    const first = rows + rank * own;
    const inputs = new Int32Array(own * sequenceLength);
    const targets = new Int32Array(own * sequenceLength);
    await Promise.all(
      Array.from({ length: own }, async (_, r) => {
        const tokens = await this.source.read(this.rowAt(first + r) * sequenceLength, sequenceLength + 1);
        inputs.set(tokens.subarray(0, sequenceLength), r * sequenceLength);
        targets.set(tokens.subarray(1), r * sequenceLength);
      }),
    );
    return { inputs, targets, shape: [own, sequenceLength], epoch: Math.floor(rows / this.numRows) };
  }

  private readPosition(value: Json): number {
    const entries = typeof value === "object" && value !== null ? Object.entries(value) : [];
    const fields: { readonly [key: string]: Json | undefined } = Object.fromEntries(entries);
    const { rows } = fields;
    if (typeof rows !== "number" || !Number.isSafeInteger(rows) || rows < 0) {
      throw new ValueError(
        `[openBatches] ${JSON.stringify(value).slice(0, 100)} is not a position in a stream of batches`,
      );
    }
    const { seed, shuffle, sequenceLength } = this.options;
    const now = { seed, shuffle, sequenceLength, data: this.source.fingerprint };
    const changed = Object.entries(now).filter(([key, setting]) => fields[key] !== setting);
    if (changed.length > 0) {
      const list = changed.map(
        ([key, setting]) => `\n  ${key} was ${JSON.stringify(fields[key])} and is ${JSON.stringify(setting)}`,
      );
      throw new ValueError(
        `[openBatches] the position belongs to another stream:${list.join("")}\nuse the settings it was saved with, or start without a position`,
      );
    }
    return rows;
  }
}

/** Opens an endless stream of batches. */
export function openBatches(source: TokenSource, options: BatchesOptions): Batches {
  need("object", source, "source", "openBatches");
  return new Batches(source, batchesOptions.read(options, "openBatches"));
}

/**
 * Where a pseudo-random permutation of `size` elements maps `index`, without storing the permutation: a Feistel network
 * over the next power of four, applied again to results outside of the range.
 */
export function permute(index: number, size: number, seed: number, epoch: number): number {
  let halfBits = 1;
  while (4 ** halfBits < size) halfBits++;
  const mask = 2 ** halfBits - 1;
  const keys = Array.from({ length: 6 }, (_, round) =>
    mix(mix(mix(mix(seed >>> 0) ^ Math.floor(seed / 2 ** 32)) ^ epoch) + Math.imul(round + 1, 0x9e3779b9)),
  );
  let value = index;
  do {
    let left = Math.floor(value / (mask + 1));
    let right = value % (mask + 1);
    for (let round = 0; round < keys.length; round++) {
      const next = (left ^ mix(right ^ at(keys, round))) & mask;
      left = right;
      right = next;
    }
    value = (left >>> 0) * (mask + 1) + (right >>> 0);
  } while (value >= size);
  return value;
}

/** Mixes the bits of a number to a pseudo-random 32-bit one. */
function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}
