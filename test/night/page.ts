import { escapeHtml } from "../../src/train/report/charts.js";
import { commandLine, type Search, type Span } from "./searches.js";

/** A search, and what came of it. */
export interface Attempt extends Search {
  readonly turn: number;
  readonly state: "passed" | "failed" | "interrupted";
  readonly seconds: number;
  readonly counts: Readonly<Record<string, number>>;
  /** What has been reached, in words. */
  readonly coverage: string;
  readonly text: string;
}

const number = new Intl.NumberFormat("en");

/** A duration in minutes, or in hours if it is longer than two. */
function duration(ms: number): string {
  const minutes = Math.max(1, Math.round(ms / 60_000));
  if (minutes > 120) return `${(minutes / 60).toFixed(1)} hours`;
  return `${minutes} ${minutes === 1 ? "minute" : "minutes"}`;
}

/** Numbers of things in words, such as `2 programs, 7 states`. */
function describeCounts(all: readonly Attempt[]): string {
  const counts: Record<string, number> = {};
  for (const one of all) {
    for (const [what, count] of Object.entries(one.counts)) counts[what] = (counts[what] ?? 0) + count;
  }
  return Object.entries(counts)
    .map(([what, count]) => `${number.format(count)} ${what}`)
    .join(", ");
}

/** Seeds in words; those that follow each other are one range. */
function describeSeeds(spans: readonly Span[]): string {
  const joined: [number, number][] = [];
  for (const [first, last] of spans) {
    const before = joined.at(-1);
    if (before && before[1] + 1 === first) before[1] = last;
    else joined.push([first, last]);
  }
  const texts = joined.map(([first, last]) =>
    first === last ? number.format(first) : `${number.format(first)} to ${number.format(last)}`,
  );
  return texts.join(", ") || "none";
}

/** How searches of a kind ended. */
function describeStates(own: readonly Attempt[]): string {
  const numOf = (state: Attempt["state"]) => own.filter((one) => one.state === state).length;
  const [failed, interrupted] = [numOf("failed"), numOf("interrupted")];
  const texts = [
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(interrupted > 0 ? ["interrupted by the end"] : []),
  ];
  return texts.join(", ") || "passed";
}

/** A page about a night: a row for each kind of search, and every failure with the command that shows it again. */
export function nightPage(
  attempts: readonly Attempt[],
  { begin, now }: { readonly begin: number; readonly now: number },
): string {
  const names = [...new Set(attempts.map(({ name }) => name))];
  const rows = names.map((name) => {
    const own = attempts.filter((one) => one.name === name);
    const cells = [
      name,
      describeSeeds(own.flatMap(({ seeds }) => (seeds ? [seeds] : []))),
      describeCounts(own),
      // Every turn reaches about the same; the last one that was complete says what.
      own.findLast(({ coverage }) => coverage !== "")?.coverage ?? "",
      number.format(Math.round(own.reduce((sum, { seconds }) => sum + seconds, 0))),
      describeStates(own),
    ];
    return `<tr>${cells.map((cell) => `<td>${escapeHtml(cell)}</td>`).join("")}</tr>`;
  });
  const failures = attempts.filter(({ state }) => state === "failed");
  const { length } = failures;
  const outcome = length === 0 ? "No failure" : `${length} ${length === 1 ? "failure" : "failures"}`;
  const details = failures.map(
    (one) =>
      `<h3>${escapeHtml(one.name)}, turn ${one.turn}</h3><pre><code>${escapeHtml(commandLine(one))}</code></pre>` +
      `<pre>${escapeHtml(one.text.slice(-20_000))}</pre>`,
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${outcome} in ${duration(now - begin)}</title>
<style>
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
  body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
  table { border-collapse: collapse; width: 100%; }
  td, th { border-bottom: 1px solid #8886; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
  td:nth-child(2) { white-space: nowrap; }
  td:nth-child(5) { text-align: right; }
  pre { overflow-x: auto; background: #8881; padding: 0.6rem; }
</style>
<h1>${outcome}</h1>
<p>${attempts.length} searches in ${duration(now - begin)}, from ${new Date(begin).toISOString().slice(0, 16).replace("T", " ")} UTC: ${describeCounts(attempts)}.</p>
<table>
<tr><th>search</th><th>seeds</th><th>tried</th><th>coverage in the last turn</th><th>seconds</th><th>outcome</th></tr>
${rows.join("\n")}
</table>
${length === 0 ? "" : `<h2>Failures</h2>\n${details.join("\n")}`}
</html>
`;
}
