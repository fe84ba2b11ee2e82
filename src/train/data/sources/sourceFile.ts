/** Files of data, wherever they are: on the disk, behind a URL, or picked by the user of a page. */
import { FileError, type FileErrorOptions, reasonOf } from "../../files/disk/fileError.js";

/** A file that can be read from start to end, or in parts. */
export interface SourceFile {
  readonly name: string;
  /** All bytes in order. */
  stream(): AsyncIterable<Uint8Array>;
  /** Opens the file for reading any part of it. */
  open(): Promise<OpenFile>;
  /** Changes with the content, such as size and time of a file on the disk. */
  readonly version: string;
}

/** A file whose parts can be read. */
export interface OpenFile {
  readonly byteLength: number;
  slice(start: number, end?: number): Promise<ArrayBuffer>;
  close(): Promise<void>;
}

/** An error about data. */
export function dataError(file: string, rule: string, options?: FileErrorOptions): FileError {
  return new FileError("data", file, 0, rule, options);
}

/** Throws that a package was not found, as in a page without a bundler that has no import map. */
export function missingPackage(file: string, format: string, packages: string): (cause: unknown) => never {
  return (cause) => {
    throw dataError(
      file,
      `reading ${format} needs ${packages}, which cannot be loaded (${reasonOf(cause)})`,
      { cause },
    );
  };
}

/** The chunks of a web stream. */
export async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  const reader = stream.getReader();
  try {
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      if (value) yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** All bytes of a file. */
export async function gather(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    parts.push(chunk);
    length += chunk.length;
  }
  const bytes = new Uint8Array(length);
  let end = 0;
  for (const part of parts) {
    bytes.set(part, end);
    end += part.length;
  }
  return bytes;
}

/** A file in memory. */
function openBytes(bytes: ArrayBuffer): OpenFile {
  return {
    byteLength: bytes.byteLength,
    slice: async (start, end) => bytes.slice(start, end),
    close: async () => {},
  };
}

/** A file that a user picked, or any other blob. */
export function blobFile(blob: Blob & { readonly name?: string }): SourceFile {
  return {
    name: blob.name ?? "(blob)",
    version: `${blob.size} bytes`,
    stream: () => chunksOf(blob.stream()),
    open: async () => ({
      byteLength: blob.size,
      slice: (start, end) => blob.slice(start, end).arrayBuffer(),
      close: async () => {},
    }),
  };
}

/** A file behind a URL. */
export function urlFile(url: string): SourceFile {
  const fail = (cause: unknown) => {
    throw cause instanceof FileError
      ? cause
      : dataError(url, `it cannot be fetched (${reasonOf(cause)})`, { cause });
  };
  const request = async (headers?: Record<string, string>) => {
    const response = await fetch(url, headers ? { headers } : {}).catch(fail);
    if (!response.ok) throw dataError(url, `the server answers ${response.status}`);
    return response;
  };
  return {
    name: url,
    version: url,
    async *stream() {
      const { body, headers } = await request();
      // A server that closes the connection early must not look like the end of the file.
      const expected = headers.has("content-encoding") ? null : headers.get("content-length");
      let length = 0;
      try {
        if (body) {
          for await (const chunk of chunksOf(body)) {
            length += chunk.length;
            yield chunk;
          }
        }
      } catch (cause) {
        fail(cause);
      }
      if (expected !== null && length !== Number(expected)) {
        throw dataError(url, `${length} of ${expected} bytes arrived`);
      }
    },
    open: async () => {
      const first = await request({ range: "bytes=0-0" });
      const total = /\/(\d+)$/.exec(first.headers.get("content-range") ?? "")?.[1];
      // A server without ranges sends the whole file; one of another origin may not tell pages its length.
      if (first.status !== 206 || total === undefined) {
        const whole = first.status === 206 ? await request() : first;
        return openBytes(await whole.arrayBuffer().catch(fail));
      }
      await first.arrayBuffer();
      const byteLength = Number(total);
      return {
        byteLength,
        slice: async (start, end = byteLength) => {
          const part = await request({ range: `bytes=${start}-${end - 1}` });
          return part.arrayBuffer().catch(fail);
        },
        close: async () => {},
      };
    },
  };
}
