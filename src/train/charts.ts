/** Small charts as SVG text, for pages that must work without scripts and without a network. */
import { formatBytes } from "../spmd/cost.js";

/** Text made safe for HTML. */
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
  const marks = ticks(x0, x1).map(
    (x) =>
      `<text x="${px(x).toFixed(1)}" y="${height - bottom + 18}" text-anchor="middle">${short(x)}</text>`,
  );
  const lines = series.map(({ colour, points: own }) => {
    const path = own
      .filter(([, y]) => Number.isFinite(y))
      .map(([x, y], i) => `${i === 0 ? "M" : "L"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`)
      .join("");
    // A few points are also drawn as dots, so that a single one is seen.
    const dots = own.length > maxDots ? [] : own.filter(([, y]) => Number.isFinite(y));
    const circles = dots.map(
      ([x, y]) => `<circle cx="${px(x).toFixed(1)}" cy="${py(y).toFixed(1)}" r="3.5" fill="${colour}"/>`,
    );
    return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2" stroke-linejoin="round"/>${circles.join("")}`;
  });
  const legend = series.map(
    ({ name, colour }, i) =>
      `<g transform="translate(${width - right - 130 * (series.length - i)},${top - 10})"><rect width="14" height="3" y="-4" fill="${colour}"/><text x="20">${escapeHtml(name)}</text></g>`,
  );
  const axes =
    `<text x="${width - right}" y="${height - 6}" text-anchor="end" class="label">${escapeHtml(labels.x)}</text>` +
    `<text x="4" y="${top - 10}" class="label">${escapeHtml(labels.y)}</text>`;
  return `<svg viewBox="0 0 ${width} ${height}" role="img">${grid.join("")}${marks.join("")}${axes}${lines.join("")}${legend.join("")}</svg>`;
}

/** A bar of a timeline. */
export interface Span {
  readonly begin: number;
  readonly end: number;
  readonly kind: string;
  readonly title: string;
}

/** One row per device with bars for what it did; gaps are idle time. */
export function timeline(
  rows: readonly { readonly name: string; readonly spans: readonly Span[] }[],
  unit: string,
): string {
  const spans = rows.flatMap((row) => row.spans);
  if (spans.length === 0) return '<p class="empty">no step was recorded</p>';
  const begin = Math.min(...spans.map((span) => span.begin));
  const end = Math.max(...spans.map((span) => span.end));
  const rowHeight = 26;
  const total = rows.length * (rowHeight + 6) + bottom;
  const px = (x: number) => left + ((x - begin) / (end - begin || 1)) * (width - left - right);
  const bars = rows.flatMap(({ name, spans: own }, r) => {
    const y = r * (rowHeight + 6);
    const label = `<text x="${left - 8}" y="${y + 17}" text-anchor="end">${escapeHtml(name)}</text>`;
    const track = `<rect class="track" x="${left}" y="${y}" width="${width - left - right}" height="${rowHeight}"/>`;
    const boxes = own.map((span) => {
      const w = Math.max(0.4, px(span.end) - px(span.begin));
      return `<rect class="kind-${escapeHtml(span.kind)}" x="${px(span.begin).toFixed(2)}" y="${y}" width="${w.toFixed(2)}" height="${rowHeight}"><title>${escapeHtml(span.title)}</title></rect>`;
    });
    return [label, track, ...boxes];
  });
  const marks = ticks(0, end - begin).map(
    (t) =>
      `<text x="${px(begin + t).toFixed(1)}" y="${total - 12}" text-anchor="middle">${short(t)} ${unit}</text>`,
  );
  return `<svg viewBox="0 0 ${width} ${total}" role="img">${bars.join("")}${marks.join("")}</svg>`;
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
