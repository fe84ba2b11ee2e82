/** A page about a source of data, and the same for a terminal. */
import type { DataStatistics, Lengths } from "../data/tokens/dataStatistics.js";
import { escapeHtml, short, stackedBars, table } from "./charts.js";
import { type PageSection, pageHtml, section } from "./reportPage.js";

const count = (n: number) => n.toLocaleString("en-US", { maximumFractionDigits: 1 });
const percentOf = (n: number, all: number) => `${all === 0 ? 0 : Number(((100 * n) / all).toPrecision(2))} %`;

/** What is known about lengths, in one line. */
function describeLengths({ total, mean, min, median, p95, max }: Lengths): string {
  return `${count(total)} in all, ${count(mean)} on average, from ${count(min)} to ${count(max)}; half have at most ${count(median)}, 95 % at most ${count(p95)}`;
}

function summary(data: DataStatistics): (readonly [name: string, value: string])[] {
  const { kinds, numExamples, files, characters, tokens, duplicates, numUnreadable } = data;
  return [
    ["examples", count(numExamples)],
    [
      "kinds",
      Object.entries(kinds)
        .map(([kind, n]) => `${count(n)} ${kind}`)
        .join(", ") || "none",
    ],
    ["files", count(files.length)],
    ["characters", describeLengths(characters)],
    ...(tokens ? [["tokens", describeLengths(tokens)] as const] : []),
    ["exact duplicates", `${count(duplicates.exact)} (${percentOf(duplicates.exact, numExamples)})`],
    [
      "near duplicates",
      `${count(duplicates.near)} (${percentOf(duplicates.near, duplicates.numCompared)} of ${count(duplicates.numCompared)} compared)`,
    ],
    ["unreadable", count(numUnreadable)],
  ];
}

/** The longest row of a histogram in a terminal, in characters. */
const barWidth = 40;

function bars({ histogram }: Lengths): string[] {
  const most = Math.max(1, ...histogram.map((bin) => bin.count));
  const names = histogram.map(binName);
  const width = Math.max(0, ...names.map((name) => name.length));
  return histogram.map(
    (bin, i) =>
      `  ${(names[i] ?? "").padStart(width)}  ${"█".repeat(Math.ceil((barWidth * bin.count) / most))} ${count(bin.count)}`,
  );
}

const binName = ({ from, to }: Lengths["histogram"][number]) =>
  from === to ? String(from) : `${from} – ${to}`;

/** A description for a terminal. */
export function dataText(data: DataStatistics): string {
  const rows = summary(data);
  const width = Math.max(...rows.map(([name]) => name.length));
  const lines = rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`);
  const what = data.tokens ? "tokens" : "characters";
  const problems =
    data.problems.length > 0 ? ["", "could not be read:", ...data.problems.map((line) => `  ${line}`)] : [];
  return `${[...lines, "", `${what} of an example:`, ...bars(data.tokens ?? data.characters), ...problems].join("\n")}\n`;
}

const placeOf = (at: { readonly file: string; readonly line: number }) => `${at.file}, line ${at.line}`;

function lengthSection(id: string, title: string, lengths: Lengths, colour: string): PageSection {
  const bins = lengths.histogram.map((bin) => ({
    name: binName(bin),
    parts: [{ what: binName(bin), value: bin.count, colour }],
  }));
  return { id, html: section(title, describeLengths(lengths), stackedBars(bins, short)) };
}

function duplicateSection({ duplicates }: DataStatistics): PageSection {
  const rows = duplicates.pairs.map(({ first, second, share }) => [
    placeOf(second),
    placeOf(first),
    `${Math.round(100 * share)} %`,
  ]);
  const note =
    "Examples whose text is that of an earlier one, or has at least 80 % of its runs of five words in common with one, as estimated by MinHash.";
  const body =
    rows.length > 0
      ? table(["example", "is like", "in common"], rows)
      : '<p class="empty">there are none</p>';
  return { id: "duplicates", html: section("Duplicates", note, body) };
}

function fileSections({ files, problems }: DataStatistics): PageSection[] {
  const rows = files.map((file) => [file.file, file.numExamples, file.characters]);
  const counts = section("Files", "Examples of each.", table(["file", "examples", "characters"], rows));
  const unread = `<pre>${escapeHtml(problems.join("\n"))}</pre>`;
  return [
    { id: "files", html: counts },
    ...(problems.length > 0
      ? [{ id: "problems", html: section("Could not be read", "The first records of this kind.", unread) }]
      : []),
  ];
}

/** A page about a source: counts, lengths, duplicates and samples. */
export function dataPage(name: string, data: DataStatistics): string {
  const facts = summary(data)
    .filter(([label]) => label !== "characters" && label !== "tokens")
    .map(([label, value]) => `<div><b>${escapeHtml(value)}</b><span>${escapeHtml(label)}</span></div>`)
    .join("");
  const texts = data.samples
    .map((one) => `<p class="caption">${escapeHtml(placeOf(one))}</p><pre>${escapeHtml(one.text)}</pre>`)
    .join("");
  const { tokens, characters } = data;
  return pageHtml(`Data: ${name}`, [
    { id: "facts", html: `<div class="facts">${facts}</div>` },
    ...(tokens ? [lengthSection("tokens", "Tokens of an example", tokens, "var(--loss)")] : []),
    lengthSection("characters", "Characters of an example", characters, "var(--speed)"),
    duplicateSection(data),
    ...fileSections(data),
    {
      id: "samples",
      html: section("Samples", "Drawn at random.", texts || '<p class="empty">there are none</p>'),
    },
  ]);
}
