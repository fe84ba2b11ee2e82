import { need } from "../../../ir/arguments.js";
import { reasonOf, ShardwiseError } from "../../../ir/errors.js";

export { reasonOf };

/** Where in a file, if it has lines, and what an error was caused by. */
export interface FileErrorOptions extends ErrorOptions {
  /** The line, from 1 on, which messages then name instead of the byte. */
  readonly line?: number | undefined;
}

/** A file that breaks a rule of its format, is missing or damaged, or could not be written. */
export class FileError extends ShardwiseError {
  static override readonly name: string = "FileError";
  /** The file or folder, as the caller named it. */
  readonly file: string;
  /** The byte of the file at which the rule is broken. */
  readonly offset: number;
  /** The line at which the rule is broken, from 1 on, in files that are read by lines. */
  readonly line: number | undefined;

  /** @param format the kind of file, such as `checkpoint` */
  constructor(format: string, file: string, offset: number, rule: string, options?: FileErrorOptions) {
    const line = options?.line;
    super(
      "file",
      `[${format}] ${file}, ${line === undefined ? `byte ${offset}` : `line ${line}`}: ${rule}`,
      options,
    );
    this.file = file;
    this.offset = offset;
    this.line = line;
  }
}

/** Runs `work` on a file; a system error becomes a {@link FileError} that names the file. */
export function onFile<T>(format: string, path: string, work: () => T): T {
  need("path", path, "the path", format);
  try {
    return work();
  } catch (error) {
    throw systemCode(error) === undefined
      ? error
      : new FileError(format, path, 0, reasonOf(error), { cause: error });
  }
}

/** The code of a system error, such as `ENOENT`. */
export function systemCode(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}
