/** Small SVG charts for pages that must work without scripts and without a network, on screens of every width. */
import { formatBytes } from "../../ir/shape.js";

/** Escapes a string for HTML. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** A line of a chart. */
export interface Series {
  readonly name: string;
  /** A CSS colour, or a variable such as `var(--loss)`. */
  readonly colour: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

/** Lines with at most this many points show each of them. */
const maxDots = 24;

/** Lines are drawn with at most this many points, which is more than a screen has columns for them. */
const maxPoints = 1000;

/** At most this many numbers of a line are listed in a table. */
const maxRows = 12;

/** Round numbers that divide a range into a handful of parts. */
export function ticks(low: number, high: number, count = 5): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = magnitude * ([1, 2, 2.5, 5, 10].find((m) => m * magnitude >= rough) ?? 10);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, i) => first + i * step);
}

/** A number for an axis or a table: short, without noise. */
export function short(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(3)));
}

/** The labels of a line chart's axes. */
export interface LineLabels {
  readonly x: string;
  readonly y: string;
  /** The unit of x, such as `s`; without one it is an integer. */
  readonly unit?: string;
}

/** Lines over a common x, with axes, a legend, and a table of the numbers. */
export function lineChart(series: readonly Series[], labels: LineLabels): string {
  const recorded = series.filter(({ points }) => points.some(isFinitePoint));
  const drawn = recorded.map((line) => ({ ...line, points: thinOut(line.points) }));
  const points = drawn.flatMap((s) => s.points).filter(isFinitePoint);
  if (points.length === 0) return '<p class="empty">nothing was recorded</p>';
  const range = (values: readonly number[]) => [Math.min(...values), Math.max(...values)] as const;
  const [x0, x1] = range(points.map(([x]) => x));
  const [low, high] = range(points.map(([, y]) => y));
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  const [y0, y1] = [Math.max(low - margin, low >= 0 ? 0 : Number.NEGATIVE_INFINITY), high + margin];
  const scale: Scale = {
    x: (x) => (x - x0) / (x1 - x0 || 1),
    y: (y) => 1 - (y - y0) / (y1 - y0 || 1),
  };
  const grid = ticks(y0, y1).map((y) => {
    const at = percent(scale.y(y));
    return (
      `<line class="grid" x1="0" x2="100%" y1="${at}" y2="${at}"/>` +
      `<text x="-8" y="${at}" dy="4" text-anchor="end">${short(y)}</text>`
    );
  });
  const content = `${grid.join("")}${xLabels(x0, x1, scale.x, labels.unit ? ` ${labels.unit}` : "")}${drawn.map((line) => drawLine(line, scale)).join("")}`;
  const names = drawn.map(({ name, colour }) => [colour, name] as const);
  return (
    `<p class="unit">${escapeHtml(`${labels.y} by ${labels.x}`)}</p>${drawn.length > 1 ? legend(names) : ""}` +
    chart({ height: 210, label: describeLines(drawn, labels), bottom: 26, content }) +
    numbersOf(recorded, labels.x)
  );
}

const isFinitePoint = ([x, y]: readonly [number, number]) => Number.isFinite(x) && Number.isFinite(y);

/** Maps values to shares of a plot's width and height, from 0 to 1. */
interface Scale {
  x(value: number): number;
  y(value: number): number;
}

/** A share from 0 to 1 as a coordinate of a {@link chart}. */
export const percent = (share: number) => `${Number((100 * share).toFixed(3))}%`;

/** A line that is interrupted where its values are not finite; few points are also drawn as dots. */
function drawLine({ colour, points }: Series, scale: Scale): string {
  const path = points.map((point, i) => {
    if (!isFinitePoint(point)) return "";
    const before = points[i - 1];
    const place = `${(1000 * scale.x(point[0])).toFixed(1)} ${(1000 * scale.y(point[1])).toFixed(1)}`;
    return `${before && isFinitePoint(before) ? "L" : "M"}${place}`;
  });
  const dots = points.length > maxDots ? [] : points.filter(isFinitePoint);
  const circles = dots.map(
    ([x, y]) =>
      `<circle cx="${percent(scale.x(x))}" cy="${percent(scale.y(y))}" r="3" fill="${colour}"><title>${short(x)}: ${short(y)}</title></circle>`,
  );
  // The inner picture is stretched to the plot, its strokes are not.
  return (
    `<svg viewBox="0 0 1000 1000" preserveAspectRatio="none"><path d="${path.join("")}" fill="none" stroke="${colour}" ` +
    `stroke-width="2" stroke-linejoin="round" vector-effect="non-scaling-stroke"/></svg>${circles.join("")}`
  );
}

