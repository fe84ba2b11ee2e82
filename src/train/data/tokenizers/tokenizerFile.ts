import { readFile, stat } from "#platform/fs";
import { need } from "../../../ir/arguments.js";
import { FileError, reasonOf } from "../../files/disk/fileError.js";
import type { BpeTokenizer } from "./bpe.js";
import type { JsonTokenizer } from "./jsonTokenizer.js";
import { parseTokenizer } from "./tokenizerJson.js";

/** Larger files are not read. */
const maxBytes = 2 ** 28;

/**
 * Reads a tokeniser from a `tokenizer.json`; see {@link parseTokenizer}.
 *
 * @example
 * ```ts
 * const model = { type: "BPE", vocab: { H: 0, i: 1, Hi: 2 }, merges: ["H i"] };
 * fs.writeFileSync("tokenizer.json", JSON.stringify({ model }));
 * Array.from((await train.readTokenizer("tokenizer.json")).encode("Hi")); // [2]
 * ```
 */
export async function readTokenizer(path: string): Promise<BpeTokenizer | JsonTokenizer> {
  need("path", path, "path", "readTokenizer");
  try {
    const { size } = await stat(path);
    if (size > maxBytes)
      throw new FileError("tokenizer", path, 0, `the ${size} bytes are over the limit ${maxBytes}`);
    return parseTokenizer(await readFile(path, "utf8"), path);
  } catch (cause) {
    if (cause instanceof FileError) throw cause;
    throw new FileError("tokenizer", path, 0, `the file cannot be read (${reasonOf(cause)})`, { cause });
  }
}
