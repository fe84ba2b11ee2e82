/**
 * Runs everything that is tried by seed, in turns, with new seeds in every turn, for a given time:
 *
 *   npm run night                             # eight hours
 *   npm run night -- --minutes 20 --from 5    # shorter, beginning with the fifth turn
 *
 * The page `runs/night/index.html` (or `--out FOLDER`) is written anew after every search: what was tried, with which
 * seeds, and every failure with the command that shows it again.
 */
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { findLaunchers } from "../support/launchers.js";
import { endGroup } from "../support/processGroup.js";
import { type Attempt, nightPage } from "./page.js";
import { countsIn, coverageIn, searches, TURN_MINUTES } from "./searches.js";

const { values: options } = parseArgs({
  options: {
    minutes: { type: "string", default: "480" },
    from: { type: "string", default: "1" },
    out: { type: "string", default: "runs/night" },
  },
});
const [minutes, from] = [Number(options.minutes), Number(options.from)];
if (!(minutes > 0 && Number.isInteger(from) && from > 0)) {
  console.error("--minutes takes a number above 0, and --from an integer from 1");
  process.exit(2);
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const begin = Date.now();
const end = begin + 60_000 * minutes;

/** Runs a command of package.json until it ends, or until the night does. */
function run(command: readonly string[], env: Readonly<Record<string, string>>) {
  return new Promise<{ readonly code: number | null; readonly text: string }>((resolve) => {
    const child = spawn("npm", ["run", "--silent", ...command], {
      cwd: root,
      env: { ...process.env, NO_COLOR: "1", ...env },
      stdio: ["ignore", "pipe", "pipe"],
      // Its own group, so that all of its processes can be ended.
      detached: true,
    });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk: Buffer) => {
        text += chunk;
      });
    }
    const timer = setTimeout(() => endGroup(child), end - Date.now());
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code, text });
    });
  });
}

const attempts: Attempt[] = [];
const engines = ["threads", "inline", ...(findLaunchers().length > 0 ? ["mpi"] : [])];
if (process.env.SHARDWISE_PYTHON) engines.push("xla");
const folder = resolve(root, options.out);
mkdirSync(folder, { recursive: true });

for (let turn = from; Date.now() < end; turn++) {
  for (const search of searches(turn, engines, Math.min(1, minutes / TURN_MINUTES))) {
    if (Date.now() >= end) break;
    const started = Date.now();
    const { code, text } = await run(search.command, search.env);
    const seconds = (Date.now() - started) / 1000;
    // What the end of the night interrupts has neither passed nor failed.
    const state = code === 0 ? "passed" : code === null && Date.now() >= end ? "interrupted" : "failed";
    const counts = countsIn(text);
    attempts.push({ ...search, turn, state, seconds, counts, coverage: coverageIn(text), text });
    const tried = Object.entries(counts).map(([what, count]) => `${count} ${what}`);
    console.log(`turn ${turn}, ${search.name}: ${state} in ${Math.round(seconds)} s; ${tried.join(", ")}`);
    if (state === "failed") console.log(text.slice(-4000));
    writeFileSync(join(folder, "index.html"), nightPage(attempts, { begin, now: Date.now() }));
  }
}
const numFailed = attempts.filter(({ state }) => state === "failed").length;
const numTurns = new Set(attempts.map(({ turn }) => turn)).size;
console.log(
  `${attempts.length} searches in ${numTurns} turns, ${numFailed} failed: ${join(options.out, "index.html")}`,
);
process.exit(numFailed > 0 ? 1 : 0);
