/** A test for each thing that a machine may lack, run by `optional.test.ts` on several machines. */
import { test } from "vitest";
import { describeWith, installable, orSkip, testWith } from "../support/optional.js";

for (const [name, thing] of Object.entries(installable)) {
  testWith(thing, `${name}: a test`, {}, () => {});
  describeWith(thing, `${name}: a group`, () => test("of tests", () => {}));
}

// As a file does all of whose tests need it.
orSkip(Object.values(installable)[0] ?? { name: "something", find: () => undefined });
