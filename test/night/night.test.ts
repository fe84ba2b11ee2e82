import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { range } from "../../src/ir/shape.js";
import { type Attempt, nightPage } from "./page.js";
import { commandLine, countsIn, coverageIn, type Search, searches } from "./searches.js";

const engines = ["threads", "inline", "mpi", "xla"];
const { scripts }: { scripts: Readonly<Record<string, string>> } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8"),
);

test("every turn has seeds of its own, and commands that exist and take them", () => {
  const isSeeded = ({ seeds }: Search) => seeds !== undefined;
  const turns = range(5).map((i) =>
    searches(i + 1, engines)
      .filter(isSeeded)
      .map(commandLine),
  );
  expect(new Set(turns.flat()).size).toBe(turns.flat().length);
  for (const { command, env } of searches(1, engines)) {
    const script = scripts[command[0] ?? ""];
    expect(script, command[0]).toBeDefined();
    for (const name of Object.keys(env).filter((one) => one !== "SEED"))
      expect(script).toContain(`$\{${name}:-`);
  }
  expect(commandLine({ command: ["fuzz"], env: { SEED: "7" } })).toBe("SEED=7 npm run fuzz");
});

test("what was tried is added up from what searches print", () => {
  const text =
    "crew\n  exhaustive: 8,367 schedules, 1,200 states, 9 steps/s\n  seeds: 100 schedules, 5 states\n";
  expect(countsIn(text)).toEqual({ schedules: 8467, states: 1205 });
  expect(countsIn(" Tests  1 failed | 36 passed (37)\n36 passed, 1 failed\n")).toEqual({ tests: 37 });
  const readers = "manifest: 1,000 tried at 7 a second\nindices: 500 tried at 3 a second\n";
  expect(countsIn(readers)).toEqual({ inputs: 1500 });
  expect(countsIn(`${readers}1,500 inputs in 9 s`)).toEqual({ inputs: 1500 });
  expect(countsIn("threads: 400 programs from seed 1, 0 differ")).toEqual({ programs: 400 });
});

test("a search says what it has reached", () => {
  expect(coverageIn("a\ncoverage: 9 of 10 accesses\nb")).toBe("9 of 10 accesses");
  expect(coverageIn("no word of it")).toBe("");
});

test("the page has a row for each search, and failures with the commands that show them again", () => {
  const [first, second] = searches(3, engines);
  if (!first || !second) throw new Error("there are two searches");
  const attempt = { turn: 3, seconds: 60, counts: { programs: 400 }, coverage: "9 of 10", text: "a < b" };
  const attempts: Attempt[] = [
    { ...first, ...attempt, state: "passed" },
    { ...first, seeds: [1201, 1600], ...attempt, turn: 4, state: "failed" },
    { ...second, ...attempt, state: "interrupted" },
  ];
  const page = nightPage(attempts, { begin: 0, now: 3_600_000 });
  expect(page).toContain("<title>1 failure in 60 minutes</title>");
  expect(page).toContain("3 searches in 60 minutes, from 1970-01-01 00:00 UTC: 1,200 programs.");
  expect(page).toContain(
    "<td>801 to 1,600</td><td>800 programs</td><td>9 of 10</td><td>120</td><td>1 failed</td>",
  );
  expect(page).toContain("<td>interrupted by the end</td>");
  expect(page).toContain("npm run compare -- --engine threads --seed 801 --programs 400");
  expect(page).toContain("a &#60; b");
  expect(nightPage(attempts.slice(0, 1), { begin: 0, now: 0 })).not.toContain("<h2>Failures</h2>");
});
