import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { nodeProgram } from "./support/built.js";
import { withoutChoices } from "./support/environment.js";

interface Ending {
  readonly code: number | null;
  readonly signal: string | null;
  readonly output: string;
}

/** Runs the fixture with a hard limit; `onRunning` is called when it has started a run. */
function run(mode: string, onRunning?: (child: ChildProcessByStdio<null, Readable, Readable>) => void) {
  const child = spawn(process.execPath, [...nodeProgram("test/fixtures/engineProcess.ts"), mode], {
    env: withoutChoices,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const limit = setTimeout(() => child.kill("SIGKILL"), 60_000);
  child.stdout.on("data", (text) => {
    output += text;
    if (output.includes("running")) onRunning?.(child);
  });
  child.stderr.on("data", (text) => {
    output += text;
  });
  return new Promise<Ending>((resolve) => {
    child.on("close", (code, signal) => {
      clearTimeout(limit);
      resolve({ code, signal, output });
    });
  });
}

describe("a process with a threads engine", () => {
  test.each(["open", "idle", "finish"])("ends by itself when the engine is left open (%s)", async (mode) => {
    const { code, signal } = await run(mode);
    expect({ code, signal }).toEqual({ code: 0, signal: null });
  });

  test("stays until what it awaits is there", async () => {
    const { code, output } = await run("await");
    expect({ code, output }).toEqual({ code: 0, output: "running\n1,2,3,4\n" });
  });

  test.each(["throw", "exit"])("learns of a worker that fails (%s) and can end", async (mode) => {
    const { code, output } = await run(mode);
    expect(code).toBe(1);
    expect(output).toContain("DeviceFailedError");
    expect(output).toContain('device 1, program "copy", step 0');
  });

  test("ends at once on Ctrl-C while a device hangs", async () => {
    let asked = false;
    const { signal } = await run("hang", (child) => {
      if (asked) return;
      asked = true;
      setTimeout(() => child.kill("SIGINT"), 200);
    });
    expect(signal).toBe("SIGINT");
  });
});
