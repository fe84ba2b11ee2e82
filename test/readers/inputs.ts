/** The forms of files and messages, and how inputs become files. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seal } from "../../src/train/files/checkpoints/seal.js";
import type { Envelope } from "./mutate.js";

export const encode = (text: string) => new TextEncoder().encode(text);
export const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
export const jsonBytes = (value: unknown) => encode(JSON.stringify(value));

/** A file that is nothing but text. */
export const plain: Envelope = { open: decode, close: encode };

/** A text that begins with its length. @param read the length at the beginning of a file, whose `size` it has */
export function counted(
  size: number,
  write: (head: DataView, length: number, rest: number) => void,
): Envelope {
  const lengthOf = (bytes: Uint8Array) =>
    bytes.length < size ? -1 : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return {
    open: (bytes) => {
      const length = lengthOf(bytes);
      return length < 0 || size + length > bytes.length
        ? undefined
        : decode(bytes.subarray(size, size + length));
    },
    close: (text, bytes) => {
      const rest = bytes.subarray(Math.min(bytes.length, size + Math.max(0, lengthOf(bytes))));
      const body = encode(text);
      const result = new Uint8Array(size + body.length + rest.length);
      write(new DataView(result.buffer), body.length, rest.length);
      result.set(body, size);
      result.set(rest, size + body.length);
      return result;
    },
  };
}

export const sealed: Envelope = {
  open: (bytes) => decode(bytes).replace(/,\s*"seal":\s*"[0-9a-f]*"\s*\}\s*$/, "}"),
  // Half of the manifests are of the version without a seal.
  close: (text) => (text.length % 2 === 0 ? encode(text) : seal(text)),
};

/** A file of numbers, of which no part is a text. */
export const binary: Envelope = { open: () => undefined, close: (_, bytes) => bytes };

/** A folder for inputs, in memory where the system has one. */
export const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "shardwise-readers-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

/** Reads a file with these bytes. */
export function asFile<T>(bytes: Uint8Array, read: (path: string) => T, name = "input"): T {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return read(path);
}
