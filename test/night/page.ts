import { escapeHtml } from "../../src/train/report/charts.js";
import { commandLine, type Search } from "./searches.js";

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
const hours = (ms: number): string => `${(ms / 3_600_000).toFixed(1)} hours`;

/** A page about a night: a row for each kind of search, and every failure with the command that shows it again. */
export function nightPage(
  attempts: readonly Attempt[],
  { begin, now }: { readonly begin: number; readonly now: number },
): string {
  const names = [...new Set(attempts.map(({ name }) => name))];
  const rows = names.map((name) => {
    const own = attempts.filter((one) => one.name === name);
    const counts: Record<string, number> = {};
    for (const one of own) {
      for (const [what, count] of Object.entries(one.counts)) counts[what] = (counts[what] ?? 0) + count;
    }
    const tried = Object.entries(counts).map(([what, count]) => `${number.format(count)} ${what}`);
    const cells = [
      name,
      own.map(({ seeds }) => seeds).join("; "),
      tried.join(", "),
      // Every turn reaches about the same; the last one that was complete says what.
      own.findLast(({ coverage }) => coverage !== "")?.coverage ?? "",
      number.format(Math.round(own.reduce((sum, { seconds }) => sum + seconds, 0))),
      String(own.filter(({ state }) => state === "failed").length),
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
<title>${outcome} in ${hours(now - begin)}</title>
<style>
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
  body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
  table { border-collapse: collapse; width: 100%; }
  td, th { border-bottom: 1px solid #8886; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
  pre { overflow-x: auto; background: #8881; padding: 0.6rem; }
</style>
<h1>${outcome}</h1>
<p>${hours(now - begin)} from ${new Date(begin).toISOString()}, ${attempts.length} searches.</p>
<table>
<tr><th>search</th><th>seeds</th><th>tried</th><th>coverage of the last turn</th><th>seconds</th><th>failures</th></tr>
${rows.join("\n")}
</table>
${length === 0 ? "" : `<h2>Failures</h2>\n${details.join("\n")}`}
</html>
`;
}
