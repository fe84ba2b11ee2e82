/** The rows of the table of faults that need no process of their own; `npm run faults` runs all. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { temporaryFolder } from "../support/runs.js";
import { areas } from "./areas.js";
import { randomFrom, runRow } from "./row.js";
import { checkpoints, safetensors } from "./rows/files.js";
import { operands, options } from "./rows/numbers.js";

const seed = Number(process.env.SEED ?? Date.now() % 1e6);
const { path, remove } = temporaryFolder();
afterAll(remove);

describe.each([checkpoints, safetensors, operands, options])("$title", ({ rows, title }) => {
  test.each(rows.map((row, i) => ({ ...row, i })))(`$fault (seed ${seed})`, async (row) => {
    const folder = join(path, `${title}-${row.i}`);
    mkdirSync(folder);
    const { problem } = await runRow(row, { folder, random: randomFrom(seed) });
    expect(problem).toBeUndefined();
  });
});

test("the table has at least 120 rows, no two of them of the same name", () => {
  const names = areas.flatMap(({ rows }) => rows.map(({ fault }) => fault));
  expect(names.length).toBeGreaterThanOrEqual(120);
  expect(new Set(names).size).toBe(names.length);
});
