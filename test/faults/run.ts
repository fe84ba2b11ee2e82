/**
 * `npm run faults`: every row of the table of faults, each area in a process of its own, and `docs/faults.md` from
 * what was seen, once every row was seen as it should be. `SEED=7` takes other random places, `FAULT=SIGKILL` only rows whose fault says so.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { areas } from "./areas.js";
import type { FaultResult } from "./row.js";

const seed = Number(process.env.SEED ?? Date.now() % 1e6);
const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const loader = new URL("../../scripts/typescript.mjs", import.meta.url).href;

function probe(title: string): Promise<FaultResult[]> {
  const child = spawn(process.execPath, ["--import", loader, path("./probe.ts"), title, String(seed)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const results: FaultResult[] = [];
  let rest = "";
  child.stdout.on("data", (data) => {
    const lines = (rest + String(data)).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const result: FaultResult = JSON.parse(line);
      results.push(result);
      const state = result.problem === undefined ? "as it should be" : `WRONG: ${result.problem}`;
      process.stdout.write(`  ${result.fault} (${formatTime(result.milliseconds)}): ${state}\n`);
    }
  });
  return new Promise((resolve, reject) => {
    child.on("close", (code) =>
      code === 0 ? resolve(results) : reject(new Error(`the rows of "${title}" ended with code ${code}`)),
    );
  });
}

function formatTime(ms: number): string {
  return ms < 1000 ? `${Math.max(1, Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** What was seen, in a cell of a table: the sentence that matters, without places of this machine. */
function cell(text: string): string {
  const line = text
    .replaceAll(/\/\S*shardwise-fault-[^/\s:,]+/g, "…")
    .replaceAll(/(?:file:\/\/)?\/(?:[\w.-]+\/)+[\w.-]+/g, "…")
    .replaceAll(/[\r\n]+/g, " ")
    .replaceAll(/\s{2,}/g, " ")
    .replaceAll("|", "\\|")
    .trim();
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}

function page(results: ReadonlyMap<string, readonly FaultResult[]>): string {
  const count = [...results.values()].reduce((sum, list) => sum + list.length, 0);
  const tables = [...results].map(([title, list]) =>
    [
      `## ${title}`,
      "",
      "| fault | what the user sees | time to detection | what is lost |",
      "| --- | --- | --- | --- |",
      ...list.map(
        ({ fault, seen, milliseconds, lost }) =>
          `| ${fault} | ${cell(seen)} | ${formatTime(milliseconds)} | ${lost} |`,
      ),
    ].join("\n"),
  );
  return `${[
    "# Faults",
    `${count} faults, what a user sees, how long it takes to be detected and what is lost. \`npm run faults\` causes all of them in real processes and writes this page from the results; some of them run with the everyday tests. Times are from one run on a busy machine, and for faults of whole runs they include starting the processes.`,
    ...tables,
  ].join("\n\n")}\n`;
}

/** What became of rows before, so that a row can be done again alone. */
const store = path("../../runs/faults.json");
const known = new Map<string, FaultResult>(existsSync(store) ? JSON.parse(readFileSync(store, "utf8")) : []);
const isRight = (result: FaultResult | undefined) => result !== undefined && result.problem === undefined;

process.stdout.write(`seed ${seed} (SEED=${seed} npm run faults repeats it)\n`);
const done = await Promise.all(areas.map(({ title }) => probe(title)));
for (const result of done.flat()) known.set(result.fault, result);
mkdirSync(dirname(store), { recursive: true });
writeFileSync(store, JSON.stringify([...known]));
const rows = areas.map(
  ({ title, rows: list }) => [title, list.flatMap(({ fault }) => known.get(fault) ?? [])] as const,
);
const wrong = done.flat().filter(({ problem }) => problem !== undefined);
const isWhole = areas.every(({ rows: list }) => list.every(({ fault }) => isRight(known.get(fault))));
if (isWhole) writeFileSync(path("../../docs/faults.md"), page(new Map(rows)));
process.stdout.write(`${done.flat().length - wrong.length} passed, ${wrong.length} failed\n`);
process.exit(wrong.length === 0 ? 0 : 1);
