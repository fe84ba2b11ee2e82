import { posix } from "node:path";
import { expect, test } from "vitest";
import { basename, dirname, extname, join } from "./path.browser.js";

const paths = ["runs/a/b.txt", "b.txt", "runs/.hidden", "a.b/c", "runs/step-1.tar.gz", "x."];

test("paths of pages are those of POSIX", () => {
  for (const path of paths) {
    expect(basename(path)).toBe(posix.basename(path));
    expect(dirname(path)).toBe(posix.dirname(path));
    expect(extname(path)).toBe(posix.extname(path));
    for (const more of ["x", "../y", "./z/w"]) expect(join(path, more)).toBe(posix.join(path, more));
  }
  expect(basename("runs/a.json", ".json")).toBe("a");
  expect(join("https://example.org/texts", "a.txt")).toBe("https://example.org/texts/a.txt");
});
