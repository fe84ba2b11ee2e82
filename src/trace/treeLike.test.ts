import fc from "fast-check";
import { expect, test } from "vitest";
import { flatten, registerClass, sameStructure, structure } from "./tree.js";
import { everyLeafLike, outlineOf } from "./treeLike.js";

class Box {
  constructor(
    readonly inside: unknown,
    readonly label: string,
  ) {}
}

registerClass<Box, readonly [unknown]>(Box, {
  children: ({ inside }) => [inside],
  rebuild: ({ label }, [inside]) => new Box(inside, label),
  describe: ({ label }) => label,
});

/** Small trees, so that two of them are alike now and then. */
const trees = fc.letrec((tie) => ({
  tree: fc.oneof(
    { maxDepth: 3 },
    fc.integer({ min: 0, max: 9 }),
    fc.constantFrom(null, undefined),
    fc.array(tie("tree"), { maxLength: 2 }),
    fc.dictionary(fc.constantFrom("a", "b", "constructor"), tie("tree"), { maxKeys: 2 }),
    fc.tuple(tie("tree"), fc.constantFrom("x", "y")).map(([inside, label]) => new Box(inside, label)),
  ),
})).tree;

const isNumber = (leaf: unknown) => typeof leaf === "number";

test("a tree is like a structure exactly where it has it, and its leaves come in order", () => {
  fc.assert(
    fc.property(trees, trees, (a, b) => {
      const outline = outlineOf(structure(b));
      const leaves: unknown[] = [];
      const isLike = everyLeafLike(a, outline, (leaf) => isNumber(leaf) && leaves.push(leaf) > 0);
      expect(isLike).toBe(sameStructure(structure(a), structure(b)));
      if (isLike) expect(leaves).toEqual(flatten(a).leaves);
    }),
    { numRuns: 2000 },
  );
});

test("an outline holds nothing of the tree that it was taken of", () => {
  const box = new Box([1], "x");
  const outline = outlineOf(structure(box));
  expect(JSON.stringify(outline)).toBe(JSON.stringify(structure(box)));
  expect(() => outline.kind === "class" && outline.rebuild([[1]])).toThrow("only be compared");
});
