/** Rows to train on: cut from a stream of tokens, filled with whole documents, or pairs of answers. */
import { need } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";
import { type TokenSource, tokenMarks } from "../tokens/tokens.js";

/** A row of tokens; fields of documents are present only if they are kept apart. */
export interface Row {
  /** One more than the row is long: the last one is only predicted. */
  readonly tokens: Int32Array;
  /** The documents in the row. */
  readonly documents?: RowDocuments;
  /** The log-probability that a reference model gives the row's document. */
  readonly reference?: number;
}

/** The documents of a row, for each token that is read. */
export interface RowDocuments {
  /** The number of the token's document in the row, from 1 on; 0 for padding. */
  readonly segmentIds: Int32Array;
  /** The position of the token in its document, or in the part of it that the row has. */
  readonly positions: Int32Array;
  /** 1 where the token that follows is in the same document and counts in the loss, else 0. */
  readonly lossMask: Uint8Array;
}

/** Rows with random access. */
export interface RowSource {
  /** The tokens that a row reads. */
  readonly sequenceLength: number;
  readonly numRows: number;
  /** Identifies the rows, so that a position is not used with others. */
  readonly fingerprint: string;
  /** The number of rows that belong together: they stay next to each other in every order; 1 by default. */
  readonly groupSize?: number;
  read(row: number): Promise<Row>;
}

/** @internal The documents of tokens by their marks; `length + 1` of both. */
export function documentsOf(marks: Uint8Array, numTokens = marks.length): RowDocuments {
  const length = marks.length - 1;
  const segmentIds = new Int32Array(length);
  const positions = new Int32Array(length);
  const lossMask = new Uint8Array(length);
  const isStart = (i: number) => ((marks[i] ?? 0) & tokenMarks.start) !== 0;
  let [segment, position] = [1, 0];
  for (let i = 0; i < Math.min(length, numTokens); i++) {
    // The first token begins a segment whether or not it begins a document.
    if (i > 0 && isStart(i)) [segment, position] = [segment + 1, 0];
    segmentIds[i] = segment;
    positions[i] = position++;
    const isScored = ((marks[i + 1] ?? 0) & tokenMarks.unscored) === 0;
    if (i + 1 < numTokens && !isStart(i + 1) && isScored) lossMask[i] = 1;
  }
  return { segmentIds, positions, lossMask };
}

/**
 * Rows that are cut from the stream of a source, so that they begin and end anywhere in a document.
 *
 * @param separate whether the documents of a row are kept apart
 */
export function cutRows(source: TokenSource, sequenceLength: number, separate: boolean): RowSource {
  const readMarks = separate ? source.readMarks : undefined;
  return {
    sequenceLength,
    // The target of a row's last token is the first token of the next row.
    numRows: Math.floor((source.numTokens - 1) / sequenceLength),
    fingerprint: separate ? `${source.fingerprint} separate` : source.fingerprint,
    read: async (row) => {
      const range = [row * sequenceLength, sequenceLength + 1] as const;
      const tokens = await source.read(...range);
      if (!separate) return { tokens };
      const marks = readMarks ? await readMarks.call(source, ...range) : new Uint8Array(sequenceLength + 1);
      return { tokens, documents: documentsOf(marks) };
    },
  };
}

/** Marks that are read at once while documents are looked for. */
const marksAtOnce = 2 ** 20;

/** The first tokens of the documents of a source, and the number of its tokens. */
export async function documentStarts(source: TokenSource): Promise<number[]> {
  const starts: number[] = [];
  for (let from = 0; from < source.numTokens; from += marksAtOnce) {
    const length = Math.min(marksAtOnce, source.numTokens - from);
    const marks = (await source.readMarks?.(from, length)) ?? new Uint8Array(length);
    for (let i = 0; i < length; i++) {
      if (((marks[i] ?? 0) & tokenMarks.start) !== 0 || from + i === 0) starts.push(from + i);
    }
  }
  return [...starts, source.numTokens];
}

