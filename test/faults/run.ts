/**
 * `npm run faults`: every row of the table of faults, each area in a process of its own, and `docs/faults.md` from
 * what was seen. `SEED=7` takes other random places, `FAULT=SIGKILL` only rows whose fault says so.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
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
    .replaceAll(/\S*\/(test|src|docs)\/\S+/g, "…")
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
    `${count} things that go wrong, what a user then sees, how long it takes to see it and what is lost. \`npm run faults\` does all of them in real processes and writes this page from what happened; a part of them runs with the everyday tests. Times are those of one run on a machine with other work, and for faults of whole runs they include starting the processes.`,
    ...tables,
  ].join("\n\n")}\n`;
}

process.stdout.write(`seed ${seed} (SEED=${seed} npm run faults repeats it)\n`);
const results = new Map<string, readonly FaultResult[]>();
for (const { title } of areas) {
  process.stdout.write(`${title}\n`);
  results.set(title, await probe(title));
}
const all = [...results.values()].flat();
const wrong = all.filter(({ problem }) => problem !== undefined);
if (process.env.FAULT === undefined && wrong.length === 0)
  writeFileSync(path("../../docs/faults.md"), page(results));
process.stdout.write(`${all.length - wrong.length} passed, ${wrong.length} failed\n`);
process.exit(wrong.length === 0 ? 0 : 1);
