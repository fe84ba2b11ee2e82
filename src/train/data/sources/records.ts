/** Records of data: lines of JSON, rows of CSV and Parquet, texts, from files, URLs, blobs and iterables. */
import { findFiles } from "#train/data/sources/localFiles";
import { describe } from "../../../ir/describe.js";
import { reasonOf, ValueError } from "../../../ir/errors.js";
import { parseJson } from "../../../ir/jsonReaders.js";
import { type OptionsOf, optional, schema } from "../../../ir/schema.js";
import type { BlobLike, UrlLike } from "../../../platform/hostTypes.js";
import { FileError } from "../../files/disk/fileError.js";
import { isObject } from "../../files/disk/json.js";
import type { DataRecord, Fields } from "./dataRecord.js";
import { decompressed, peek } from "./decompress.js";
import { endingOf, formatNamed } from "./formats.js";
import { CsvRow, decodeUtf8, linesOf, maxLineBytes, type TextLine } from "./lines.js";
import { parquetRows } from "./parquet.js";
import { blobFile, dataError, gather, type SourceFile, urlFile } from "./sourceFile.js";
import { textProblem } from "./textFile.js";

export type { DataRecord, Fields } from "./dataRecord.js";

/**
 * Where records come from: a file, a folder or a pattern such as `data/*.jsonl.gz`; a URL; a file that a user picked;
 * an iterable of records or texts, or a function that returns one, which can be read several times; or an array of
 * these.
 */
export type DataSource =
  | string
  | UrlLike
  | BlobLike
  | AsyncIterable<unknown>
  | (() => AsyncIterable<unknown> | Iterable<unknown>)
  | readonly DataSource[];

/** What happens with records that cannot be read: they end the reading, or are left out; a function is told of them. */
export type OnDataError = "stop" | "skip" | ((error: FileError) => void);

const recordOptions = schema({
  /** What a record that cannot be read does; `stop` by default. */
  onError: optional<OnDataError>("any", "stop"),
  /** The columns of Parquet files to read; all by default. */
  columns: optional<readonly string[]>("strings"),
});

/** Options of {@link readRecords}. */
export interface RecordOptions extends OptionsOf<typeof recordOptions> {}

/**
 * Reads the records of a source in order. Text files are one record each, with the field `text`. Files may be compressed
 * by gzip or zstd.
 *
 * @example
 * ```ts
 * const file = new File(['{"text": "one"}\n{"text": "two"}\n'], "some.jsonl");
 * const texts: unknown[] = [];
 * for await (const { fields } of train.readRecords(file)) texts.push(fields.text);
 * texts; // ["one", "two"]
 * ```
 */
export async function* readRecords(
  source: DataSource,
  options: RecordOptions = {},
): AsyncGenerator<DataRecord, void> {
  for await (const records of recordBatches(source, options)) yield* records;
}

/** @internal {@link readRecords}, some at a time: waiting for each one would take longer than parsing it. */
export async function* recordBatches(
  source: DataSource,
  options: RecordOptions = {},
): AsyncGenerator<readonly DataRecord[], void> {
  const { onError, columns } = recordOptions.read(options, "readRecords");
  const report = reporterOf(onError);
  for (const part of await partsOf(source)) {
    try {
      if ("items" in part) yield* itemRecords(part.items, report);
      else yield* fileRecords(part, report, columns);
    } catch (error) {
      if (!(error instanceof FileError) || error === report.thrown) throw error;
      // What could be read of a damaged file has been read.
      report.tell(error);
    }
  }
}

/** Says what is done about an error: it is thrown, or told. */
interface Reporter {
  tell(error: FileError): void;
  /** The error that ended the reading. */
  thrown?: FileError;
}

function reporterOf(onError: OnDataError): Reporter {
  const reporter: Reporter = {
    tell: (error) => {
      if (typeof onError === "function") return onError(error);
      if (onError === "skip") return;
      reporter.thrown = error;
      throw error;
    },
  };
  return reporter;
}

