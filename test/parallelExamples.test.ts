import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { nodeProgram } from "./support/built.js";
import { userEnvironment } from "./support/environment.js";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Runs an example; it fails when its loss stays above the target. */
async function run(name: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, nodeProgram(`examples/${name}.ts`), {
    cwd: root,
    env: { ...userEnvironment, ...env },
  });
  return stdout;
}

describe("the example", () => {
  test.each([
    ["fsdp", 'Dense_0/kernel: Partitioned(null, "fsdp")'],
    ["tensor-parallel", "9 ppermute"],
    ["context", "18 ppermute"],
    ["pipeline", "stage 3  · · · 0 1 2 3 4 5 6 7"],
    ["schedules", "zb-h1: 8 % bubble, keeps the activations of 2 parts at most"],
    ["experts", "raggedAllToAll"],
    ["three-d", 'up/module/sharded/kernel: Partitioned("pipe", "model", null, "data")'],
  ])("%s reaches its loss", { timeout: 120_000 }, async (name, shown) => {
    // Five schedules take turns in one of them, and half of its steps reach the target.
    expect(await run(name, name === "schedules" ? { STEPS: "20" } : {})).toContain(shown);
  });

  test("fsdp fails when its loss stays above the target", { timeout: 120_000 }, async () => {
    await expect(run("fsdp", { STEPS: "1" })).rejects.toThrow("it should be below 0.05");
  });
});
