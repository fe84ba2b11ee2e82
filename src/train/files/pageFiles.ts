/** Files of pages: read from a URL or a file picker, kept by the browser for the origin, or saved as a download. */
import { type OriginFiles, offerDownload, openOriginFolder } from "#platform/storage";
import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { FileError, reasonOf } from "./fileError.js";

export type { OriginFiles };

const readOptions = schema({
  /** Called as bytes arrive; the total is undefined where the server does not tell it. */
  progress: optional<(bytes: number, total: number | undefined) => void>("function"),
  /** Ends the read. */
  signal: optional<AbortSignal>("object"),
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
  source: string | URL | Blob,
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

async function fetched(source: string | URL, file: string, signal: AbortSignal | undefined) {
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
 * Opens a folder of files that the browser keeps for the page's origin (OPFS), for checkpoints and runs.
 *
 * ```ts
 * const files = await openOriginFiles("runs/first");
 * await files.write("step-100.safetensors", encodeSafetensors(arrays));
 * ```
 */
export async function openOriginFiles(folder: string): Promise<OriginFiles> {
  need("string", folder, "folder", "openOriginFiles");
  const path = folder.split("/").filter((name) => name !== "" && name !== ".");
  if (path.includes("..")) throw new ValueError(`[openOriginFiles] "${folder}" leaves the origin's folder`);
  return onPages("openOriginFiles", () => openOriginFolder(path));
}

/** Runs what only pages can; elsewhere the error says so. */
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
