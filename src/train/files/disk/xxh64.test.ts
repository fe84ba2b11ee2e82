import { expect, test } from "vitest";
import { range } from "../../../ir/shape.js";
import { ChecksumMemory, StreamChecksum } from "./xxh64.js";

/** The hash of bytes that come so many at a time, as hexadecimal digits. */
function hashOf(hash: StreamChecksum, bytes: Uint8Array, piece: number): string {
  for (let from = 0; from < bytes.length; from += piece) hash.push(bytes.subarray(from, from + piece));
  return hash.end().toString(16);
}

test.each([
  ["", "ef46db3751d8e999"],
  ["a", "d24ec4f1a98c6e5b"],
  ["abc", "44bc2cf5ad770999"],
  ["a text that is longer than one stripe of thirty-two bytes, and ends in none", "726401c124521bc3"],
])("the hash of %j is what xxhsum says", (text, expected) => {
  expect(hashOf(new StreamChecksum(), new TextEncoder().encode(text), 1)).toBe(expected);
});

test("the hash of bytes is the same in whatever pieces they come, one after the other", () => {
  const hash = new StreamChecksum();
  for (const length of [76, 32, 65_536, 65_567, 200_001]) {
    const bytes = Uint8Array.from(range(length), (i) => i * i + (i >> 8));
    const memory = new ChecksumMemory(length + 5);
    memory.bytes.set(bytes, 5);
    const expected = memory.checksum(5, length + 5);
    for (const piece of [31, 32, 1000, 65_535, 1e6])
      expect(hashOf(hash, bytes, piece).padStart(16, "0")).toBe(expected);
  }
});
