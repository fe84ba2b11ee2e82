/** Runs seeds in several processes side by side. */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { addSummary, emptySummary, type Summary } from "./summary.js";

/** Seeds for a process to run, until a time. */
export interface Portion {
  readonly first: number;
  readonly count: number;
  readonly until: number;
}

export interface Outcome {
  readonly summary: Summary;
  /** The seeds that a process began with and did not finish, because it ended or took too long. */
  readonly lost: readonly string[];
}

/** Few seeds at a time, so that all processes end at about the same moment. */
const PORTION = 10;

/** A process that is still busy this long after the end hangs. */
const GRACE_MS = 60_000;

/** Runs seeds in some processes, until there are enough or the time (of `Date.now`) is over. */
export async function runSideBySide(
  numProcesses: number,
  first: number,
  count: number,
  until: number,
): Promise<Outcome> {
  const summary = emptySummary();
  const lost: string[] = [];
  let next = first;
  const take = (): Portion | undefined => {
    if (next >= first + count || Date.now() >= until) return undefined;
    const portion = { first: next, count: Math.min(PORTION, first + count - next), until };
    next += portion.count;
    return portion;
  };
  const feed = (child: ChildProcess) =>
    new Promise<void>((resolve) => {
      let portion: Portion | undefined;
      const give = () => {
        portion = take();
        if (portion) child.send(portion);
        else child.disconnect();
      };
      const timer = setTimeout(
        () => child.kill("SIGKILL"),
        Math.min(until - Date.now() + GRACE_MS, 2 ** 31 - 1),
      );
      child.on("message", (made: Summary) => {
        addSummary(summary, made);
        give();
      });
      child.on("exit", (code, signal) => {
        clearTimeout(timer);
        if (portion)
          lost.push(`${portion.first} to ${portion.first + portion.count - 1} (${signal ?? code})`);
        resolve();
      });
      give();
    });
  const file = fileURLToPath(new URL("sideBySideProcess.ts", import.meta.url));
  const children = Array.from({ length: numProcesses }, () => fork(file, { serialization: "advanced" }));
  await Promise.all(children.map(feed));
  summary.failures.sort((a, b) => a.seed - b.seed);
  return { summary, lost };
}
