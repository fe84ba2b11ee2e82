import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { archive } from "./archive.js";
import { concatBytes } from "./bytes.js";

async function* filesOf(files: Readonly<Record<string, string>>) {
  for (const [path, text] of Object.entries(files)) yield [path, new TextEncoder().encode(text)] as const;
}

async function unpacked(files: Readonly<Record<string, string>>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of archive(filesOf(files)) as unknown as AsyncIterable<Uint8Array>) parts.push(part);
  return gunzipSync(concatBytes(parts));
}

/** The files of an archive, read as the format is specified. */
function parse(bytes: Buffer): Record<string, string> {
  const found: Record<string, string> = {};
  const text = (start: number, length: number) =>
    bytes
      .subarray(start, start + length)
      .toString()
      .replace(/\0.*$/s, "");
  for (let at = 0; bytes[at] !== 0; ) {
    const size = Number.parseInt(text(at + 124, 12), 8);
    const sum = bytes
      .subarray(at, at + 512)
      .reduce((total, byte, i) => total + (i >= 148 && i < 156 ? 32 : byte), 0);
    expect(Number.parseInt(text(at + 148, 8), 8)).toBe(sum);
    expect(text(at + 257, 6)).toBe("ustar");
    const prefix = text(at + 345, 155);
    found[prefix === "" ? text(at, 100) : `${prefix}/${text(at, 100)}`] = text(at + 512, size);
    at += 512 + 512 * Math.ceil(size / 512);
  }
  return found;
}

test("an archive holds the files under their paths", async () => {
  const files = { "run/a.txt": "one", "run/empty": "", [`${"long/".repeat(30)}b`]: "x".repeat(1500) };
  const bytes = await unpacked(files);
  expect(parse(bytes)).toEqual(files);
  expect(bytes.length % 512).toBe(0);
});

test("a path that no archive can hold is refused", async () => {
  await expect(unpacked({ [`${"x".repeat(101)}`]: "" })).rejects.toThrow(
    "its path is too long for an archive",
  );
});
