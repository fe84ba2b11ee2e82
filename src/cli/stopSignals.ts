import { readFileSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { exitCodes } from "./command.js";

/** Within this many milliseconds a second signal is the same keypress, forwarded by npm as well as the terminal. */
const sameKeypress = 100;

/** Signals that ask a run to end. */
const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Whether the process was started by `nohup`, judged by its traces, since Node resets ignored signals: bash and
 * zsh put the command into `_`, scripts under `nohup` ignore the signal themselves, and instead of a terminal there is
 * `/dev/null` opened write-only, or the file `nohup.out`.
 */
export function isUnderNohup(): boolean {
  return basename(process.env._ ?? "") === "nohup" || parentIgnoresHangup() || hasNohupFiles();
}

/** Whether the parent ignores hang-ups, which its children would inherit. */
function parentIgnoresHangup(): boolean {
  try {
    const status = readFileSync(`/proc/${process.ppid}/status`, "utf8");
    const ignored = /^SigIgn:\s*([0-9a-f]+)/m.exec(status)?.[1];
    // The lowest bit is that of the first signal, SIGHUP.
    return (Number.parseInt(ignored?.slice(-1) ?? "0", 16) & 1) === 1;
  } catch {
    return false;
  }
}

function hasNohupFiles(): boolean {
  const target = (fd: number) => readlinkSync(`/proc/self/fd/${fd}`);
  try {
    if (basename(target(1)) === "nohup.out" || basename(target(2)) === "nohup.out") return true;
    const flags = /^flags:\s*(\d+)/m.exec(readFileSync("/proc/self/fdinfo/0", "utf8"))?.[1];
    return target(0) === "/dev/null" && (Number.parseInt(flags ?? "0", 8) & 3) === 1;
  } catch {
    return false;
  }
}

/** Keeps hang-ups from ending a process that was started by `nohup`. */
export function respectNohup(): void {
  if (isUnderNohup()) process.on("SIGHUP", () => {});
}

/** Listens for signals that ask a run to end. */
export interface Interrupts {
  /** Starts listening; until then signals end the process at once, even while it is too busy to handle them. */
  listen(): void;
  /** Stops listening, unless a second interrupt may still come while the process ends. */
  forget(): void;
}

/** Keeps the default: signals end the process. */
export const noInterrupts: Interrupts = { listen: () => {}, forget: () => {} };

const wantedSignals = () => signals.filter((signal) => signal !== "SIGHUP" || !isUnderNohup());

/** The first interrupt asks the run to end after its step, the second ends the process at once. */
export function onInterrupt(stop: AbortController): Interrupts {
  let first = Number.NEGATIVE_INFINITY;
  const wanted = wantedSignals();
  const listener = () => {
    const now = performance.now();
    if (now - first < sameKeypress) return;
    // Checkpoints are written atomically, so exiting now loses nothing.
    if (stop.signal.aborted) process.exit(exitCodes.interrupted);
    first = now;
    process.stderr.write("\nstopping after this step and saving; press Ctrl-C again to stop at once\n");
    stop.abort();
  };
  return {
    listen: () => {
      for (const signal of wanted) process.on(signal, listener);
    },
    forget: () => {
      if (stop.signal.aborted) return;
      for (const signal of wanted) process.off(signal, listener);
    },
  };
}

/** Ends the process at an interrupt with a sentence about what is kept. @returns stops listening */
export function explainInterrupts(said: string): () => void {
  const wanted = wantedSignals();
  const listener = () => {
    process.stderr.write(`\ninterrupted: ${said}\n`);
    process.exit(exitCodes.interrupted);
  };
  for (const signal of wanted) process.on(signal, listener);
  return () => {
    for (const signal of wanted) process.off(signal, listener);
  };
}
