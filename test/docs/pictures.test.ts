import { readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { pictures } from "../../scripts/site/pictures.js";

test.each(Object.keys(pictures))("docs/images/%s is what the code draws", (name) => {
  const drawn = pictures[name]?.() ?? "";
  const file = new URL(`../../docs/images/${name}`, import.meta.url);
  // UPDATE=1 draws the pictures anew.
  if (process.env.UPDATE) writeFileSync(file, drawn);
  expect(readFileSync(file, "utf8")).toBe(drawn);
});
