/** Rows of Parquet files. */
import type { ColumnChunk, Compressors, RowGroup, SchemaTree } from "hyparquet";
import { attempt } from "../../../ir/errors.js";
import { FileError, reasonOf } from "../../files/disk/fileError.js";
import type { DataRecord } from "./dataRecord.js";
import { checkPages, valueBudget } from "./parquetPages.js";
import { dataError, missingPackage, type OpenFile } from "./sourceFile.js";
import { ThriftReader } from "./thriftReader.js";
import { unzstdWhole } from "./zstd.js";

/** Rows that are read at once where row groups are large. */
const rowsAtOnce = 4096;

/** Bytes at the end of a file that are read first: most descriptions of files are within them. */
const usualFooter = 2 ** 19;

/** The rows of a Parquet file, some thousands at a time. @param columns those to read; all by default */
export async function* parquetRows(
  opened: OpenFile,
  name: string,
  columns?: readonly string[],
): AsyncGenerator<DataRecord[], void> {
  const missing = missingPackage(name, "Parquet", "hyparquet and hyparquet-compressors");
  const { parquetMetadata, parquetReadObjects, parquetSchema } = await import("hyparquet").catch(missing);
  const others = await import("hyparquet-compressors").catch(missing);
  const compressors: Compressors = { ...others.compressors, ZSTD: unzstdWhole };
  const metadata = await readFooter(checkedFile(opened, name))
    .then(parquetMetadata)
    .catch((cause: unknown) => {
      throw damaged(name, cause);
    });
  const schema = attempt(
    () => parquetSchema(metadata),
    (_, cause) => damaged(name, cause),
  );
  for (const { columns } of metadata.row_groups) checkColumns(columns, schema, name);
  // The first element of a schema is its root.
  const names = new Set(metadata.schema.slice(1).map((element) => element.name));
  const wanted = columns?.filter((column) => names.has(column));
  const chosen = wanted && wanted.length > 0 ? { columns: wanted } : {};
  let number = 1;
  for (const group of metadata.row_groups) {
    const last = number + Number(group.num_rows);
    const checks = pageChecks(group, schema, compressors, opened.byteLength, chosen.columns);
    const file = checkedFile(opened, name, (bytes, start) => {
      for (const check of checks) check(bytes, start);
    });
    while (number < last) {
      const rowEnd = Math.min(last - 1, number - 1 + rowsAtOnce);
      const range = { file, metadata, compressors, rowStart: number - 1, rowEnd, ...chosen };
      const rows = await parquetReadObjects(range).catch((cause: unknown) => {
        throw damaged(name, cause, number);
      });
      if (rows.length === 0)
        throw damaged(name, new Error("a row group has fewer rows than it says"), number);
      yield rows.map((fields) => ({ file: name, line: number++, fields }));
    }
  }
}

/** The end of a file, which describes the rest, checked as far as the sizes of its lists. */
async function readFooter({
  byteLength,
  slice,
}: Pick<OpenFile, "byteLength" | "slice">): Promise<ArrayBuffer> {
  const tail = await slice(Math.max(0, byteLength - usualFooter), byteLength);
  const size = tail.byteLength < 8 ? 0 : 8 + new DataView(tail).getUint32(tail.byteLength - 8, true);
  if (size <= 8 || size > byteLength) return tail;
  const footer = size > tail.byteLength ? await slice(byteLength - size, byteLength) : tail;
  new ThriftReader(new Uint8Array(footer, footer.byteLength - size, size - 8)).struct();
  return footer;
}

/** Checks a column when its bytes are among those that were read. */
type PartCheck = (bytes: ArrayBuffer, start: number) => void;

/** Checks of the pages of a row group's columns, each once. @param wanted the columns that are read */
function pageChecks(
  { columns }: RowGroup,
  schema: SchemaTree,
  compressors: Compressors,
  byteLength: number,
  wanted?: readonly string[],
): PartCheck[] {
  const budget = valueBudget(byteLength);
  return columns.flatMap(({ meta_data: meta }) => {
    if (!meta || (wanted && !wanted.includes(meta.path_in_schema[0] ?? ""))) return [];
    const start = Number(meta.dictionary_page_offset || meta.data_page_offset);
    const end = start + Number(meta.total_compressed_size);
    const column = { meta, path: [schema, ...(pathTo(meta.path_in_schema, schema) ?? [])] };
    let isChecked = false;
    return (bytes: ArrayBuffer, offset: number) => {
      if (isChecked || start < offset || end > offset + bytes.byteLength) return;
      checkPages(new Uint8Array(bytes, start - offset, end - start), column, compressors, budget);
      isChecked = true;
    };
  });
}

/** A file of which only parts that exist are read. @param check called with each part and where it begins */
function checkedFile(
  { byteLength, slice }: OpenFile,
  name: string,
  check: PartCheck = () => {},
): Pick<OpenFile, "byteLength" | "slice"> {
  return {
    byteLength,
    slice: (start, end = byteLength) => {
      const isInside = Number.isSafeInteger(end - start) && start >= 0 && start <= end && end <= byteLength;
      const rule = `it names the bytes from ${start} to ${end} of ${byteLength}`;
      const read = async () => {
        if (!isInside) throw damaged(name, new Error(rule));
        const bytes = await slice(start, end);
        check(bytes, start);
        return bytes;
      };
      const part = read();
      // Parts are fetched ahead, and not all of them are waited for where one is damaged.
      part.catch(() => {});
      return part;
    },
  };
}

/** The elements that lead to a column; undefined if the schema has no such column. */
function pathTo(names: readonly string[], schema: SchemaTree): SchemaTree[] | undefined {
  const path: SchemaTree[] = [];
  for (const name of names) {
    const next = (path.at(-1) ?? schema).children.find(({ element }) => element.name === name);
    if (next === undefined) return undefined;
    path.push(next);
  }
  return path.at(-1)?.children.length === 0 ? path : undefined;
}

/** Refuses columns that the schema lacks: nobody would wait for them, and an error in one would end the process. */
function checkColumns(columns: readonly ColumnChunk[], schema: SchemaTree, name: string): void {
  for (const { meta_data } of columns) {
    const names = meta_data?.path_in_schema ?? [];
    if (pathTo(names, schema) === undefined)
      throw damaged(name, new Error(`the schema has no column ${names.join(".")}`));
  }
}

function damaged(name: string, cause: unknown, line?: number): FileError {
  if (cause instanceof FileError) return cause;
  return dataError(name, `the Parquet file is damaged or cut off (${reasonOf(cause)})`, { cause, line });
}
