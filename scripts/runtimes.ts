/**
 * Runs the suite and a benchmark on other versions of Node, and a program on Bun and Deno; what is missing is fetched
 * from npm:
 *
 *   npm run test:nodes                              everything on every version, Bun and Deno
 *   npm run test:nodes -- --runtimes node-22,bun    some of them
 *   npm run test:nodes -- --short                   the files where versions differ, in a minute each, no benchmark
 *
 * Ends with 0 when all passed, with 1 when something failed, and with 3 when a runtime could not be fetched.
 */
import { spawnSync } from "node:child_process";
import { delimiter, dirname, join } from "node:path";
import { fetchRuntime, isFetched, type Runtime, runtimes } from "./runtimeFolders.js";

const shortFiles = [
  "test/runtimes.test.ts",
  "src/compiler/wasm",
  "src/compiler/gemm",
  "src/engines/threads/engine.test.ts",
  "src/engines/workers/engineMemory.test.ts",
  "src/engines/collectives/moveKernels.test.ts",
  "src/engines/threads/failure.test.ts",
  "src/engines/inline",
];

const fetchFailed = 3;

function main(args: readonly string[]): number {
  const short = args.includes("--short");
  const at = args.indexOf("--runtimes");
  const names = at < 0 ? runtimes.map(({ name }) => name) : (args[at + 1] ?? "").split(",");
  const unknown = names.filter((name) => !runtimes.some((runtime) => runtime.name === name));
  if (unknown.length > 0) {
    console.error(`unknown runtime ${unknown}: use ${runtimes.map(({ name }) => name).join(", ")}`);
    return 2;
  }
  const chosen = runtimes.filter(({ name }) => names.includes(name));
  const missing = chosen.filter((runtime) => !isFetched(runtime) && !fetchRuntime(runtime));
  for (const { source } of missing) console.log(`${source} could not be fetched from npm: it is left out`);
  const there = chosen.filter((runtime) => !missing.includes(runtime));
  const results = there.filter(({ name }) => name.startsWith("node-")).map((node) => runOn(node, short));
  // Bun and Deno run the program that the test runs on every installed runtime.
  if (there.some(({ name }) => !name.startsWith("node-"))) {
    results.push(run("Bun and Deno", process.execPath, [...vitest, "test/runtimes.test.ts"]));
  }
  if (results.includes(false)) return 1;
  return missing.length > 0 ? fetchFailed : 0;
}

const vitest = [join("node_modules", "vitest", "vitest.mjs"), "run"];

function runOn({ name, program }: Runtime, short: boolean): boolean {
  const suite = run(`the suite on ${name}`, program, [...vitest, ...(short ? shortFiles : [])]);
  if (short) return suite;
  const bench = ["--import", "./scripts/typescript.mjs", "bench/run.ts", "kernels", "collectives"];
  return run(`a benchmark on ${name}`, program, bench) && suite;
}

/** Runs a program with its own folder first in PATH, so that what it starts by name is the same version. */
function run(what: string, program: string, args: readonly string[]): boolean {
  console.log(`== ${what}`);
  const PATH = [dirname(program), process.env.PATH ?? ""].join(delimiter);
  const { status } = spawnSync(program, args, { stdio: "inherit", env: { ...process.env, PATH } });
  if (status !== 0) console.log(`-- failed: ${what}`);
  return status === 0;
}

process.exitCode = main(process.argv.slice(2));