interface Items {
  readonly items: AsyncIterable<unknown> | Iterable<unknown>;
}

const isUrl = (text: string) => /^https?:\/\//.test(text);

/** The files and iterables of a source, in order. */
async function partsOf(source: DataSource): Promise<(SourceFile | Items)[]> {
  if (Array.isArray(source)) return (await Promise.all(source.map(partsOf))).flat();
  if (typeof source === "string") return isUrl(source) ? [urlFile(source)] : findFiles(source);
  if (source instanceof URL) return [urlFile(source.href)];
  if (source instanceof Blob) return [blobFile(source)];
  if (typeof source === "function") return [{ items: source() }];
  if (typeof source === "object" && source !== null && Symbol.asyncIterator in source) {
    return [{ items: source as AsyncIterable<unknown> }];
  }
  throw new ValueError(
    `[readRecords] a source must be a path, a URL, a Blob, an async iterable, a function or an array of these, got ${describe(source)}`,
  );
}

/** @internal Names and versions of the files of a source, which say whether it has changed. */
export async function filesOf(source: DataSource): Promise<{ name: string; version: string }[]> {
  return (await partsOf(source)).map((part) =>
    "items" in part ? { name: "(iterable)", version: "" } : { name: part.name, version: part.version },
  );
}

async function* itemRecords(items: Items["items"], report: Reporter): AsyncGenerator<DataRecord[], void> {
  const file = "(iterable)";
  let line = 0;
  for await (const item of items) {
    line++;
    if (typeof item === "string") yield [{ file, line, fields: { text: item } }];
    else if (isObject(item)) yield [{ file, line, fields: item }];
    else
      report.tell(dataError(file, `a record must be an object or a string, got ${describe(item)}`, { line }));
  }
}

async function* fileRecords(
  source: SourceFile,
  report: Reporter,
  columns: readonly string[] | undefined,
): AsyncGenerator<DataRecord[], void> {
  const { name: file } = source;
  if (formatNamed(file) !== "parquet") {
    const { head, all } = await peek(source.stream(), 4);
    if (String.fromCharCode(...head.subarray(0, 4)) !== "PAR1") {
      yield* contentRecords(decompressed(head, all, file), file, report);
      return;
    }
    await all.return();
  }
  const opened = await source.open();
  try {
    yield* parquetRows(opened, file, columns);
  } finally {
    await opened.close();
  }
}

async function* contentRecords(
  chunks: AsyncIterable<Uint8Array>,
  file: string,
  report: Reporter,
): AsyncGenerator<DataRecord[], void> {
  const format = formatNamed(file);
  if (format === "csv" || format === "tsv") {
    yield* csvRecords(chunks, file, format === "csv" ? "," : "\t", report);
  } else if (format === "jsonl" && endingOf(file) !== ".json") yield* jsonLines(chunks, file, report);
  else {
    // Texts and JSON documents are whole files.
    const bytes = await gather(chunks);
    if (format === "jsonl" && isArray(bytes)) yield jsonArray(bytes, file, report);
    else if (format === "jsonl" || (format === undefined && isJsonLines(bytes))) {
      yield* jsonLines([bytes], file, report);
    } else yield [textRecord(bytes, file)];
  }
}

function textRecord(bytes: Uint8Array, file: string): DataRecord {
  const problem = textProblem(bytes);
  if (problem) throw new FileError("data", file, problem.offset, problem.rule);
  return { file, line: 1, fields: { text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) } };
}

async function* jsonLines(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  file: string,
  report: Reporter,
): AsyncGenerator<DataRecord[], void> {
  for await (const lines of linesOf(chunks)) {
    const records: DataRecord[] = [];
    for (const { number: line, bytes } of lines) {
      const read = readJson(bytes);
      if ("problem" in read) report.tell(dataError(file, read.problem, { line }));
      else if (read.fields) records.push({ file, line, fields: read.fields });
    }
    yield records;
  }
}