/** Keeps the smallest and the largest of neighbouring points where there are more than can be seen. */
export function thinOut(points: Series["points"], most = maxPoints): Series["points"] {
  if (points.length <= most) return points;
  const perBin = Math.ceil((2 * points.length) / most);
  return Array.from({ length: Math.ceil(points.length / perBin) }, (_, bin) => {
    const range = points.slice(bin * perBin, (bin + 1) * perBin);
    const finite = range.filter(isFinitePoint);
    if (finite.length === 0) return range.slice(0, 1);
    const low = finite.reduce((least, point) => (point[1] < least[1] ? point : least));
    const high = finite.reduce((most, point) => (point[1] > most[1] ? point : most));
    return [low, high].sort(([a], [b]) => a - b);
  }).flat();
}

/** What a line chart shows, for readers who do not see it. */
function describeLines(
  series: readonly Series[],
  labels: { readonly x: string; readonly y: string },
): string {
  const lines = series.map(({ name, points }) => {
    const finite = points.filter(isFinitePoint);
    const [first = [0, 0], last = first] = [finite[0], finite.at(-1)];
    return `${name} from ${short(first[1])} at ${short(first[0])} to ${short(last[1])} at ${short(last[0])}`;
  });
  return `${labels.y} by ${labels.x}: ${lines.join("; ")}`;
}

/** Some numbers of the lines as a table that can be opened. */
function numbersOf(series: readonly Series[], x: string): string {
  const sampled = series.flatMap(({ points }) => {
    const count = Math.min(points.length, maxRows);
    const stride = (points.length - 1) / Math.max(1, count - 1);
    return Array.from({ length: count }, (_, i) => points[Math.round(i * stride)]?.[0] ?? 0);
  });
  const rows = [...new Set(sampled)].sort((a, b) => a - b);
  const valueAt = (points: Series["points"], at: number) => points.find(([x]) => x === at)?.[1];
  return details(
    "Numbers",
    table(
      [x, ...series.map(({ name }) => name)],
      rows.map((at) => [
        String(Number(at.toPrecision(6))),
        ...series.map(({ points }) => numberOrGap(valueAt(points, at))),
      ]),
    ),
  );
}

const numberOrGap = (value: number | undefined) => (value === undefined ? "" : short(value));

/** Something that is shown when its heading is opened, by pointer or keyboard. */
export function details(heading: string, content: string): string {
  return `<details><summary>${escapeHtml(heading)}</summary>${content}</details>`;
}

/** A bar of a timeline. */
export interface Span {
  readonly begin: number;
  readonly end: number;
  readonly kind: string;
  readonly title: string;
}

/** Bars narrower than this share of a row are drawn together with their neighbours: about a pixel. */
const narrowest = 1 / 700;

/** This many of the longest bars are listed below a timeline. */
const maxListed = 10;

