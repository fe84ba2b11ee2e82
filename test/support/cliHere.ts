/** Runs the command line in the test's own process: for what does not depend on how a process starts and ends. */
import { vi } from "vitest";
import { main } from "../../src/cli/runCommand.js";
import { chooseEngine } from "../../src/engines/default.js";
import type { Ended } from "./cliProcess.js";

/** What a command said and returned. */
export type Said = Omit<Ended, "signal">;

/** Runs a command that needs no engine. */
export async function said(...args: readonly string[]): Promise<Said> {
  const caught = { out: "", err: "" };
  const spies = [[process.stdout, "out"] as const, [process.stderr, "err"] as const].map(([stream, name]) =>
    vi.spyOn(stream, "write").mockImplementation((text) => {
      caught[name] += String(text);
      return true;
    }),
  );
  const code = await main(args).finally(() => {
    for (const spy of spies) spy.mockRestore();
  });
  return { code, ...caught };
}

/** Runs a command on worker threads, as users do. */
export async function saidOnThreads(...args: readonly string[]): Promise<Said> {
  try {
    return await said(...args, "--engine", "threads");
  } finally {
    await chooseEngine(undefined);
  }
}
