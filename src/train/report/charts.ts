import { formatBytes } from "../../ir/shape.js";
/** Small SVG charts for pages that must work without scripts and without a network. */

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

const [width, height, left, bottom, top, right] = [760, 260, 64, 40, 26, 12];

/** Lines with at most this many points show each of them. */
const maxDots = 24;

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

/** Lines over a common x, with axes and a legend. */
export function lineChart(
  series: readonly Series[],
  labels: { readonly x: string; readonly y: string },
): string {
  const points = series.flatMap((s) => s.points).filter(([, y]) => Number.isFinite(y));
  if (points.length === 0) return '<p class="empty">nothing was recorded</p>';
  const range = (values: readonly number[]) => [Math.min(...values), Math.max(...values)] as const;
  const [x0, x1] = range(points.map(([x]) => x));
  const [low, high] = range(points.map(([, y]) => y));
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  const [y0, y1] = [Math.max(low - margin, low >= 0 ? 0 : Number.NEGATIVE_INFINITY), high + margin];
  const px = (x: number) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - right);
  const py = (y: number) => height - bottom - ((y - y0) / (y1 - y0 || 1)) * (height - bottom - top);
  const grid = ticks(y0, y1).map(
    (y) =>
      `<line class="grid" x1="${left}" x2="${width - right}" y1="${py(y).toFixed(1)}" y2="${py(y).toFixed(1)}"/>` +
      `<text x="${left - 8}" y="${(py(y) + 4).toFixed(1)}" text-anchor="end">${short(y)}</text>`,
  );
  // Steps are integers, and so are their labels.
  const marks = ticks(x0, x1)
    .filter(Number.isInteger)
    .map(
      (x) =>
        `<text x="${px(x).toFixed(1)}" y="${height - bottom + 18}" text-anchor="middle">${short(x)}</text>`,
    );
  const lines = series.map(({ colour, points: own }) => {
    const path = own
      .filter(([, y]) => Number.isFinite(y))
      .map(([x, y], i) => `${i === 0 ? "M" : "L"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`)
      .join("");
    // A few points are also drawn as dots, so that a single one is visible.
    const dots = own.length > maxDots ? [] : own.filter(([, y]) => Number.isFinite(y));
    const circles = dots.map(
      ([x, y]) => `<circle cx="${px(x).toFixed(1)}" cy="${py(y).toFixed(1)}" r="3.5" fill="${colour}"/>`,
    );
    return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2" stroke-linejoin="round"/>${circles.join("")}`;
  });
  const names = series.map(
    ({ name, colour }, i) =>
      `<g transform="translate(${width - right - 130 * (series.length - i)},${top - 10})"><rect width="14" height="3" y="-4" fill="${colour}"/><text x="20">${escapeHtml(name)}</text></g>`,
  );
  const axes =
    `<text x="${width - right}" y="${height - 6}" text-anchor="end" class="label">${escapeHtml(labels.x)}</text>` +
    `<text x="4" y="${top - 10}" class="label">${escapeHtml(labels.y)}</text>`;
  return chart(width, height, `${grid.join("")}${marks.join("")}${axes}${lines.join("")}${names.join("")}`);
}

/** A bar of a timeline. */
export interface Span {
  readonly begin: number;
  readonly end: number;
  readonly kind: string;
  readonly title: string;
}

/** Bars narrower than this many pixels are drawn together with their neighbours. */
const narrowest = 1;

/** One row per device with bars for what it did; gaps are idle time. */
export function timeline(
  rows: readonly { readonly name: string; readonly spans: readonly Span[] }[],
  unit: string,
): string {
  const { begin, end } = extent(rows.flatMap((row) => row.spans));
  if (!(end > begin)) return '<p class="empty">no step was recorded</p>';
  const rowHeight = 26;
  const total = rows.length * (rowHeight + 6) + bottom - 10;
  const scale = (width - left - right) / (end - begin);
  const px = (x: number) => left + (x - begin) * scale;
  const bars = rows.flatMap(({ name, spans }, r) => {
    const y = r * (rowHeight + 6);
    const label = `<text x="${left - 8}" y="${y + 17}" text-anchor="end">${escapeHtml(name)}</text>`;
    const track = `<rect class="track" x="${left}" y="${y}" width="${width - left - right}" height="${rowHeight}"/>`;
    const boxes = mergeNarrow(spans, narrowest / scale).map((span) => {
      const w = Math.max(0.4, px(span.end) - px(span.begin));
      return `<rect class="kind-${escapeHtml(span.kind)}" x="${px(span.begin).toFixed(1)}" y="${y}" width="${w.toFixed(1)}" height="${rowHeight}"><title>${escapeHtml(span.title)}</title></rect>`;
    });
    return [label, track, ...boxes];
  });
  return chart(width, total, `${bars.join("")}${timeAxis(end - begin, px(begin), scale, total - 12, unit)}`);
}

/** An SVG picture that keeps a readable size on narrow screens, where it scrolls. */
export function chart(wide: number, high: number, content: string): string {
  const least = Math.max(620, wide > width ? wide : 0);
  return `<div class="scroll"><svg viewBox="0 0 ${wide} ${high}" style="min-width:${least}px" role="img">${content}</svg></div>`;
}

/** Labels of a time axis: `length` units from the pixel `origin` on, with this many pixels a unit. */
export function timeAxis(length: number, origin: number, scale: number, y: number, unit: string): string {
  const marks = ticks(0, length).map((t) => {
    // The last label is right-aligned with the axis if it does not fit when centred.
    const anchor = (length - t) * scale < 16 ? "end" : "middle";
    const x = anchor === "end" ? origin + length * scale : origin + t * scale;
    return `<text x="${x.toFixed(1)}" y="${y}" text-anchor="${anchor}">${short(t)} ${unit}</text>`;
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
  const rowHeight = 22;
  const total = rows.length * (rowHeight + 6);
  const scale = (width - left - right - 90) / most;
  const bars = rows.map(({ name, parts }, r) => {
    const y = r * (rowHeight + 6);
    let x = left;
    const boxes = parts.map(({ what, value, colour }) => {
      const box = `<rect x="${x.toFixed(1)}" y="${y}" width="${(value * scale).toFixed(1)}" height="${rowHeight}" fill="${colour}"><title>${escapeHtml(`${what}: ${format(value)}`)}</title></rect>`;
      x += value * scale;
      return box;
    });
    const label = `<text x="${left - 8}" y="${y + 15}" text-anchor="end">${escapeHtml(name)}</text>`;
    const whole = `<text x="${(x + 8).toFixed(1)}" y="${y + 15}" class="label">${escapeHtml(format(sum(parts)))}</text>`;
    return `${label}${boxes.join("")}${whole}`;
  });
  return chart(width, total, bars.join(""));
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
  return `<div class="scroll"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}
