/** Rows of Parquet files. */
import { FileError, reasonOf } from "../../files/disk/fileError.js";
import type { DataRecord } from "./dataRecord.js";
import { dataError, missingPackage, type OpenFile } from "./sourceFile.js";

/** Rows that are read at once where row groups are large. */
const rowsAtOnce = 4096;

/** The rows of a Parquet file, some thousands at a time. @param columns those to read; all by default */
export async function* parquetRows(
  file: OpenFile,
  name: string,
  columns?: readonly string[],
): AsyncGenerator<DataRecord[], void> {
  const missing = missingPackage(name, "Parquet", "hyparquet and hyparquet-compressors");
  const { parquetMetadataAsync, parquetReadObjects } = await import("hyparquet").catch(missing);
  const { compressors } = await import("hyparquet-compressors").catch(missing);
  const metadata = await parquetMetadataAsync(file).catch((cause: unknown) => {
    throw damaged(name, cause);
  });
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

function damaged(name: string, cause: unknown, line?: number): FileError {
  if (cause instanceof FileError) return cause;
  return dataError(name, `the Parquet file is damaged or cut off (${reasonOf(cause)})`, { cause, line });
}
