/** Runs the command line in a process of its own, for tests. */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/** The arguments of `node` that run the command line from its sources. */
export const nodeArguments: readonly string[] = [
  "--import",
  new URL("../../scripts/typescript.mjs", import.meta.url).href,
  path("main.ts"),
];

/** The environment without what tests choose. */
export const userEnvironment: NodeJS.ProcessEnv = { ...process.env, SHARDWISE_ENGINE: "threads" };

/** How a process ended. */
export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
  readonly out: string;
  readonly err: string;
}

/** Starts `shardwise` in a folder, on worker threads as its users do. */
export function startShardwise(cwd: string, args: readonly string[]): ChildProcess {
  return spawn(process.execPath, [...nodeArguments, ...args], { cwd, env: userEnvironment });
}

/** Waits for the end of a process. @param onError called with all that it said on standard error so far */
export function ended(child: ChildProcess, onError: (text: string) => void = () => {}): Promise<Ended> {
  let [out, err] = ["", ""];
  child.stdout?.on("data", (data) => {
    out += String(data);
  });
  child.stderr?.on("data", (data) => {
    err += String(data);
    onError(err);
  });
  return new Promise((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal, out, err }));
  });
}