/** One row per device with bars for what it did; gaps are idle time. */
export function timeline(
  rows: readonly { readonly name: string; readonly spans: readonly Span[] }[],
  unit: string,
): string {
  const { begin, end } = extent(rows.flatMap((row) => row.spans));
  if (!(end > begin)) return '<p class="empty">no step was recorded</p>';
  const [rowHeight, gap] = [26, 6];
  const share = (time: number) => (time - begin) / (end - begin);
  const bars = rows.flatMap(({ name, spans }, r) => {
    const y = r * (rowHeight + gap);
    const label = `<text x="-8" y="${y + 17}" text-anchor="end">${escapeHtml(name)}</text>`;
    const track = `<rect class="track" x="0" y="${y}" width="100%" height="${rowHeight}"/>`;
    const boxes = mergeNarrow(spans, narrowest * (end - begin)).map((span) => {
      const wide = percent(Math.max(0.0005, share(span.end) - share(span.begin)));
      return `<rect class="kind-${escapeHtml(span.kind)}" x="${percent(share(span.begin))}" y="${y}" width="${wide}" height="${rowHeight}"><title>${escapeHtml(span.title)}</title></rect>`;
    });
    return [label, track, ...boxes];
  });
  const longest = rows
    .flatMap(({ name, spans }) => spans.map((span) => ({ name, span })))
    .sort((a, b) => b.span.end - b.span.begin - (a.span.end - a.span.begin))
    .slice(0, maxListed)
    .map(({ name, span }) => [name, span.kind, span.title]);
  return (
    chart({
      height: rows.length * (rowHeight + gap) - gap,
      left: leftFor(rows.map(({ name }) => name)),
      bottom: 26,
      label: `what ${rows.length === 1 ? "the device" : `${rows.length} devices`} did during ${short(end - begin)} ${unit}`,
      content: `${bars.join("")}${xLabels(0, end - begin, (t) => t / (end - begin), ` ${unit}`)}`,
    }) + details("Longest operations", table(["", "kind", "operation"], longest))
  );
}

/** The room that labels need to the left of rows, in pixels. */
export function leftFor(names: readonly string[]): number {
  return 12 + 7 * Math.max(4, ...names.map(({ length }) => length));
}

/** A plot whose horizontal coordinates are percentages: it is as wide as the page lets it be. */
export interface Chart {
  /** Height of the plot in pixels, without what is around it. */
  readonly height: number;
  /** Room for labels around the plot, in pixels. */
  readonly left?: number;
  readonly right?: number;
  readonly bottom?: number;
  /** Where the page is narrower than this many pixels, the plot scrolls. */
  readonly minWidth?: number;
  /** What it shows, for readers who do not see it. */
  readonly label: string;
  readonly content: string;
}

/** An SVG picture whose texts and strokes keep their size on every screen. */
export function chart({
  height,
  left = 52,
  right = 12,
  bottom = 0,
  minWidth,
  label,
  content,
}: Chart): string {
  const margins = `margin:8px ${right}px ${bottom}px ${left}px;width:calc(100% - ${left + right}px);height:${height}px`;
  const picture = `<svg role="img" aria-label="${escapeHtml(label)}" style="${margins}">${content}</svg>`;
  if (minWidth === undefined) return `<div class="chart">${picture}</div>`;
  return scrolling(label, `<div class="chart" style="min-width:${minWidth}px">${picture}</div>`);
}

/** What may be wider than the page; its edges show that there is more, and the keyboard reaches it. */
function scrolling(label: string, content: string): string {
  return `<div class="scroll" role="region" aria-label="${escapeHtml(label)}" tabindex="0">${content}</div>`;
}

/** Labels below a plot; every second one is left out where it is narrow. */
export function xLabels(low: number, high: number, share: (value: number) => number, unit: string): string {
  // Steps are integers, and so are their labels.
  const values = ticks(low, high).filter((value) => unit !== "" || Number.isInteger(value));
  const marks = values.map((value, i) => {
    const at = share(value);
    const anchor = at < 0.02 ? "start" : at > 0.95 ? "end" : "middle";
    const spare = i % 2 === 1 ? ' class="spare"' : "";
    return `<text x="${percent(anchor === "end" ? 1 : at)}" y="100%" dy="18" text-anchor="${anchor}"${spare}>${short(value)}${unit}</text>`;
  });
  return marks.join("");
}

/** From the earliest begin to the latest end. */
export function extent(spans: readonly { readonly begin: number; readonly end: number }[]): {
  readonly begin: number;
  readonly end: number;
} {
  return spans.reduce(
    ({ begin, end }, span) => ({ begin: Math.min(begin, span.begin), end: Math.max(end, span.end) }),
    { begin: Number.POSITIVE_INFINITY, end: Number.NEGATIVE_INFINITY },
  );
}

/**
 * Merges adjacent spans of a row that are too narrow to be visible: the result has the kind that took most of its time,
 * and its title says how many there were.
 *
 * @param least the shortest span that is not merged
 */
