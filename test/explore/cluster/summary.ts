/** What many seeds led to, counted. */
import type { Code, Jobs, Result } from "./search.js";

export interface Summary {
  numSeeds: number;
  numStarts: number;
  numMessages: number;
  /** Simulated time in milliseconds. */
  time: number;
  /** How often each kind of fault happened, and how often each kind of error was seen. */
  readonly faults: Map<string, number>;
  readonly errors: Map<string, number>;
  readonly failures: { readonly seed: number; readonly result: Result }[];
}

/** Runs seeds from one on, until there are enough or the time is over. */
export function runSeeds(jobs: Jobs, code: Code, first: number, count: number, until = Infinity): Summary {
  const summary: Summary = {
    numSeeds: 0,
    numStarts: 0,
    numMessages: 0,
    time: 0,
    faults: new Map(),
    errors: new Map(),
    failures: [],
  };
  for (let seed = first; seed < first + count && performance.now() < until; seed++) {
    const result = jobs.run(code, seed);
    summary.numSeeds++;
    if (result.failure) summary.failures.push({ seed, result });
    const { outcome } = result;
    if (outcome === undefined) continue;
    summary.numStarts += outcome.numStarts;
    summary.numMessages += outcome.numMessages;
    summary.time += outcome.time;
    for (const kind of outcome.happened) increment(summary.faults, kind);
    for (const error of outcome.errors) increment(summary.errors, kindOf(error));
  }
  return summary;
}

/** An error without the numbers and places that differ from seed to seed. */
function kindOf(text: string): string {
  const [name = ""] = text.split(":");
  const kinds = ["says nothing", "is late", "it has waited", "has left the run", "could not be written"];
  return `${name}: ${kinds.find((kind) => text.includes(kind)) ?? text.slice(name.length, 80)}`;
}

function increment(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** A summary in lines. */
export function describeSummary({
  numSeeds,
  numStarts,
  numMessages,
  time,
  faults,
  errors,
}: Summary): string[] {
  const number = new Intl.NumberFormat("en");
  const list = (counts: ReadonlyMap<string, number>) =>
    [...counts].map(([key, count]) => `${key} ${number.format(count)}`).join(", ") || "none";
  return [
    `${number.format(numSeeds)} schedules, ${number.format(numStarts)} starts of the job, ${number.format(numMessages)} messages, ${number.format(Math.round(time / 1000))} simulated seconds`,
    `faults: ${list(faults)}`,
    `errors, all of them promised: ${list(errors)}`,
  ];
}
