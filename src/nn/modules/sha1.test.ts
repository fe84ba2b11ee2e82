import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { sha1Word } from "./sha1.js";

test("is the first word of SHA-1 for messages of every length around a block", () => {
  for (let length = 0; length < 200; length++) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 37 + length) % 256);
    expect(sha1Word(bytes)).toBe(createHash("sha1").update(bytes).digest().readUInt32BE(0));
  }
});
