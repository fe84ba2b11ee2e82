import { need } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { ValueError } from "../../../ir/errors.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../../ir/schema.js";
import { at } from "../../../ir/shape.js";
import type { Json } from "../../files/checkpoints/checkpointManifest.js";
import { permute } from "../tokens/permute.js";
import type { TokenSource } from "../tokens/tokens.js";
import { MixedOrder } from "./mixedOrder.js";
import { cutRows, type Row, type RowDocuments, type RowSource } from "./rows.js";

/** Larger batches would not fit in memory. */
const maxElements = 2 ** 31;

const batchesOptions = schema({
  /** The number of tokens per row. */
  sequenceLength: required("number"),
  /** Whether the documents of a row are kept apart, if the source says where they begin; false by default. */
  separate: false,
  /** The shares of several sources in the rows; equal by default. */
  weights: optional<readonly number[]>("list"),
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
  /** The documents of the rows, if they are kept apart; each of them row-major like `inputs`. */
  readonly documents?: RowDocuments;
  /** The log-probabilities of a reference model, one for each row, if there is one. */
  readonly reference?: Float32Array;
  /** The number of whole passes over the (first) source before this batch. */
  readonly epoch: number;
}

/**
 * An endless stream of batches. Row i of the stream depends on seed and i alone: not on the number of ranks, the batch
 * size or where the stream was resumed.
 */
export class Batches {
  private readonly sources: readonly RowSource[];
  private readonly options: Omit<Values<typeof batchesOptions.fields>, "position" | "weights">;
  private readonly order: MixedOrder;
  /** The number of rows that belong together. */
  private readonly groupSize: number;
  /** The number of rows returned so far over all ranks. */
  private rows: number;
  private ahead: { readonly rows: number; readonly batch: Promise<Batch> } | undefined;

  /** @internal */
  constructor(sources: readonly RowSource[], options: Values<typeof batchesOptions.fields>) {
    need("list", sources, "sources", "openBatches");
    for (const source of sources) need("object", source, "source", "openBatches");
    need("object", options, "the options", "openBatches");
    const { position, weights, ...rest } = options;
    checkSizes(rest);
    this.sources = sources;
    this.options = rest;
    this.groupSize = checkGroups(sources, rest);
    for (const { numRows, sequenceLength } of sources) {
      if (sequenceLength !== rest.sequenceLength) {
        throw new ValueError(
          `[openBatches] sequenceLength is ${rest.sequenceLength}, but the rows have ${sequenceLength} tokens`,
        );
      }
      if (numRows < 1) {
        throw new ValueError(
          `[openBatches] there are no rows of ${sequenceLength} tokens: use shorter rows or more text`,
        );
      }
    }
    this.order = new MixedOrder(checkWeights(weights, sources.length));
    this.rows = position === null ? 0 : this.readPosition(position);
  }

  /** The number of rows of one pass over the data. */
  get rowsPerEpoch(): number {
    return this.sources.reduce((sum, { numRows }) => sum + numRows, 0);
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
    return { rows: this.rows, ...this.settings() };
  }

  /** What a position depends on. */
  private settings() {
    const { seed, shuffle, sequenceLength } = this.options;
    const prints = this.sources.map(({ fingerprint }) => fingerprint);
    const data = this.order.isMixed
      ? this.order.shares.map((w, i) => `${w} of ${prints[i]}`).join(", ")
      : prints[0];
    return { seed, shuffle, sequenceLength, data: data ?? "" };
  }

  /** The row at a place of the stream: which of its source, in the order of the epoch. */
  private async rowAt(place: number): Promise<Row> {
    const { groupSize } = this;
    const { source, ordinal } = this.order.at(Math.floor(place / groupSize));
    const rows = at(this.sources, source);
    const numGroups = rows.numRows / groupSize;
    const [epoch, index] = [Math.floor(ordinal / numGroups), ordinal % numGroups];
    const group = this.options.shuffle ? permute(index, numGroups, this.options.seed, epoch) : index;
    return rows.read(group * groupSize + (place % groupSize));
  }

  private async readAt(rows: number): Promise<Batch> {
    const { sequenceLength, batchSize, rank, numRanks } = this.options;
    const own = batchSize / numRanks;
    const first = rows + rank * own;
    const numRows = at(this.sources, 0).numRows / this.groupSize;
    const epoch = Math.floor(this.order.countBefore(Math.floor(rows / this.groupSize), 0) / numRows);
    // Places are looked up in order, because an order of several sources is counted from place to place.
    const read = await Promise.all(Array.from({ length: own }, (_, r) => this.rowAt(first + r)));
    return { ...batchOf(read, sequenceLength), shape: [own, sequenceLength], epoch };
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
    const changed = Object.entries(this.settings()).filter(([key, setting]) => fields[key] !== setting);
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

/** @internal Rows side by side. */
export function batchOf(rows: readonly Row[], length: number): Omit<Batch, "shape" | "epoch"> {
  const numbers = (of: (row: Row) => ArrayLike<number>) => {
    const all = new Int32Array(rows.length * length);
    rows.forEach((row, r) => {
      all.set(of(row), r * length);
    });
    return all;
  };
  const [first] = rows;
  const documents = (row: Row) => row.documents ?? { segmentIds: [], positions: [], lossMask: [] };
  return {
    inputs: numbers(({ tokens }) => tokens.subarray(0, length)),
    targets: numbers(({ tokens }) => tokens.subarray(1)),
    ...(first?.documents && {
      documents: {
        segmentIds: numbers((row) => documents(row).segmentIds),
        positions: numbers((row) => documents(row).positions),
        lossMask: Uint8Array.from(numbers((row) => documents(row).lossMask)),
      },
    }),
    ...(first?.reference !== undefined && {
      reference: Float32Array.from(rows, ({ reference }) => reference ?? 0),
    }),
  };
}

function checkSizes(options: Omit<Values<typeof batchesOptions.fields>, "position" | "weights">): void {
  const { seed, rank, numRanks, sequenceLength, batchSize } = options;
  const numbers = { sequenceLength, batchSize, numRanks };
  const wrong = Object.entries(numbers).filter(([, n]) => !(Number.isInteger(n) && n >= 1));
  if (
    wrong.length > 0 ||
    !(Number.isInteger(rank) && rank >= 0 && rank < numRanks) ||
    !Number.isSafeInteger(seed)
  ) {
    throw new ValueError(
      `[openBatches] sizes must be integers of at least 1 and the rank one of numRanks, got ${Object.entries({
        ...numbers,
        rank,
        seed,
      })
        .map(([name, n]) => `${name}: ${describe(n)}`)
        .join(", ")}`,
    );
  }
  if (batchSize % numRanks !== 0) {
    throw new ValueError(
      `[openBatches] a batch of ${batchSize} rows does not split over ${numRanks} ranks (${batchSize} / ${numRanks} = ${batchSize / numRanks}): use a multiple of ${numRanks}`,
    );
  }
  const numElements = (batchSize / numRanks) * sequenceLength;
  if (numElements > maxElements) {
    throw new ValueError(
      `[openBatches] a batch of ${batchSize} x ${sequenceLength} tokens over ${numRanks} ranks is ${numElements} on each, more than ${maxElements}: use smaller batches`,
    );
  }
}

/** The number of rows that belong together, which no rank may part. */
function checkGroups(
  sources: readonly RowSource[],
  { batchSize, numRanks }: { readonly batchSize: number; readonly numRanks: number },
): number {
  const sizes = new Set(sources.map(({ groupSize = 1 }) => groupSize));
  const [size = 1] = sizes;
  if (sizes.size > 1) throw new ValueError("[openBatches] pairs of rows cannot be mixed with others");
  if ((batchSize / numRanks) % size === 0) return size;
  throw new ValueError(
    `[openBatches] a batch of ${batchSize} rows over ${numRanks} ranks parts groups of ${size}: use a multiple of ${size * numRanks}`,
  );
}

function checkWeights(weights: readonly number[] | undefined, count: number): number[] {
  const given = weights ?? Array.from({ length: count }, () => 1);
  if (given.length !== count || !given.every((w) => Number.isFinite(w) && w > 0)) {
    throw new ValueError(
      `[openBatches] weights must be ${count} positive numbers, one for each source, got ${describe(given)}`,
    );
  }
  const total = given.reduce((sum, w) => sum + w, 0);
  return given.map((w) => w / total);
}

/**
 * Opens an endless stream of batches.
 *
 * @param sources tokens, from which rows are cut, or rows; an array of several is mixed
 *
 * @example
 * ```ts
 * const tokens = train.tokensInMemory(Int32Array.of(1, 2, 3, 4, 5), 10);
 * const batches = train.openBatches(tokens, { sequenceLength: 2, batchSize: 2, shuffle: false });
 * const { inputs, targets } = await batches.next();
 * [Array.from(inputs), Array.from(targets)]; // [[1, 2, 3, 4], [2, 3, 4, 5]]
 * ```
 */
export function openBatches(
  sources: TokenSource | RowSource | readonly (TokenSource | RowSource)[],
  options: BatchesOptions,
): Batches {
  const given = Array.isArray(sources) ? sources : [sources];
  for (const source of given) need("object", source, "source", "openBatches");
  if (given.length === 0) throw new ValueError("[openBatches] there are no sources");
  const read = batchesOptions.read(options, "openBatches");
  const rows = given.map((source: TokenSource | RowSource): RowSource => {
    if (!("numTokens" in source)) return source;
    const cut = cutRows(source, read.sequenceLength, read.separate);
    if (cut.numRows >= 1) return cut;
    throw new ValueError(
      `[openBatches] ${source.numTokens} tokens are too few for a row of ${read.sequenceLength} and the token after it: use shorter rows or more text`,
    );
  });
  return new Batches(rows, read);
}
