/** The formats of data files, by the endings of their names. */

/** What a file holds. */
export type DataFormat = "text" | "jsonl" | "csv" | "tsv" | "parquet";

const formats: Readonly<Record<string, DataFormat>> = {
  ".txt": "text",
  ".jsonl": "jsonl",
  ".ndjson": "jsonl",
  ".json": "jsonl",
  ".csv": "csv",
  ".tsv": "tsv",
  ".parquet": "parquet",
};

/** The endings of files that are read from folders. */
export const knownEndings: readonly string[] = Object.keys(formats);

/** The ending of a name or URL, without that of a compression, in lower case. */
export function endingOf(name: string): string {
  const path = /^https?:/.test(name) ? name.replace(/[?#].*$/, "") : name;
  return /\.[^./\\]+$/.exec(path.toLowerCase().replace(/\.(gz|zst|zstd)$/, ""))?.[0] ?? "";
}

export function hasKnownEnding(name: string): boolean {
  return endingOf(name) in formats;
}

/** The format that a name says; undefined for other names, whose content decides. */
export function formatNamed(name: string): DataFormat | undefined {
  return formats[endingOf(name)];
}
