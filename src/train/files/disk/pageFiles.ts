/** Files of pages: read from a URL or a file picker, kept by the browser for the origin, or saved as a download. */
import { filesOfOrigin, type OriginFiles, offerDownload, openOriginFolder } from "#platform/pageStorage";
import { signalKind } from "../../../engines/abortSignal.js";
import { need } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { ValueError } from "../../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../../ir/schema.js";
import type { AbortSignalLike, BlobLike, UrlLike } from "../../../platform/hostTypes.js";
import { archive } from "./archive.js";
import { FileError, reasonOf } from "./fileError.js";

export type { OriginFiles };

const readOptions = schema({
  /** Called as bytes arrive; the total is undefined where the server does not tell it. */
  progress: optional<(bytes: number, total: number | undefined) => void>("function"),
  /** Ends the read. */
  signal: optional(signalKind),
});

/** Options of {@link readBytes}. */
export interface ReadBytesOptions extends OptionsOf<typeof readOptions> {}

/**
 * Reads a file by its URL, or one that a user picked (`<input type="file">`), with progress.
 *
 * @example
 * ```ts
 * Array.from(await train.readBytes(new Blob([Uint8Array.of(1, 2)]))); // [1, 2]
 * ```
 */
export async function readBytes(
  source: string | UrlLike | BlobLike,
  options: ReadBytesOptions = {},
): Promise<Uint8Array> {
  const { progress, signal } = readOptions.read(options, "readBytes");
  const isBlob = source instanceof Blob;
  if (!isBlob && typeof source !== "string" && !(source instanceof URL)) {
    throw new ValueError(`[readBytes] the source must be a URL or a Blob, got ${describe(source)}`);
  }
  const file = isBlob ? ((source as { readonly name?: string }).name ?? "(blob)") : String(source);
  try {
    const { stream, total } = isBlob
      ? { stream: source.stream(), total: source.size }
      : await fetched(source, file, signal);
    return await gather(stream, total, (bytes) => {
      signal?.throwIfAborted();
      progress?.(bytes, total);
    });
  } catch (cause) {
    if (cause instanceof FileError || signal?.aborted) throw cause;
    throw new FileError("read", file, 0, `it cannot be read (${reasonOf(cause)})`, { cause });
  }
}

async function fetched(source: string | UrlLike, file: string, signal: AbortSignalLike | undefined) {
  const response = await fetch(source, signal === undefined ? {} : { signal });
  if (!response.ok) throw new FileError("read", file, 0, `the server answers ${response.status}`);
  const length = Number(response.headers.get("content-length") ?? Number.NaN);
  // The length of a compressed answer is not that of the file.
  const isKnown = Number.isInteger(length) && !response.headers.has("content-encoding");
  return {
    stream: response.body ?? new Blob([]).stream(),
    total: isKnown ? length : undefined,
  };
}

async function gather(
  stream: ReadableStream<Uint8Array>,
  total: number | undefined,
  arrived: (bytes: number) => void,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = stream.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    if (value === undefined) continue;
    chunks.push(value);
    length += value.length;
    arrived(length);
  }
  if (total !== undefined && length !== total) throw new Error(`${length} of ${total} bytes arrived`);
  const bytes = new Uint8Array(length);
  chunks.reduce((at, chunk) => {
    bytes.set(chunk, at);
    return at + chunk.length;
  }, 0);
  return bytes;
}

/** Lets the user of a page save bytes as a file, such as those of {@link encodeSafetensors}. */
export function downloadBytes(bytes: Uint8Array, name: string): void {
  need("bytes", bytes, "bytes", "downloadBytes");
  need("string", name, "name", "downloadBytes");
  onPages("downloadBytes", () => offerDownload(bytes, name));
}

/**
 * Lets the user of a page save a folder of the origin's files, such as that of a run, as a compressed archive.
 *
 * ```ts
 * await downloadFolder("runs/first");
 * ```
 *
 * @example
 * ```ts
 * // Only pages have such files.
 * await train.downloadFolder("runs/first").catch((error) => error.code); // "file"
 * ```
 */
export async function downloadFolder(folder: string, name?: string): Promise<void> {
  const path = pathOf(folder, "downloadFolder");
  const files = onPages("downloadFolder", () => filesOfOrigin(path.join("/")));
  const bytes = await gather(archive(files), undefined, () => {});
  downloadBytes(bytes, name ?? `${path.at(-1) ?? "files"}.tar.gz`);
}

/** The names of a path in the origin's files. */
function pathOf(folder: string, caller: string): string[] {
  need("string", folder, "folder", caller);
  const path = folder.split("/").filter((name) => name !== "" && name !== ".");
  if (path.includes("..")) throw new ValueError(`[${caller}] "${folder}" leaves the origin's folder`);
  return path;
}

/**
 * Opens a folder of files that the browser keeps for the page's origin (OPFS), for checkpoints and runs.
 *
 * ```ts
 * const files = await openOriginFiles("runs/first");
 * await files.write("step-100.safetensors", encodeSafetensors(arrays));
 * ```
 */
export async function openOriginFiles(folder: string): Promise<OriginFiles> {
  const path = pathOf(folder, "openOriginFiles");
  return onPages("openOriginFiles", () => openOriginFolder(path));
}

/** Runs what only pages can; throws elsewhere. */
function onPages<T>(caller: string, action: () => T): T {
  const explain = (cause: unknown): never => {
    throw new FileError(caller, "the browser's storage", 0, reasonOf(cause), { cause });
  };
  try {
    const result = action();
    return result instanceof Promise ? (result.catch(explain) as T) : result;
  } catch (cause) {
    return explain(cause);
  }
}