/** The object of a line; nothing for a blank one. */
function readJson(bytes: Uint8Array): { readonly problem: string } | { readonly fields: Fields | undefined } {
  if (bytes.length > maxLineBytes) return { problem: `the line has more than ${maxLineBytes} bytes` };
  const text = decodeUtf8(bytes);
  if (text === undefined) return { problem: "the line is not UTF-8" };
  // A byte order mark may precede the first line.
  const trimmed = text.trim();
  if (trimmed === "") return { fields: undefined };
  try {
    const value: unknown = JSON.parse(trimmed);
    return isObject(value)
      ? { fields: value }
      : { problem: `the line is not a JSON object: ${clip(trimmed)}` };
  } catch (cause) {
    return { problem: `the line is not JSON (${reasonOf(cause)})` };
  }
}

const clip = (text: string) => (text.length <= 40 ? text : `${text.slice(0, 40)}…`);

const firstSign = (bytes: Uint8Array) => bytes.find((byte) => byte > 0x20 && byte < 0x80);
const isArray = (bytes: Uint8Array) => firstSign(bytes) === 0x5b;

/** The objects of a file with a single JSON array. */
function jsonArray(bytes: Uint8Array, file: string, report: Reporter): DataRecord[] {
  const records: DataRecord[] = [];
  const problem = (reason: string, cause: unknown) =>
    dataError(file, `it is not JSON (${reason})`, { cause });
  const values = parseJson(decodeUtf8(bytes) ?? "", problem);
  for (const [index, value] of (values as unknown[]).entries()) {
    if (isObject(value)) records.push({ file, line: index + 1, fields: value });
    else
      report.tell(dataError(file, `record ${index + 1} of the array is not an object`, { line: index + 1 }));
  }
  return records;
}

/** Whether the first three lines of a file, or all if it has fewer, are JSON objects. */
function isJsonLines(bytes: Uint8Array): boolean {
  if (firstSign(bytes) !== 0x7b) return false;
  const lines: Uint8Array[] = [];
  for (let start = 0; start < bytes.length && lines.length < 3; ) {
    const end = bytes.indexOf(10, start);
    const line = bytes.subarray(start, end < 0 ? bytes.length : end);
    if (line.some((byte) => byte > 0x20)) lines.push(line);
    start = end < 0 ? bytes.length : end + 1;
  }
  return lines.length > 0 && lines.every((line) => "fields" in readJson(line));
}

/** A row that is begun by a quote and never ends must not take the rest of a large file. */
const maxRowChars = 2 ** 24;

async function* csvRecords(
  chunks: AsyncIterable<Uint8Array>,
  file: string,
  separator: string,
  report: Reporter,
): AsyncGenerator<DataRecord[], void> {
  const row = new CsvRow(separator);
  let names: readonly string[] | undefined;
  let line = 0;
  let length = 0;
  const recordOf = ({ number, bytes }: TextLine): DataRecord | undefined => {
    const text = decodeUtf8(bytes);
    if (!row.isOpen) {
      line = number;
      length = 0;
      if (text?.trim() === "") return undefined;
    }
    length += text?.length ?? 0;
    if (text === undefined || length > maxRowChars) {
      row.take();
      const problem = text === undefined ? "the line is not UTF-8" : "a quoted cell does not end";
      report.tell(dataError(file, problem, { line: text === undefined ? number : line }));
      return undefined;
    }
    const cells = row.add(number === 1 ? text.replace(/^\uFEFF/, "") : text);
    if (!cells) return undefined;
    if (names && cells.length === names.length) {
      return { file, line, fields: Object.fromEntries(names.map((name, i) => [name, cells[i]])) };
    }
    const rule = `the row has ${cells.length} cells, but the first line names ${names?.length} columns`;
    if (names) report.tell(dataError(file, rule, { line }));
    else names = cells.map((name) => name.trim());
    return undefined;
  };
  for await (const lines of linesOf(chunks)) {
    yield lines.map(recordOf).filter((record) => record !== undefined);
  }
  if (row.isOpen) report.tell(dataError(file, "a quoted cell does not end", { line }));
}
