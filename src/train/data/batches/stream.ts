/** Batches of a source that is read while it is trained on, in an order that a buffer shuffles. */
import { integerFrom, need } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../../ir/schema.js";
import { at } from "../../../ir/shape.js";
import type { Json } from "../../files/checkpoints/checkpointManifest.js";
import { isObject } from "../../files/disk/json.js";
import type { ChatTemplate } from "../chat/chatTemplate.js";
import { type Example, type ExampleFields, exampleBatches } from "../sources/examples.js";
import type { DataSource, OnDataError } from "../sources/records.js";
import type { Tokenizer } from "../tokenizers/tokenizer.js";
import { encodeExample, joinDocuments, type MarkedTokens } from "../tokens/encodeExample.js";
import { mix } from "../tokens/permute.js";
import { type Batch, batchOf } from "./batches.js";
import { documentsOf, type Row } from "./rows.js";

const streamOptions = schema({
  /** Turns texts into tokens. */
  tokenizer: required<Tokenizer>("object"),
  /** The template of chats. */
  template: optional<ChatTemplate>("function"),
  /** The number of tokens per row. */
  sequenceLength: required(integerFrom(1)),
  /** The number of rows of a batch over all ranks. */
  batchSize: required(integerFrom(1)),
  /** The number of examples of which the next one is drawn; 1 keeps the order of the source, 1000 by default. */
  shuffleBuffer: optional(integerFrom(1), 1000),
  /** Seed of the order. */
  seed: optional("integer", 0),
  /** The names of the fields, as in `readExamples`. */
  fields: optional<ExampleFields>("object", {}),
  /** What a record that cannot be read does; `stop` by default. */
  onError: optional<OnDataError>("any", "stop"),
  /** Which part of each batch this process gets; all of it by default. */
  rank: optional(integerFrom(0), 0),
  /** The number of processes that get parts of each batch; 1 by default. */
  numRanks: optional(integerFrom(1), 1),
  /** Where to continue, as returned by `position`. */
  position: optional<Json>("any", null),
});

/** Options of {@link streamBatches}. */
export interface StreamOptions extends OptionsOf<typeof streamOptions> {}

/** An endless stream of batches. */
export interface BatchStream {
  /** The next batch of this rank. */
  next(): Promise<Batch>;
  /** The position after the last batch, for a checkpoint: any number of ranks can continue from there. */
  position(): Json;
}

/**
 * Batches of a source that is not read whole before: examples are drawn from a buffer, turned into tokens and put one
 * after the other into rows, which keep documents apart. The order depends on the seed and the source alone. Each process
 * reads all of the source and gets its part of every batch; a source must be readable again for a second pass, and for
 * continuing from a position.
 *
 * @example
 * ```ts
 * const texts = () => ["one", "two", "three"].map((text) => ({ text }));
 * const options = { tokenizer: train.byteTokenizer(), sequenceLength: 4, batchSize: 2 };
 * (await train.streamBatches(texts, options).next()).shape; // [2, 4]
 * ```
 */
export function streamBatches(source: DataSource, options: StreamOptions): BatchStream {
  const read = streamOptions.read(options, "streamBatches");
  const { batchSize, numRanks, rank } = read;
  if (batchSize % numRanks !== 0 || rank >= numRanks) {
    throw new ValueError(
      `[streamBatches] ${batchSize} rows do not split over ${numRanks} ranks for rank ${rank}: use a multiple of ${numRanks}, and a rank below it`,
    );
  }
  return new ShuffledStream(source, read);
}

/** A part of an example in the rows: which, from which of its tokens on. */
interface Piece extends MarkedTokens {
  readonly ordinal: number;
  readonly from: number;
}

class ShuffledStream implements BatchStream {
  /** Tokens that are not in a row yet. */
  private pieces: Piece[] = [];
  private slots: { readonly ordinal: number; readonly example: Example }[] = [];
  private examples: AsyncIterator<Example> | undefined;
  private numRead = 0;
  private hasEnded = false;
  private draws = 0;
  private epoch = 0;
  private restored: Promise<void> | undefined;

  constructor(
    private readonly source: DataSource,
    private readonly options: Values<typeof streamOptions.fields>,
  ) {}

  async next(): Promise<Batch> {
    const { batchSize, numRanks, rank, sequenceLength, position } = this.options;
    this.restored ??= position === null ? Promise.resolve() : this.restore(position);
    await this.restored;
    const { epoch } = this;
    const own = batchSize / numRanks;
    const rows: Row[] = [];
    for (let i = 0; i < batchSize; i++) {
      const row = await this.nextRow();
      if (Math.floor(i / own) === rank) rows.push(row);
    }
    return { ...batchOf(rows, sequenceLength), shape: [own, sequenceLength], epoch };
  }

  position(): Json {
    const { numRead, hasEnded, draws, epoch } = this;
    return {
      ...{ numRead, hasEnded, draws, epoch },
      slots: this.slots.map(({ ordinal }) => ordinal),
      pieces: this.pieces.map(({ ordinal, from }) => [ordinal, from]),
      ...this.settings(),
    };
  }

  private settings() {
    const { seed, shuffleBuffer, sequenceLength } = this.options;
    return { seed, shuffleBuffer, sequenceLength };
  }

