import { need } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
/** A point of a curve. */
export interface CurvePoint {
  readonly step: number;
  readonly value: number;
}

const plotOptions = schema({
  /** Maximum number of characters per line; 72 by default. */
  width: 72,
  /** The lines of the plot without its axis; 12 by default. */
  height: 12,
  /** Whether to use braille dots (the default) or plain ASCII. */
  unicode: true,
  /** A line above the plot; none by default. */
  title: optional("string"),
});

/** Options of {@link plotCurve}. */
export interface PlotOptions extends OptionsOf<typeof plotOptions> {}

/** The bits of the braille dots of a character, by column and row. */
const dots = [
  [0x01, 0x02, 0x04, 0x40],
  [0x08, 0x10, 0x20, 0x80],
] as const;

/**
 * Draws a curve with characters. Values that are not finite leave a gap.
 *
 * ```
 *  5.55 ⡇
 *       ⠱⡀
 *  1.20  ⠉⠒⠤⣀⣀
 *       0     100
 * ```
 *
 * @example
 * ```ts
 * train.plotCurve([{ step: 0, value: 5 }, { step: 9, value: 1 }], { width: 20, height: 4 }).split("\n").length; // 6
 * ```
 */
export function plotCurve(points: readonly CurvePoint[], options?: PlotOptions): string {
  need("list", points, "points", "plotCurve");
  const { width, height, unicode, title } = plotOptions.read(options, "plotCurve");
  for (const point of points) need("object", point, "each of points", "plotCurve");
  const finite = points.filter(({ step, value }) => Number.isFinite(step) && Number.isFinite(value));
  const heading = title === undefined ? [] : [title];
  if (finite.length === 0) return [...heading, "(no values to plot)"].join("\n");
  const bounds = (numbers: readonly number[]) =>
    numbers.reduce<[number, number]>(
      ([low, high], n) => [Math.min(low, n), Math.max(high, n)],
      [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
    );
  const [low, high] = bounds(finite.map(({ value }) => value));
  const [start, end] = bounds(finite.map(({ step }) => step));
  const labels = [high, (high + low) / 2, low].map(formatValue);
  const margin = Math.max(...labels.map((label) => label.length)) + 1;
  const columns = Math.max(8, width - margin - 1);
  const [perColumn, perRow] = unicode ? [2, 4] : [1, 1];
  const numX = columns * perColumn;
  const numY = Math.max(2, height) * perRow;
  const means = binMeans(finite, start, end, numX);
  const yOf = (value: number) =>
    high === low ? (numY - 1) >> 1 : Math.round(((high - value) / (high - low)) * (numY - 1));
  const cells = Array.from({ length: Math.max(2, height) }, () => new Array<number>(columns).fill(0));
  const set = (x: number, y: number) => {
    const row = cells[Math.floor(y / perRow)];
    const column = Math.floor(x / perColumn);
    if (row) row[column] = (row[column] ?? 0) | (unicode ? (dots[x % 2 === 0 ? 0 : 1][y % 4] ?? 0) : 1);
  };
  let last: { x: number; y: number } | undefined;
  means.forEach((value, x) => {
    if (value === undefined) return;
    const y = yOf(value);
    // Points are connected, so that few of them still make a line.
    const from = last ?? { x, y };
    const steps = Math.max(x - from.x, Math.abs(y - from.y), 1);
    for (let i = 0; i <= steps; i++) {
      const share = i / steps;
      set(Math.round(from.x + (x - from.x) * share), Math.round(from.y + (y - from.y) * share));
    }
    last = { x, y };
  });
  const lines = cells.map((row, r) => {
    const place = [0, (cells.length - 1) >> 1, cells.length - 1].lastIndexOf(r);
    const label = (labels[place] ?? "").padStart(margin - 1);
    const drawn = row.map((bits) => (bits === 0 ? " " : unicode ? String.fromCharCode(0x2800 + bits) : "*"));
    return `${label} ${unicode ? "│" : "|"}${drawn.join("")}`.trimEnd();
  });
  const [from, to] = [String(start), start === end ? "" : String(end)];
  const gap = " ".repeat(Math.max(1, columns - from.length - to.length));
  const line = " ".repeat(margin) + (unicode ? `└${"─".repeat(columns)}` : `+${"-".repeat(columns)}`);
  return [...heading, ...lines, line, `${" ".repeat(margin + 1)}${from}${gap}${to}`.trimEnd()].join("\n");
}

/** The mean of the values that fall on each column. */
function binMeans(points: readonly CurvePoint[], start: number, end: number, columns: number) {
  const sums = Array.from({ length: columns }, () => ({ total: 0, count: 0 }));
  for (const { step, value } of points) {
    const bin = sums[end === start ? 0 : Math.round(((step - start) / (end - start)) * (columns - 1))];
    if (!bin) continue;
    bin.total += value;
    bin.count++;
  }
  return sums.map(({ total, count }) => (count === 0 ? undefined : total / count));
}

/** A number with four significant digits. */
export function formatValue(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}
