/** The rows of the table of faults: what is done, what a user then sees, and what is lost. */
import { ShardwiseError } from "../../src/index.js";

/** One fault. */
export interface FaultRow {
  /** What goes wrong, in words of the table. */
  readonly fault: string;
  /** What the user sees: the text of an error, or of what a process wrote. */
  readonly sees: RegExp;
  /** What is lost; nothing, unless it says so. */
  readonly lost?: string;
  /** Makes the fault and returns what was seen, or throws it. */
  act(context: FaultContext): unknown;
}

/** What a row may use. */
export interface FaultContext {
  /** A folder of the row's own. */
  readonly folder: string;
  /** Random numbers from 0 to 1, the same ones for the same seed. */
  random(): number;
}

/** A part of the table, whose rows run in one process. */
export interface FaultArea {
  readonly title: string;
  readonly rows: readonly FaultRow[];
}

/** What became of a row. */
export interface FaultResult {
  readonly fault: string;
  readonly seen: string;
  readonly milliseconds: number;
  readonly lost: string;
  /** Why it is not as it should be; undefined when it is. */
  readonly problem?: string | undefined;
}

/** Runs one row and compares what was seen with what should be. */
export async function runRow(row: FaultRow, context: FaultContext): Promise<FaultResult> {
  const begin = performance.now();
  let seen: string;
  let problem: string | undefined;
  try {
    seen = String((await row.act(context)) ?? "nothing");
  } catch (error) {
    seen = error instanceof Error ? error.message : String(error);
    if (!(error instanceof ShardwiseError)) problem = `no typed error: ${error}`;
    else if (error.code === "internal") problem = `an internal error: ${error.message}`;
  }
  const milliseconds = performance.now() - begin;
  if (problem === undefined && !row.sees.test(seen)) problem = `${row.sees} does not match ${seen}`;
  return { fault: row.fault, seen, milliseconds, lost: row.lost ?? "nothing", problem };
}

/** Random numbers that a seed decides. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
