/** Files of data in a page: those of the origin, and others by their addresses relative to the page. */
import { readdir, readFile, stat } from "#platform/fs";
import { join } from "#platform/path";
import { hasKnownEnding } from "./formats.js";
import type * as node from "./localFiles.js";
import { blobFile, type SourceFile, urlFile } from "./sourceFile.js";

export const findFiles: typeof node.findFiles = async (path) => {
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile()) return [await originFile(path)];
  if (!found?.isDirectory()) return [urlFile(new URL(path, globalThis.location.href).href)];
  const names = (await readdir(path)).filter(hasKnownEnding).sort();
  return Promise.all(names.map((name) => originFile(join(path, name))));
};

async function originFile(path: string): Promise<SourceFile> {
  const bytes = await readFile(path);
  return { ...blobFile(new Blob([bytes as BlobPart])), name: path };
}
