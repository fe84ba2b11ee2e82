/** What many seeds led to, counted. */
import { faultKinds } from "./faults.js";
import type { Jobs } from "./search.js";

export interface Summary {
  numSeeds: number;
  /** How many jobs ended with the undisturbed values when first started, and how many after an error or a loss. */
  numFirst: number;
  numAgain: number;
  numStarts: number;
  numMessages: number;
  /** Simulated time in milliseconds. */
  time: number;
  /** How often each kind of fault happened, and how often each kind of error was seen. */
  readonly faults: Map<string, number>;
  readonly errors: Map<string, number>;
  readonly failures: { readonly seed: number; readonly kind: string; readonly message: string }[];
}

export const emptySummary = (): Summary => ({
  numSeeds: 0,
  numFirst: 0,
  numAgain: 0,
  numStarts: 0,
  numMessages: 0,
  time: 0,
  faults: new Map(),
  errors: new Map(),
  failures: [],
});

/** Runs seeds from one on, until there are enough or the time (of `Date.now`) is over. */
export function runSeeds(jobs: Jobs, first: number, count: number, until = Infinity): Summary {
  const summary = emptySummary();
  for (let seed = first; seed < first + count && Date.now() < until; seed++) {
    const { outcome, failure } = jobs.run(jobs.sound, seed);
    summary.numSeeds++;
    if (failure) summary.failures.push({ seed, kind: failure.kind, message: failure.message });
    if (outcome === undefined) continue;
    if (outcome.numStarts === 1) summary.numFirst++;
    else summary.numAgain++;
    summary.numStarts += outcome.numStarts;
    summary.numMessages += outcome.numMessages;
    summary.time += outcome.time;
    for (const { kind } of outcome.happened) increment(summary.faults, kind);
    for (const error of outcome.errors) increment(summary.errors, kindOf(error));
  }
  return summary;
}

/** Adds what other seeds led to. */
export function addSummary(to: Summary, more: Summary): void {
  for (const key of ["numSeeds", "numFirst", "numAgain", "numStarts", "numMessages", "time"] as const)
    to[key] += more[key];
  for (const key of ["faults", "errors"] as const)
    for (const [kind, count] of more[key]) increment(to[key], kind, count);
  to.failures.push(...more.failures);
}

/** An error without the numbers and places that differ from seed to seed. */
function kindOf(text: string): string {
  const [name = ""] = text.split(":");
  const kinds = ["says nothing", "is late", "it has waited", "has left the run", "could not be written"];
  return `${name}: ${kinds.find((kind) => text.includes(kind)) ?? text.slice(name.length, 80)}`;
}

function increment(counts: Map<string, number>, key: string, by = 1): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

/** A summary in lines. */
export function describeSummary(summary: Summary): string[] {
  const { numSeeds, numFirst, numAgain, numStarts, numMessages, time, faults, errors, failures } = summary;
  const number = new Intl.NumberFormat("en");
  const list = (counts: ReadonlyMap<string, number>) =>
    [...counts].map(([key, count]) => `${key} ${number.format(count)}`).join(", ") || "none";
  return [
    `${number.format(numSeeds)} schedules, ${number.format(numStarts)} starts of the job, ${number.format(numMessages)} messages, ${number.format(Math.round(time / 1000))} simulated seconds`,
    `ended with the undisturbed bits: ${number.format(numFirst)} when first started, ${number.format(numAgain)} after starting again`,
    `faults: ${list(faults)}`,
    `errors, all of them promised: ${list(errors)}`,
    `coverage: ${faults.size} of ${faultKinds.length} kinds of faults; kinds of promised errors: ${errors.size}`,
    `failures: ${failures.length}`,
    ...failures.map(({ seed, kind, message }) => `  seed ${seed}: ${kind}: ${message.slice(0, 300)}`),
  ];
}
