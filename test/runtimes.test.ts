import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { beforeAll, describe, expect, test } from "vitest";
import { nodeVersions, type Runtime, runtimes } from "../scripts/runtimeFolders.js";
import { describeWith, runtime as fetched, testWith } from "./support/optional.js";
import { workerPlugin } from "./support/workerPlugin.js";

const root = fileURLToPath(new URL("../", import.meta.url));
const read = (path: string) => readFileSync(`${root}${path}`, "utf8");
/** Below node_modules, where what is not bundled is found. */
const folder = `${root}node_modules/.cache/runtimes/program`;
const program = `${folder}/runtimeProgram.mjs`;

beforeAll(async () => {
  mkdirSync(folder, { recursive: true });
  await build({
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    external: ["koffi"],
    alias: {
      shardwise: `${root}src/index.ts`,
      "shardwise/engines": `${root}src/engines/index.ts`,
    },
    plugins: [workerPlugin],
    entryPoints: [`${root}test/fixtures/runtimeProgram.ts`],
    outfile: program,
  });
});

/** The sum of the gradient that the program computes, in plain numbers. */
function gradient(): number {
  let sum = 0;
  for (let row = 0; row < 32; row++) {
    const x = Array.from({ length: 16 }, (_, k) => -0.001 * (16 * row + k));
    const sumOfRow = x.reduce((total, value) => total + value, 0);
    for (let column = 0; column < 8; column++) {
      const y = Math.tanh(x.reduce((total, value, k) => total + value * 0.01 * (8 * k + column), 0));
      sum += sumOfRow * (1 - y * y);
    }
  }
  return sum;
}

interface Printed {
  readonly carelessLoop: number;
  readonly gemm: string;
  readonly [gradient: string]: number | string;
}

/** Runs the program and returns what it printed, of which the numbers are checked. */
function runProgram(runtime: Runtime, args: readonly string[] = runtime.arguments): Printed {
  const { stdout, stderr, status } = start(runtime, args);
  expect({ stderr, status }).toEqual({ stderr: "", status: 0 });
  const printed: Printed = JSON.parse(stdout);
  const { carelessLoop, gemm: _, ...gradients } = printed;
  // What is left of 2^18 ones after 61 halvings.
  expect(carelessLoop).toBe(2 ** -43);
  for (const [what, value] of Object.entries(gradients)) {
    expect(value, what).toBeCloseTo(gradient(), 3);
  }
  return printed;
}

function start(runtime: Runtime, args: readonly string[]) {
  const { NODE_OPTIONS: _, SHARDWISE_ENGINE: __, SHARDWISE_VERIFY: ___, ...env } = process.env;
  const options = { encoding: "utf8", env: { ...env, NO_COLOR: "1" }, cwd: folder } as const;
  return spawnSync(runtime.program, [...args, program], options);
}

describe("the program of all runtimes", () => {
  const here = { name: "this one", program: process.execPath, arguments: [], source: "" };
  for (const runtime of [here, ...runtimes]) {
    testWith(fetched(runtime), `runs on ${runtime.name} without a word on stderr`, {}, () => {
      runProgram(runtime);
    });
  }
});

const [deno] = runtimes.filter(({ name }) => name === "deno");
if (deno === undefined) throw new Error("Deno is no runtime");

describeWith(fetched(deno), "Deno's permissions", () => {
  const few = ["run", "--no-prompt", "--allow-sys=systemMemoryInfo"];

  test("need not be more than to know how much memory there is", () => {
    expect(runProgram(deno, few).gemm).toMatch(/WebAssembly/);
  });

  test("of files and native code are those for fast products", () => {
    const native = [`--allow-read=${root}node_modules`, "--allow-ffi"];
    expect(runProgram(deno, [...few, ...native]).gemm).toBe(runProgram(deno).gemm);
  });

  test("that are missing are named, with what they are for", () => {
    const { stderr, status } = start(deno, ["run", "--no-prompt"]);
    expect(status).toBe(1);
    expect(stderr).toContain(
      "Deno does not permit asking how much memory the machine has, which limits that of devices: run with --allow-sys=systemMemoryInfo, or set memoryBytes",
    );
  });
});

describe("the supported versions of Node", () => {
  test("are the same in package.json, README, contributing and continuous integration", () => {
    const { engines }: { readonly engines: { readonly node: string } } = JSON.parse(read("package.json"));
    const [oldest] = nodeVersions;
    const newest = nodeVersions.at(-1);
    expect(engines.node).toBe(`>=${oldest}.19`);
    expect(read("README.md")).toContain(`Node ${oldest}.19 to ${newest}`);
    expect(read("CONTRIBUTING.md")).toContain(`Node ${oldest}.19`);
    expect(read(".ci/run")).toContain(`--runtimes node-${newest}`);
  });
});
