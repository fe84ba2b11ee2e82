/** Files of data on the disk: single ones, folders and patterns. */
import { createReadStream } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import { join, sep } from "node:path";
import { reasonOf } from "../../files/disk/fileError.js";
import { hasKnownEnding, knownEndings } from "./formats.js";
import { dataError, type SourceFile } from "./sourceFile.js";

/** The files that a path names: a file, all data files of a folder, or what a pattern with `*`, `?` and `{a,b}` matches. */
export async function findFiles(path: string): Promise<SourceFile[]> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile()) return [await localFile(path)];
  const isPattern = !found && /[*?{]/.test(path);
  if (!found && !isPattern) throw dataError(path, "there is no such file or folder");
  const [root, matches] = found ? [path, hasKnownEnding] : matcherOf(path);
  const paths = (await filesBelow(root)).filter((one) => matches(one));
  if (paths.length === 0) {
    const rule = found
      ? `the folder has no files that end with ${knownEndings.join(", ")} (with or without .gz or .zst): name other files by a pattern, such as ${join(path, "*")}`
      : "no file matches this pattern";
    throw dataError(path, rule);
  }
  return Promise.all(paths.map(localFile));
}

async function localFile(path: string): Promise<SourceFile> {
  const { size, mtimeMs } = await stat(path);
  const fail = (cause: unknown) => {
    throw dataError(path, `it cannot be read (${reasonOf(cause)})`, { cause });
  };
  return {
    name: path,
    version: `${size} bytes, ${mtimeMs}`,
    async *stream() {
      try {
        yield* createReadStream(path, { highWaterMark: 2 ** 18 });
      } catch (cause) {
        fail(cause);
      }
    },
    open: async () => {
      const handle = await open(path, "r").catch(fail);
      return {
        byteLength: size,
        slice: (start, end = size) => readPart(handle, start, end).catch(fail),
        close: () => handle.close(),
      };
    },
  };
}

async function readPart(handle: FileHandle, start: number, end: number): Promise<ArrayBuffer> {
  const bytes = new Uint8Array(Math.max(0, end - start));
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
    if (bytesRead === 0) throw new Error("the file ended while it was read");
    done += bytesRead;
  }
  return bytes.buffer;
}

/** All files below a folder in the order of their paths; hidden ones are left out. */
async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((cause: unknown) => {
    throw dataError(folder, `the folder cannot be read (${reasonOf(cause)})`, { cause });
  });
  const visible = entries.filter(({ name }) => !name.startsWith("."));
  const lists = visible.map(async (entry) => {
    const path = join(folder, entry.name);
    // Links are followed to files only, so that they cannot lead round in circles.
    const isFile =
      entry.isFile() || (entry.isSymbolicLink() && (await stat(path).catch(() => undefined))?.isFile());
    return entry.isDirectory() ? filesBelow(path) : isFile ? [path] : [];
  });
  return (await Promise.all(lists)).flat().sort((a, b) => (a < b ? -1 : 1));
}

/** The folder that a pattern begins with, and whether a path below it matches. */
function matcherOf(pattern: string): [root: string, matches: (path: string) => boolean] {
  const parts = pattern.split("/");
  const fixed = parts.findIndex((part) => /[*?{]/.test(part));
  const root = parts.slice(0, fixed).join("/") || (pattern.startsWith("/") ? "/" : ".");
  const source = parts.slice(fixed).map(partPattern).join("");
  const expression = new RegExp(`^${source}$`);
  const length = root === "." ? 0 : join(root, "x").length - 1;
  return [root, (path) => expression.test(path.slice(length).split(sep).join("/"))];
}

/** A regular expression for a part of a pattern between slashes. */
function partPattern(part: string, index: number, all: readonly string[]): string {
  const isLast = index === all.length - 1;
  if (part === "**") return isLast ? ".*" : "(?:.*/)?";
  const signs: Readonly<Record<string, string>> = { "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")" };
  let depth = 0;
  const source = Array.from(part, (sign) => {
    if (sign === "{") depth++;
    if (sign === "}") depth--;
    if (sign === "," && depth > 0) return "|";
    return signs[sign] ?? sign.replace(/[\\^$.|+()[\]]/, "\\$&");
  }).join("");
  return `${source}${isLast ? "" : "/"}`;
}
