/**
 * Refuses pages of Parquet files that state more values than the file can hold, before a reader makes arrays of that
 * many: a run of equal values takes a few bytes, whatever number of values it states.
 */
import type { ColumnMetaData, Compressors, SchemaTree } from "hyparquet";
import { checkDeltaStrings } from "./parquetDelta.js";
import { type Fields, ThriftReader } from "./thriftReader.js";

/** Larger pages are not read. */
const maxPageBytes = 2 ** 28;

/** How many values writers may add to the last packed run of a page to fill it. */
const maxPadding = 512;

const pageKinds = { data: 0, dictionary: 2, dataV2: 3 };
const encodings = { plain: 0, plainDictionary: 2, runs: 3, deltaStrings: 7, dictionary: 8 };

/** How many values the columns of a row group may still have. */
export interface ValueBudget {
  readonly most: number;
  used: number;
}

/** Values that a row group of a file may have: one a bit, or some millions where all of them may be equal. */
export function valueBudget(byteLength: number): ValueBudget {
  return { most: Math.max(2 ** 22, 8 * byteLength), used: 0 };
}

/** A column of a row group. */
export interface PageColumn {
  readonly meta: ColumnMetaData;
  /** The elements of the schema that lead to it from the root, which is the first. */
  readonly path: readonly SchemaTree[];
}

/** Checks the pages of a column. @param chunk its bytes */
export function checkPages(
  chunk: Uint8Array,
  { meta, path }: PageColumn,
  compressors: Compressors,
  budget: ValueBudget,
): void {
  const { codec, type } = meta;
  const repetitions = path.map(({ element }) => element.repetition_type);
  const levels = {
    repetition: widthOf(repetitions.filter((one) => one === "REPEATED").length),
    definition: repetitions.slice(1).filter((one) => one !== "REQUIRED").length,
  };
  const expand = (bytes: Uint8Array, size: number): Uint8Array => {
    if (size < 0 || size > maxPageBytes)
      throw new Error(`a page of ${size} bytes is over the limit ${maxPageBytes}`);
    return codec === "UNCOMPRESSED" ? bytes : (compressors[codec]?.(bytes, size) ?? bytes);
  };
  const take = (count: number): number => {
    budget.used += count;
    if (count < 0 || budget.used > budget.most)
      throw new Error(`its pages state ${budget.used} values, but the file can hold ${budget.most}`);
    return count;
  };
  const reader = new ThriftReader(chunk);
  while (reader.offset < chunk.length - 1) {
    const header = reader.struct();
    const bytes = reader.bytes(header.number(3));
    const kind = header.number(1);
    if (kind === pageKinds.dictionary) {
      const count = take(header.struct(7).number(1));
      checkPlain(expand(bytes, header.number(2)).length, count);
    } else if (kind === pageKinds.data) {
      const fields = header.struct(5);
      take(fields.number(1));
      checkData(expand(bytes, header.number(2)), fields, levels, type === "BOOLEAN");
    } else if (kind === pageKinds.dataV2) {
      const fields = header.struct(8);
      take(fields.number(1));
      checkDataV2(bytes, header.number(2), fields, levels, expand);
    } else throw new Error(`a page is of the unknown kind ${kind}`);
  }
}

/** The width in bits of repetition levels, and the largest definition level. */
interface Levels {
  readonly repetition: number;
  readonly definition: number;
}

/** Bits that levels up to one take. */
const widthOf = (level: number) => 32 - Math.clz32(level);

function checkData(page: Uint8Array, fields: Fields, levels: Levels, isBoolean: boolean): void {
  const count = fields.number(1);
  const reader = new ThriftReader(page);
  if (levels.repetition > 0) reader.counted(() => checkRuns(reader, levels.repetition, count));
  let numValues = count;
  if (levels.definition > 0)
    reader.counted(() => {
      numValues = checkRuns(reader, widthOf(levels.definition), count, levels.definition);
    });
  const encoding = fields.number(2);
  if (encoding === encodings.plain) checkPlain(page.length - reader.offset, numValues);
  if (encoding === encodings.deltaStrings) checkDeltaStrings(reader, numValues, maxPageBytes);
  if (
    encoding === encodings.plainDictionary ||
    encoding === encodings.dictionary ||
    encoding === encodings.runs
  ) {
    if (isBoolean) reader.counted(() => checkRuns(reader, 1, numValues));
    else {
      const width = reader.byte();
      // Without bits, all values are the first one of the dictionary.
      if (width > 0) checkRuns(reader, width, numValues);
    }
  }
}

function checkDataV2(
  bytes: Uint8Array,
  size: number,
  fields: Fields,
  levels: Levels,
  expand: (bytes: Uint8Array, size: number) => Uint8Array,
): void {
  const [count, numNulls, encoding] = [fields.number(1), fields.number(2), fields.number(4)];
  const [definitionBytes, repetitionBytes] = [fields.number(5), fields.number(6)];
  if (numNulls < 0 || numNulls > count) throw new Error(`${numNulls} of ${count} values of a page are null`);
  const reader = new ThriftReader(bytes);
  if (levels.repetition > 0) checkRuns(reader, levels.repetition, count);
  reader.offset = repetitionBytes;
  if (levels.definition > 0) checkRuns(reader, widthOf(levels.definition), count);
  // The sizes of the levels are those without compression, which pages of this version do not use for levels.
  const stored = bytes.subarray(levels.definition > 0 ? repetitionBytes + definitionBytes : repetitionBytes);
  const page = fields.get(7) === false ? stored : expand(stored, size - definitionBytes - repetitionBytes);
  const values = new ThriftReader(page);
  const numValues = count - numNulls;
  if (encoding === encodings.plain) checkPlain(page.length, numValues);
  if (encoding === encodings.deltaStrings) checkDeltaStrings(values, numValues, maxPageBytes);
  if (encoding === encodings.runs) values.counted(() => checkRuns(values, 1, numValues));
  if (encoding === encodings.plainDictionary || encoding === encodings.dictionary)
    checkRuns(values, values.byte(), numValues);
}

/** Values that are stored one after the other take a bit at least. */
function checkPlain(numBytes: number, count: number): void {
  if (count > 8 * numBytes) throw new Error(`a page of ${numBytes} bytes states ${count} values`);
}

/** Checks runs of equal and of packed values; returns how many of them are `wanted`. */
function checkRuns(reader: ThriftReader, width: number, count: number, wanted = -1): number {
  let [numSeen, numWanted] = [0, 0];
  while (numSeen < count) {
    const header = reader.varint();
    const isPacked = (header & 1) === 1;
    const length = isPacked ? (header >>> 1) * 8 : header >>> 1;
    const left = count - numSeen;
    if (length > left + (isPacked ? maxPadding : 0))
      throw new Error(`a run states ${length} values where ${left} are left`);
    const used = Math.min(length, left);
    if (isPacked) {
      const bytes = reader.bytes(Math.max(1, (length * width) / 8));
      if (wanted >= 0) for (let i = 0; i < used; i++) if (packedAt(bytes, i, width) === wanted) numWanted++;
    } else {
      const bytes = reader.bytes((width + 7) >> 3);
      if (bytes.reduceRight((value, byte) => (value << 8) | byte, 0) === wanted) numWanted += used;
    }
    numSeen += used;
  }
  return numWanted;
}

/** The value of some bits. */
function packedAt(bytes: Uint8Array, index: number, width: number): number {
  const bit = index * width;
  const at = bit >> 3;
  const word = (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8) | ((bytes[at + 2] ?? 0) << 16);
  return (word >> (bit & 7)) & ((1 << width) - 1);
}
