import { expect, test } from "vitest";
import { MAX_LOCAL_DEVICES, Tags, tagOf } from "./tags.js";

test.each([2 ** 31 - 1, 2 ** 28 - 1, 2 ** 17 - 1])("tags up to %d tell messages apart", (largest) => {
  const tags = new Tags(largest, "libmpi.so");
  const pair = tags.newPair();
  const found = new Set<number>();
  const last = MAX_LOCAL_DEVICES - 1;
  const ends = [
    [0, 0],
    [0, last],
    [last, 0],
    [last, last],
  ] as const;
  for (let use = 0; use < 16; use++) {
    const sequence = pair.next();
    for (const [from, to] of ends) {
      for (const phase of [0, 1]) found.add(tagOf(tags.kind(0, phase, from, to), sequence));
    }
  }
  expect(found.size).toBe(16 * ends.length * 2);
  expect(Math.min(...found)).toBeGreaterThanOrEqual(0);
  expect(Math.max(...found, tagOf(tags.kind(-1, 1, last, last), 15))).toBeLessThanOrEqual(largest);
});

test("tags differ by the fingerprint of what is sent where there are bits for it", () => {
  const tags = new Tags(2 ** 31 - 1, "libmpi.so");
  expect(tags.kind(0xa5, 0, 1, 2)).not.toBe(tags.kind(0x5a, 0, 1, 2));
});

test("both sides of a pair count alike, around", () => {
  const pair = new Tags(2 ** 17 - 1, "libmpi.so").newPair();
  expect(Array.from({ length: 18 }, () => pair.next()).slice(14)).toEqual([15, 0, 1, 2]);
});

test("too few tags are refused", () => {
  expect(() => new Tags(32767, "libmpi.so")).toThrow("libmpi.so allows tags up to 32767, which are too few");
});
