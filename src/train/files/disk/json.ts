import { parseJson } from "../../../ir/jsonReaders.js";
import { FileError } from "./fileError.js";

/** A JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Whether a JSON value is an object. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Parses the text of a file; the error for one that is not JSON names the byte. @param format the kind of file */
export function parseJsonFile(text: string, format: string, file: string): unknown {
  return parseJson(text, (reason, cause) => {
    const position = /position (\d+)/.exec(reason)?.[1];
    return new FileError(format, file, Number(position ?? text.length), `not JSON (${reason})`, { cause });
  });
}
