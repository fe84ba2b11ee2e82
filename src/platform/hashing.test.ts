import { expect, test } from "vitest";
import { createHash as hashInPages, sha256 as inPages } from "./hashing.browser.js";
import { sha256 } from "./hashing.js";

test("a page's SHA-256 is Node's, whatever the length", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 70_001]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 131 + 7) & 255);
    expect(inPages(bytes)).toBe(sha256(bytes));
  }
});

test("bytes may come in parts", () => {
  const hash = hashInPages("sha256");
  for (const part of ["one", "", "x".repeat(61), "y".repeat(200)]) hash.update(part);
  expect(hash.digest("hex")).toBe(sha256(new TextEncoder().encode(`one${"x".repeat(61)}${"y".repeat(200)}`)));
});