/** Rows that are being filled at the same time. */
const numOpenRows = 128;

/** Which documents share a row: each goes to the fullest open row that has room for it. */
export function packLengths(lengths: readonly number[], room: number): number[][] {
  const rows: number[][] = [];
  const open: { readonly row: number[]; left: number }[] = [];
  lengths.forEach((length, document) => {
    const size = Math.min(length, room);
    let best: (typeof open)[number] | undefined;
    for (const one of open) if (one.left >= size && (!best || one.left < best.left)) best = one;
    if (!best) {
      if (open.length === numOpenRows) open.splice(indexOfFullest(open), 1);
      best = { row: [], left: room };
      rows.push(best.row);
      open.push(best);
    }
    best.row.push(document);
    best.left -= size;
  });
  return rows;
}

function indexOfFullest(open: readonly { readonly left: number }[]): number {
  return open.reduce(
    (best, { left }, i) => (left < (open[best]?.left ?? Number.POSITIVE_INFINITY) ? i : best),
    0,
  );
}

/**
 * Rows that are filled with whole documents, padded at their end. A document that is longer than a row is cut off.
 *
 * @example
 * ```ts
 * const marks = Uint8Array.of(1, 0, 0, 1, 0);
 * const source = train.tokensInMemory(Int32Array.of(5, 6, 7, 8, 9), 10, marks);
 * const rows = await train.packDocuments(source, 6);
 * rows.numRows; // 1
 * ```
 */
export async function packDocuments(source: TokenSource, sequenceLength: number): Promise<RowSource> {
  need("object", source, "source", "packDocuments");
  need("integer", sequenceLength, "sequenceLength", "packDocuments");
  const starts = await documentStarts(source);
  const lengths = starts.slice(1).map((end, i) => end - (starts[i] ?? 0));
  const rows = packLengths(lengths, sequenceLength + 1);
  return {
    sequenceLength,
    numRows: rows.length,
    fingerprint: `${source.fingerprint} packed`,
    read: (row) => readDocuments(source, starts, rows[row] ?? [], sequenceLength),
  };
}

/** Pairs of rows with one document each, a chosen answer and a rejected one, which follow each other in the source. */
export async function pairRows(source: TokenSource, sequenceLength: number): Promise<RowSource> {
  const starts = await documentStarts(source);
  const numRows = starts.length - 1;
  if (numRows % 2 !== 0) {
    throw new ValueError(
      `[data] there are ${numRows} documents, which are not pairs of chosen and rejected ones`,
    );
  }
  return {
    sequenceLength,
    numRows,
    fingerprint: `${source.fingerprint} pairs`,
    groupSize: 2,
    read: (row) => readDocuments(source, starts, [row], sequenceLength),
  };
}

/** Pairs with the log-probabilities that a reference model gives their rows, which are known later. */
export interface ReferencedRows extends RowSource {
  readonly reference: Float32Array;
}

/** Rows with room for the log-probabilities of a reference model. */
export function withReference(rows: RowSource): ReferencedRows {
  const reference = new Float32Array(rows.numRows);
  const read = async (row: number) => ({ ...(await rows.read(row)), reference: reference[row] ?? 0 });
  return { ...rows, reference, read };
}

/** A row with documents of a source, padded. */
async function readDocuments(
  source: TokenSource,
  starts: readonly number[],
  documents: readonly number[],
  sequenceLength: number,
): Promise<Row> {
  const tokens = new Int32Array(sequenceLength + 1);
  const marks = new Uint8Array(sequenceLength + 1);
  let end = 0;
  for (const document of documents) {
    const [start = 0, next = 0] = [starts[document], starts[document + 1]];
    const length = Math.min(next - start, tokens.length - end);
    tokens.set(await source.read(start, length), end);
    if (source.readMarks) marks.set(await source.readMarks(start, length), end);
    // The first document of a source begins with its first token, marked or not.
    marks[end] = (marks[end] ?? 0) | tokenMarks.start;
    end += length;
  }
  return { tokens, documents: documentsOf(marks, end) };
}
