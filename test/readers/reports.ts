/** What came of readers, in one process or several, counted and in words. */
import type { Fuzzed } from "./fuzz.js";

/** What came of one reader in one process. */
export interface Report extends Omit<Fuzzed, "bad"> {
  readonly reader: string;
  readonly seconds: number;
  /** The first input that it does not withstand. */
  readonly failure: { readonly file: string; readonly error: string } | undefined;
}

const number = new Intl.NumberFormat("en");

/** A line about a reader, and its failures with the commands that show them again. */
export function describeReader(reports: readonly Report[]): string {
  const [{ reader = "" } = {}] = reports;
  const sum = (of: (report: Report) => number) => reports.reduce((total, report) => total + of(report), 0);
  const tried = sum(({ numInputs }) => numInputs);
  // Processes reach nearly the same places, so that they cannot be added up.
  const reached = Math.max(...reports.map(({ numCovered }) => numCovered));
  const lines = [
    `${reader}: ${number.format(tried)} tried at ${number.format(Math.round((tried * reports.length) / sum(({ seconds }) => seconds)))} a second, ${number.format(sum(({ numAccepted }) => numAccepted))} accepted, ${number.format(sum(({ numKept }) => numKept))} kept, ${number.format(reached)} characters of the sources reached`,
  ];
  for (const { failure } of reports) {
    if (failure === undefined) continue;
    lines.push(
      `  npm run fuzz:readers -- --reader ${JSON.stringify(reader)} --file ${failure.file}`,
      failure.error,
    );
  }
  return lines.join("\n");
}

/** The reports of each reader. */
export function byReader(reports: readonly Report[]): Report[][] {
  const names = [...new Set(reports.map(({ reader }) => reader))];
  return names.map((name) => reports.filter(({ reader }) => reader === name));
}

/** The last lines: of all readers together. */
export function describeSum(reports: readonly Report[], seconds: number): string {
  const groups = byReader(reports);
  let reached = 0;
  for (const own of groups) reached += Math.max(...own.map(({ numCovered }) => numCovered));
  const tried = reports.reduce((total, { numInputs }) => total + numInputs, 0);
  const numBad = groups.filter((own) => own.some(({ failure }) => failure)).length;
  return [
    `coverage: ${number.format(reached)} characters of the sources of ${groups.length} readers`,
    `${number.format(tried)} inputs in ${Math.round(seconds)} s, ${numBad} readers failed`,
  ].join("\n");
}
