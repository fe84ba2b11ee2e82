/** The fields of a record. */
export type Fields = Readonly<Record<string, unknown>>;

/** A record, and where it was read. */
export interface DataRecord {
  readonly file: string;
  /** The line that it begins with, the row of a Parquet file, or the ordinal in an iterable; from 1 on. */
  readonly line: number;
  readonly fields: Fields;
}
