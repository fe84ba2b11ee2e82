import { expect, test } from "vitest";
import { sha256 as inPages } from "./hashing.browser.js";
import { sha256 } from "./hashing.js";

test("a page's SHA-256 is Node's, whatever the length", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 70_001]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 131 + 7) & 255);
    expect(inPages(bytes)).toBe(sha256(bytes));
  }
});
