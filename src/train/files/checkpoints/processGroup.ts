import type { Engine } from "../../../ir/engine.js";
import { ConfigError, ShardwiseError } from "../../../ir/errors.js";
import { range } from "../../../ir/shape.js";
import { reasonOf } from "../disk/fileError.js";
import { isObject } from "../disk/json.js";

/** Processes that work together, as seen by one of them. */
export interface ProcessGroup {
  readonly index: number;
  readonly count: number;
  /** All-gathers a string: returns those of all processes in order. */
  share(text: string): Promise<string[]>;
}

/** A group of one process. */
export const alone: ProcessGroup = { index: 0, count: 1, share: async (text) => [text] };

/** The processes that share the devices of an engine. */
export function processGroupOf(engine: Engine): ProcessGroup {
  const { index, count } = engine.process;
  const { share } = engine;
  if (count === 1) return alone;
  if (share === undefined) {
    throw new ConfigError(
      `[train] the engine "${engine.name}" has ${count} processes but no share(text), by which they agree on settings and checkpoints`,
    );
  }
  return { index, count, share: (text) => share.call(engine, text) };
}

/** The outcome of a task in one process. */
type Report = { readonly done: string } | { readonly failed: string };

/**
 * Runs a task in every process and returns the results of all; if it fails in one, it fails in all with the reason of
 * the first that failed.
 */
export async function together(group: ProcessGroup, task: () => Promise<string>): Promise<string[]> {
  if (group.count === 1) return [await task()];
  let own: Report;
  let cause: unknown;
  try {
    own = { done: await task() };
  } catch (error) {
    cause = error;
    own = { failed: reasonOf(error) };
  }
  const reports = (await group.share(JSON.stringify(own))).map(readReport);
  if ("failed" in own) throw cause;
  const process = range(group.count).find((i) => "failed" in (reports[i] ?? {}));
  const report = process === undefined ? undefined : reports[process];
  if (report && "failed" in report) {
    throw new ShardwiseError("file", `process ${process} of ${group.count}: ${report.failed}`);
  }
  return reports.map((one) => ("done" in one ? one.done : ""));
}

function readReport(text: string): Report {
  const value: unknown = JSON.parse(text);
  if (isObject(value) && typeof value.done === "string") return { done: value.done };
  return { failed: isObject(value) ? String(value.failed) : text };
}

/** Throws in every process unless all of them pass the same string; the error shows where they differ. */
export async function agreeOn(group: ProcessGroup, what: string, own: string): Promise<void> {
  if (group.count === 1) return;
  const texts = await group.share(own);
  const [first = ""] = texts;
  const other = texts.findIndex((text) => text !== first);
  if (other < 0) return;
  const [a, b] = firstDifference(first, texts[other] ?? "");
  throw new ConfigError(
    `[train] the processes differ in ${what}: process 0 has ${a}, process ${other} has ${b}: start all of them with the same arguments, on shared files`,
  );
}

/** Excerpts of two strings from shortly before their first difference. */
function firstDifference(a: string, b: string): [string, string] {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  const begin = Math.max(0, a.lastIndexOf(",", at) + 1);
  const part = (text: string) => text.slice(begin, begin + 80);
  return [part(a), part(b)];
}
