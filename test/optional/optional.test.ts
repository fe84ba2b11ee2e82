/** What a machine may lack: its absence skips, with the reason, and its presence runs. */
import { execFile, execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { withoutChoices } from "../support/environment.js";
import { bothOf, compiler, installable, koffi, testWith, toolPrefixes } from "../support/optional.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "shardwise-optional-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** The parts of a report in JSON that are looked at. */
interface Report {
  readonly testResults: readonly {
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}

interface Outcome {
  /** The states of tests by their names, reasons left out. */
  readonly states: Readonly<Record<string, string>>;
  /** All that was printed. */
  readonly text: string;
}

/** Runs a test of each thing in a machine with this environment. */
function runIn(environment: NodeJS.ProcessEnv): Promise<Outcome> {
  const { CHROMIUM: _, NODE_OPTIONS: __, SHARDWISE_SKIPPED: ___, ...inherited } = withoutChoices;
  const args = [join(root, "node_modules/vitest/vitest.mjs"), "run", "--config", path("vitest.config.ts")];
  const env = { ...inherited, ...environment };
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [...args, "--root", root], { cwd: root, env }, (error, stdout, stderr) => {
      const json = stdout.split("\n").find((line) => line.startsWith("{"));
      if (error || json === undefined) return reject(new Error(`${stdout}${stderr}`, { cause: error }));
      const report: Report = JSON.parse(json);
      const results = report.testResults.flatMap(({ assertionResults }) => assertionResults);
      const states = results.map(({ fullName, status }) => [fullName.replace(/ ?\(needs .*/, ""), status]);
      resolve({ states: Object.fromEntries(states), text: stdout });
    });
  });
}

/** The states that tests of these things should have. */
function statesOf(names: readonly string[], state: string, group: string): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => [
      [`${name}: a test`, state],
      [`${name}: a group${group}`, state],
    ]),
  );
}

/** A folder of programs that do nothing but say what they are. */
function programs(said: Readonly<Record<string, string>>): string {
  const made = mkdtempSync(join(folder, "programs-"));
  for (const [name, text] of Object.entries(said)) {
    writeFileSync(join(made, name), `#!/bin/sh\necho "${text}"\n`);
    chmodSync(join(made, name), 0o755);
  }
  return made;
}

test("what is missing skips its tests, and the run says what they need", { concurrent: true }, async () => {
  const { states, text } = await runIn({
    PATH: programs({}),
    SHARDWISE_BLAS: "none",
    SHARDWISE_TEST_SYSTEM: join(folder, "nowhere"),
    SHARDWISE_TEST_WEBGPU: "no-such-package",
    NODE_OPTIONS: `--require ${path("withoutKoffi.cjs")}`,
    SHARDWISE_SKIPPED: join(folder, "skipped"),
  });
  const names = Object.keys(installable);
  expect(states).toEqual({ ...statesOf(names, "skipped", ""), "all of it": "skipped" });
  for (const { name } of Object.values(installable))
    expect(text).toContain(`\nskipped, needs ${name}: test/optional/things.ts\n`);
  expect(text).toMatch(/\n0 passed, 0 failed\n$/);
  expect(readFileSync(join(folder, "skipped"), "utf8")).toBe("test/optional/things.ts\n");
});

testWith(bothOf(compiler, koffi), "what is there has its tests run", { concurrent: true }, async () => {
  const blas = join(folder, "blas.so");
  execFileSync("cc", ["-shared", "-fPIC", "-o", blas, path("blas.c")]);
  mkdirSync(join(folder, "sys/kernel/mm/transparent_hugepage"), { recursive: true });
  const tools = ["cc", "aarch64-linux-gnu-gcc", "qemu-aarch64"];
  const binutils = Object.values(toolPrefixes).flatMap((prefix) => [`${prefix}as`, `${prefix}objcopy`]);
  const { states, text } = await runIn({
    PATH: programs({
      ...Object.fromEntries([...tools, ...binutils, "chromium"].map((name) => [name, name])),
      "mpirun.openmpi": "mpirun (Open MPI) 4.1.4",
    }),
    SHARDWISE_BLAS: blas,
    SHARDWISE_TEST_SYSTEM: folder,
    SHARDWISE_TEST_WEBGPU:
      "data:text/javascript,export const create = () => ({ requestAdapter: () => ({}) })",
  });
  expect(states).toEqual(statesOf(Object.keys(installable), "passed", " of tests"));
  expect(text).not.toContain("skipped, needs");
});

test("nothing skips a test but what lists the things that may be missing", () => {
  const files = ["src", "test"].flatMap((name) =>
    readdirSync(join(root, name), { recursive: true, encoding: "utf8" })
      .map((file) => join(name, file))
      .filter((file) => file.endsWith(".test.ts")),
  );
  expect(files.length).toBeGreaterThan(200);
  const skipping = /\.(skipIf|runIf|skip|todo)\b\(/;
  const own = files.filter((file) => skipping.test(readFileSync(join(root, file), "utf8")));
  expect(own).toEqual([]);
});
