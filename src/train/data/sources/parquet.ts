/** Rows of Parquet files. */
import type { ColumnChunk, SchemaTree } from "hyparquet";
import { attempt } from "../../../ir/errors.js";
import { FileError, reasonOf } from "../../files/disk/fileError.js";
import type { DataRecord } from "./dataRecord.js";
import { dataError, missingPackage, type OpenFile } from "./sourceFile.js";

/** Rows that are read at once where row groups are large. */
const rowsAtOnce = 4096;

/** The rows of a Parquet file, some thousands at a time. @param columns those to read; all by default */
export async function* parquetRows(
  opened: OpenFile,
  name: string,
  columns?: readonly string[],
): AsyncGenerator<DataRecord[], void> {
  const missing = missingPackage(name, "Parquet", "hyparquet and hyparquet-compressors");
  const { parquetMetadataAsync, parquetReadObjects, parquetSchema } = await import("hyparquet").catch(
    missing,
  );
  const { compressors } = await import("hyparquet-compressors").catch(missing);
  const file = checkedFile(opened, name);
  const metadata = await parquetMetadataAsync(file).catch((cause: unknown) => {
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

/** A file of which only parts that exist are read. */
function checkedFile({ byteLength, slice }: OpenFile, name: string): Pick<OpenFile, "byteLength" | "slice"> {
  return {
    byteLength,
    slice: (start, end = byteLength) => {
      const isInside = Number.isSafeInteger(end - start) && start >= 0 && start <= end && end <= byteLength;
      const rule = `it names the bytes from ${start} to ${end} of ${byteLength}`;
      const part = isInside ? slice(start, end) : Promise.reject(damaged(name, new Error(rule)));
      // Parts are fetched ahead, and not all of them are waited for where one is damaged.
      part.catch(() => {});
      return part;
    },
  };
}

/** Refuses columns that the schema lacks: nobody would wait for them, and an error in one would end the process. */
function checkColumns(columns: readonly ColumnChunk[], schema: SchemaTree, name: string): void {
  for (const { meta_data } of columns) {
    let found: SchemaTree | undefined = schema;
    for (const part of meta_data?.path_in_schema ?? [])
      found = found?.children.find(({ element }) => element.name === part);
    if (found === undefined || found === schema || found.children.length > 0)
      throw damaged(name, new Error(`the schema has no column ${meta_data?.path_in_schema.join(".")}`));
  }
}

function damaged(name: string, cause: unknown, line?: number): FileError {
  if (cause instanceof FileError) return cause;
  return dataError(name, `the Parquet file is damaged or cut off (${reasonOf(cause)})`, { cause, line });
}
