/** What the benchmarks share: timing, tables, and the speed of the machine that results are compared with. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { arch, availableParallelism, cpus, totalmem } from "node:os";
import { performance } from "node:perf_hooks";
import { devicePut, jit, Mesh, NamedSharding, np, P, Tensor, tree } from "shardwise";
import { createThreadsEngine, type ThreadsEngine, type TraceEvent } from "shardwise/engines";
import { at } from "../src/ir/shape.js";
import { option } from "./options.js";

/** One line of a benchmark's table. */
export type Row = Readonly<Record<string, string | number | null>>;

/** The result of a benchmark: tables by title. */
export type Report = Readonly<Record<string, readonly Row[]>>;

/** The shortest of several runs, in milliseconds, after one to warm up. */
export async function best(run: () => Promise<unknown>, { seconds = 2, least = 3 } = {}): Promise<number> {
  return at(await bestInTurns([run], { seconds, least }), 0);
}

/** The same for each of several that take turns, so that other load on the machine affects all of them. */
export async function bestInTurns(
  runs: readonly (() => Promise<unknown>)[],
  { seconds = 2 * runs.length, least = 1 } = {},
): Promise<number[]> {
  const fastest = runs.map(() => Number.POSITIVE_INFINITY);
  for (const run of runs) await run();
  const end = performance.now() + seconds * 1000;
  for (let round = 0; round < least || performance.now() < end; round++) {
    for (const [i, run] of runs.entries()) {
      const start = performance.now();
      await run();
      fastest[i] = Math.min(fastest[i] ?? 0, performance.now() - start);
    }
  }
  return fastest;
}

/** Waits for all tensors of some results, and releases them. */
export async function settle(results: unknown): Promise<void> {
  const tensors = tree.leaves(results).filter((leaf): leaf is Tensor => leaf instanceof Tensor);
  await Promise.all(tensors.map((tensor) => tensor.ready()));
  for (const tensor of tensors) tensor.dispose();
}

/** What the devices of an engine do while something runs. */
export async function traced(engine: ThreadsEngine, run: () => Promise<void>): Promise<TraceEvent[]> {
  engine.tracer.start();
  await run();
  return engine.tracer.stop();
}

/** The sum of some values. */
export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** The mean of some values. */
export function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

/** The values in order. */
export function sorted(values: readonly number[]): number[] {
  return [...values].sort((a, b) => a - b);
}

/** The median. */
export function median(values: readonly number[]): number {
  return at(sorted(values), values.length >> 1);
}

/** The machine's speed of copying memory on one core, in GB/s read and written. */
export async function copySpeed(): Promise<number> {
  const source = new Uint8Array(64 << 20).fill(1);
  const target = new Uint8Array(64 << 20).fill(2);
  const milliseconds = await best(async () => target.set(source), { seconds: 1 });
  return (2 * source.length) / milliseconds / 1e6;
}

/** A table as readable text. */
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

/** Shows a row as soon as it is measured, while others are still to come. */
export function announce(row: Row): Row {
  const cells = Object.entries(row).filter(([, value]) => value !== null);
  const text = cells.map(
    ([column, value]) => `${column} ${typeof value === "number" ? Number(value.toPrecision(3)) : value}`,
  );
  console.error(`  ${text.join(", ")}`);
  return row;
}

/** Prints a report and, with `--json FILE`, writes it; results of other benchmarks in the file are kept. */
export function publish(report: Report): void {
  for (const [title, rows] of Object.entries(report)) console.log(formatTable(title, rows));
  const file = option("json");
  if (file) save(file, report);
}

/** Writes a report to a file, where results of other benchmarks are kept. @param gpu what computed, if a GPU did */
export function save(file: string, report: Report, gpu?: string): void {
  const machine: Machine = { ...describeMachine(), ...(gpu === undefined ? {} : { gpu }) };
  const before = existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Measurements) : undefined;
  if (before && before.machine.processor !== machine.processor) {
    throw new Error(`${file} is of another machine, ${before.machine.processor}: name another file`);
  }
  const both: Measurements = { machine, report: { ...before?.report, ...report } };
  writeFileSync(file, `${JSON.stringify(both, null, 2)}\n`);
}

/** What was measured on a GPU. */
export interface GpuReport {
  /** Its name. */
  readonly gpu: string;
  readonly report: Report;
}

/** A file of measurements. */
export interface Measurements {
  readonly machine: Machine;
  readonly report: Report;
}

/** What a report was measured on. */
export interface Machine {
  readonly processor: string;
  /** The GPU that computed, if one did. */
  readonly gpu?: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly node: string;
  readonly day: string;
}

function describeMachine(): Machine {
  return {
    processor: `${processorName()} (${arch()})`,
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    day: new Date().toISOString().slice(0, 10),
  };
}

/** On ARM, Linux does not report the model's name, but `lscpu` knows it. */
function processorName(): string {
  const name = cpus()[0]?.model.trim();
  if (name && name !== "unknown") return name;
  const { stdout } = spawnSync("lscpu", { encoding: "utf8" });
  return /^Model name:\s*(.+)$/m.exec(stdout ?? "")?.[1] ?? "unknown";
}

/**
 * The speed of single-precision products in GFLOP/s when this many cores multiply at once, each with its own matrices:
 * the peak of the machine in practice.
 */
export async function allCorePeak(
  cores: number,
  dtype: "float32" | "bfloat16" = "float32",
  seconds = 2,
): Promise<number> {
  const n = 1024;
  const engine = createThreadsEngine({ numDevices: cores, threadsPerDevice: 1 });
  try {
    const mesh = Mesh.create({ core: cores }, { engine });
    const split = new NamedSharding(mesh, P("core"));
    const x = await devicePut(np.full([cores, n, n], 1 / n, dtype), split);
    const repeats = 8;
    const multiply = jit(
      (a: Tensor) => {
        let product = a;
        for (let i = 0; i < repeats; i++) product = np.matmul(product, a);
        return product;
      },
      { mesh, outShardings: split },
    );
    const milliseconds = await best(async () => (await multiply(x).ready()).dispose(), { seconds });
    return (2 * n ** 3 * repeats * cores) / milliseconds / 1e6;
  } finally {
    await engine.close();
  }
}