  private async nextRow(): Promise<Row> {
    const { sequenceLength } = this.options;
    const numTokens = () => this.pieces.reduce((sum, { tokens }) => sum + tokens.length, 0);
    while (numTokens() < sequenceLength + 1) this.pieces.push(await this.draw());
    const { tokens, marks } = joinDocuments(this.pieces);
    this.drop(sequenceLength);
    return {
      tokens: tokens.slice(0, sequenceLength + 1),
      documents: documentsOf(marks.subarray(0, sequenceLength + 1)),
    };
  }

  /** Removes tokens from the front. */
  private drop(count: number): void {
    let left = count;
    this.pieces = this.pieces.flatMap((piece) => {
      const taken = Math.min(left, piece.tokens.length);
      left -= taken;
      return taken === piece.tokens.length ? [] : [cut(piece, taken)];
    });
  }

  /** The tokens of the next example: one of the buffer, whose place a new one takes. */
  private async draw(): Promise<Piece> {
    await this.fill();
    const { seed } = this.options;
    const slot = mix(mix(mix(seed) ^ this.epoch) + this.draws++) % this.slots.length;
    const { ordinal, example } = at(this.slots, slot);
    const last = this.slots.pop();
    if (last && slot < this.slots.length) this.slots[slot] = last;
    return this.encode(ordinal, example);
  }

  /** Fills the buffer, from the start of the source if everything was drawn. */
  private async fill(): Promise<void> {
    for (let passes = 0; this.slots.length === 0 && this.hasEnded; passes++) {
      if (this.numRead === 0 || passes > 0) {
        throw new ValueError(
          "[streamBatches] the source has no (more) examples: use one that can be read again",
        );
      }
      this.examples = undefined;
      [this.numRead, this.hasEnded, this.draws] = [0, false, 0];
      this.epoch++;
      await this.readAhead();
    }
    await this.readAhead();
    if (this.slots.length === 0) await this.fill();
  }

  private async readAhead(): Promise<void> {
    this.examples ??= this.open();
    while (this.slots.length < this.options.shuffleBuffer && !this.hasEnded) {
      const { done, value } = await this.examples.next();
      if (done) this.hasEnded = true;
      else this.slots.push({ ordinal: this.numRead++, example: value });
    }
  }

  private async *open(): AsyncGenerator<Example, void> {
    const { fields, onError } = this.options;
    for await (const batch of exampleBatches(this.source, { fields, onError })) yield* batch;
  }

  private encode(ordinal: number, example: Example): Piece {
    const { tokenizer, template } = this.options;
    return { ...joinDocuments(encodeExample(example, { tokenizer, template })), ordinal, from: 0 };
  }

  /** Reads the examples that a position has in its buffer and its rows again, and goes to where it has read to. */
  private async restore(position: Json): Promise<void> {
    const saved = readPosition(position, this.settings());
    const needed = new Set([...saved.slots, ...saved.pieces.map(([ordinal]) => ordinal)]);
    const found = new Map<number, Example>();
    let ordinal = 0;
    for await (const example of this.open()) {
      if (needed.has(ordinal)) found.set(ordinal, example);
      ordinal++;
      if (found.size === needed.size) break;
    }
    const exampleOf = (wanted: number): Example => {
      const example = found.get(wanted);
      if (example) return example;
      throw new ValueError(
        `[streamBatches] the source has no example ${wanted + 1} any more, where the position is`,
      );
    };
    this.slots = saved.slots.map((one) => ({ ordinal: one, example: exampleOf(one) }));
    this.pieces = saved.pieces.map(([one, from]) => cut(this.encode(one, exampleOf(one)), from));
    [this.numRead, this.hasEnded, this.draws, this.epoch] = [
      saved.numRead,
      saved.hasEnded,
      saved.draws,
      saved.epoch,
    ];
    this.examples = this.open();
    for (let i = 0; i < saved.numRead && !saved.hasEnded; i++) await this.examples.next();
  }
}

const cut = (piece: Piece, count: number): Piece => ({
  ordinal: piece.ordinal,
  from: piece.from + count,
  tokens: piece.tokens.subarray(count),
  marks: piece.marks.subarray(count),
});

interface SavedStream {
  readonly numRead: number;
  readonly hasEnded: boolean;
  readonly draws: number;
  readonly epoch: number;
  readonly slots: readonly number[];
  readonly pieces: readonly (readonly [ordinal: number, from: number])[];
}

function readPosition(value: Json, settings: Readonly<Record<string, Json>>): SavedStream {
  const fields: Readonly<Record<string, unknown>> = isObject(value) ? value : {};
  const isNumbers = (list: unknown): list is number[] =>
    Array.isArray(list) && list.every(Number.isSafeInteger);
  const { slots, pieces, hasEnded, ...rest } = fields;
  const isPieces = Array.isArray(pieces) && pieces.every((piece) => isNumbers(piece) && piece.length === 2);
  if (!isNumbers(slots) || !isPieces || typeof hasEnded !== "boolean") {
    throw new ValueError(
      `[streamBatches] ${JSON.stringify(value).slice(0, 100)} is not a position in a stream`,
    );
  }
  for (const name of ["numRead", "draws", "epoch"])
    need("integer", rest[name], `${name} of the position`, "streamBatches");
  const changed = Object.entries(settings).filter(([name, setting]) => rest[name] !== setting);
  if (changed.length > 0) {
    const list = changed.map(
      ([name, setting]) => `${name} was ${JSON.stringify(rest[name])} and is ${JSON.stringify(setting)}`,
    );
    throw new ValueError(`[streamBatches] the position belongs to another stream: ${list.join(", ")}`);
  }
  // Every field was checked.
  return value as unknown as SavedStream;
}
