/** What the benchmarks share: timing, tables, and the machine's own speed as the measure of everything. */
import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { performance } from "node:perf_hooks";
import { findBlas, nativeAddress, releaseNativeAddress } from "../src/engines/threads/blas.js";

/** One line of a benchmark's table. */
export type Row = Readonly<Record<string, string | number | null>>;

/** What a benchmark gives back: tables by title. */
export type Report = Readonly<Record<string, readonly Row[]>>;

/** The shortest of several runs, in milliseconds, after one to warm up. */
export async function best(run: () => Promise<unknown>, { seconds = 2, least = 3 } = {}): Promise<number> {
  await run();
  let fastest = Number.POSITIVE_INFINITY;
  const end = performance.now() + seconds * 1000;
  for (let i = 0; i < least || performance.now() < end; i++) {
    const start = performance.now();
    await run();
    fastest = Math.min(fastest, performance.now() - start);
  }
  return fastest;
}

/** The machine's speed of single-precision matrix products on one core, in GFLOP/s; NaN without a BLAS. */
export async function sgemmPeak(n = 1024): Promise<number> {
  const blas = findBlas();
  if (!blas) return Number.NaN;
  const bytes = n * n * 4;
  const memory = new WebAssembly.Memory({ initial: 200, maximum: 200, shared: true });
  new Float32Array(memory.buffer, 0, 2 * n * n).fill(0.5);
  const base = nativeAddress(memory);
  blas.warmUp();
  const multiply = () =>
    blas.sgemm(false, false, n, n, n, 1, base, n, base + bytes, n, 0, base + 2 * bytes, n);
  const milliseconds = await best(async () => multiply(), { seconds: 1 });
  releaseNativeAddress(memory);
  return (2 * n ** 3) / milliseconds / 1e6;
}

/** The machine's speed of copying memory on one core, in GB/s read and written. */
export async function copySpeed(): Promise<number> {
  const source = new Uint8Array(64 << 20).fill(1);
  const target = new Uint8Array(64 << 20).fill(2);
  const milliseconds = await best(async () => target.set(source), { seconds: 1 });
  return (2 * source.length) / milliseconds / 1e6;
}

/** A table for people. */
export function formatTable(title: string, rows: readonly Row[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const text = (value: string | number | null | undefined) => {
    if (value === null || value === undefined) return "–";
    return typeof value === "number"
      ? Math.abs(value) >= 100
        ? value.toFixed(0)
        : value.toPrecision(3)
      : value;
  };
  const cells = rows.map((row) => columns.map((column) => text(row[column])));
  const widths = columns.map((column, i) =>
    Math.max(column.length, ...cells.map((row) => row[i]?.length ?? 0)),
  );
  const line = (list: readonly string[]) => list.map((cell, i) => cell.padStart(widths[i] ?? 0)).join("  ");
  return [`\n${title}`, line(columns), line(widths.map((w) => "─".repeat(w))), ...cells.map(line)].join("\n");
}

/** Prints a report and, with `--json FILE`, writes it. */
export function publish(report: Report): void {
  for (const [title, rows] of Object.entries(report)) console.log(formatTable(title, rows));
  const place = process.argv.indexOf("--json");
  const file = place >= 0 ? process.argv[place + 1] : undefined;
  if (file)
    writeFileSync(
      file,
      `${JSON.stringify({ cores: availableParallelism(), node: process.version, report }, null, 2)}\n`,
    );
}