export function mergeNarrow(spans: readonly Span[], least: number): Span[] {
  const merged: Span[] = [];
  let group: Span[] = [];
  const flush = () => {
    const [only] = group;
    if (only) merged.push(group.length === 1 ? only : asOne(group));
    group = [];
  };
  for (const span of [...spans].sort((a, b) => a.begin - b.begin)) {
    const [first] = group;
    const last = group.at(-1);
    const fits = first && last && span.begin - last.end < least / 2 && last.end - first.begin < least;
    if (!fits || span.end - span.begin >= least) flush();
    if (span.end - span.begin >= least) merged.push(span);
    else group.push(span);
  }
  flush();
  return merged;
}

function asOne(group: readonly Span[]): Span {
  const times = new Map<string, number>();
  for (const { kind, begin, end } of group) times.set(kind, (times.get(kind) ?? 0) + end - begin);
  const [kind] = [...times].reduce((most, next) => (next[1] > most[1] ? next : most));
  return { ...extent(group), kind, title: `${group.length} short operations, mostly ${kind}` };
}

/** One bar per row made of parts, with the total next to it, all on one scale. */
export function stackedBars(
  rows: readonly {
    readonly name: string;
    readonly parts: readonly { readonly what: string; readonly value: number; readonly colour: string }[];
  }[],
  format: (value: number) => string,
): string {
  const sum = (parts: readonly { readonly value: number }[]) => parts.reduce((n, { value }) => n + value, 0);
  const most = Math.max(...rows.map(({ parts }) => sum(parts)), 0);
  if (!(most > 0)) return '<p class="empty">nothing was recorded</p>';
  const [rowHeight, gap] = [22, 6];
  const bars = rows.map(({ name, parts }, r) => {
    const y = r * (rowHeight + gap);
    let x = 0;
    const boxes = parts.map(({ what, value, colour }) => {
      const box = `<rect x="${percent(x)}" y="${y}" width="${percent(value / most)}" height="${rowHeight}" fill="${colour}"><title>${escapeHtml(`${what}: ${format(value)}`)}</title></rect>`;
      x += value / most;
      return box;
    });
    const label = `<text x="-8" y="${y + 15}" text-anchor="end">${escapeHtml(name)}</text>`;
    const whole = `<text x="${percent(x)}" dx="8" y="${y + 15}" class="label">${escapeHtml(format(sum(parts)))}</text>`;
    return `${label}${boxes.join("")}${whole}`;
  });
  const totals = rows.map(({ name, parts }) => `${name} ${format(sum(parts))}`);
  return chart({
    height: rows.length * (rowHeight + gap) - gap,
    left: leftFor(rows.map(({ name }) => name)),
    right: 76,
    label: totals.join(", "),
    content: bars.join(""),
  });
}

/** An entry of a {@link legend}: a CSS background, what it stands for, and the width of its sample in pixels. */
export type LegendEntry = readonly [background: string, text: string, wide?: number];

/** The colours of a chart and what they stand for. */
export function legend(entries: readonly LegendEntry[]): string {
  const items = entries.map(
    ([background, text, wide = 12]) =>
      `<span><i style="background:${background};width:${wide}px"></i>${escapeHtml(text)}</span>`,
  );
  return `<p class="legend">${items.join("")}</p>`;
}

/** A cell of a {@link table}: text, a number, or a number of bytes. */
export type Cell = string | number | { readonly bytes: number };

/** A table for a page; numbers are right-aligned. */
export function table(columns: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const cell = (value: Cell) => {
    if (typeof value === "string") return `<td>${escapeHtml(value)}</td>`;
    return `<td class="number">${typeof value === "number" ? short(value) : formatBytes(value.bytes)}</td>`;
  };
  const isNumber = (column: number) => typeof (rows[0]?.[column] ?? "") !== "string";
  const head = columns
    .map((column, i) => `<th${isNumber(i) ? ' class="number"' : ""}>${escapeHtml(column)}</th>`)
    .join("");
  const body = rows.map((row) => `<tr>${row.map(cell).join("")}</tr>`).join("");
  return scrolling(
    columns.filter((column) => column !== "").join(", "),
    `<table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`,
  );
}
