import { expect, test } from "vitest";
import { XxHash64 } from "./xxHash64.js";

function hashOf(bytes: Uint8Array, pieces: number): number {
  const hash = new XxHash64();
  for (let at = 0; at < bytes.length; at += pieces) hash.push(bytes.subarray(at, at + pieces));
  return hash.low();
}

test.each([
  ["", 0x51d8e999],
  ["a", 0xa98c6e5b],
  ["abc", 0xad770999],
  ["a text that is longer than one stripe of thirty-two bytes, and ends in none", 0x24521bc3],
])("the lower half of XXH64 of %j is right, in whatever pieces it comes", (text, expected) => {
  const bytes = new TextEncoder().encode(text);
  for (const pieces of [1, 7, 31, 32, 33, 1000]) expect(hashOf(bytes, pieces)).toBe(expected);
});
