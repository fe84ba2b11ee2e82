import type { Engine } from "../../ir/engine.js";
import type { TraceEvent } from "../../ir/engineReports.js";
import type { ControlRole } from "../../ir/ops.js";
import { openTraceFile, type TraceCounter } from "./traceFile.js";

/** The kind of work of a device's step, which determines its colour in reports; `wait` is waiting for other devices. */
export type WorkKind = "gemm" | "kernel" | "collective" | "copy" | "wait";

/** One thing that a device did; times are milliseconds from the beginning of the trace. */
export interface DeviceWork {
  readonly device: number;
  readonly kind: WorkKind;
  readonly name: string;
  readonly program: string;
  readonly source: string | undefined;
  readonly begin: number;
  readonly end: number;
}

/** One iteration of a loop on one device; times as in {@link DeviceWork}. */
export interface LoopIteration {
  readonly device: number;
  readonly program: string;
  /** The loop's step number in its program. */
  readonly loop: number;
  readonly iteration: number;
  /** What the loop stands for, if the program says so. */
  readonly role?: ControlRole | undefined;
  /** The number of iterations of other loops around it. */
  readonly depth: number;
  readonly begin: number;
  readonly end: number;
}

/** What all devices did while something ran. */
export interface StepTrace {
  readonly work: readonly DeviceWork[];
  /** By device, and in the order in which they began. */
  readonly iterations: readonly LoopIteration[];
}

/** The kinds of steps that count as work; loops and branches are represented by their contents. */
const kinds: Readonly<Record<string, WorkKind>> = {
  gemm: "gemm",
  kernel: "kernel",
  host: "kernel",
  copy: "copy",
  address: "copy",
  axisIndex: "copy",
  start: "collective",
  done: "collective",
};

/** Maximum number of steps, iterations and waits to record per device. */
const traceCapacity = 2 ** 18;

/** Runs something while the engine records what its devices do; the trace is empty if the engine has no tracer. */
export async function recordWork<T>(
  { tracer }: Engine,
  run: () => Promise<T>,
): Promise<StepTrace & { readonly result: T }> {
  if (!tracer) return { result: await run(), work: [], iterations: [] };
  tracer.start(traceCapacity);
  const result = await run();
  return { result, ...stepTraceOf(await tracer.stop()) };
}

/**
 * Like {@link recordWork}, for the devices of all processes of an engine, on the clock of the first; all processes must
 * call it together.
 */
export async function recordWorkOfAll<T>(
  engine: Engine,
  run: () => Promise<T>,
): Promise<StepTrace & { readonly result: T }> {
  const { tracer, share, clockAhead } = engine;
  if (!tracer || !share || engine.process.count === 1) return recordWork(engine, run);
  tracer.start(traceCapacity);
  const result = await run();
  const ahead = clockAhead?.call(engine) ?? 0;
  const shift = <E extends { readonly begin: number; readonly end: number }>(one: E): E => ({
    ...one,
    begin: one.begin + ahead,
    end: one.end + ahead,
  });
  const own = (await tracer.stop()).map((event) => ({ ...shift(event), waits: event.waits.map(shift) }));
  const all = await share.call(engine, JSON.stringify(own));
  const events = all.flatMap((text): TraceEvent[] => JSON.parse(text));
  return { result, ...stepTraceOf(events) };
}

/** Separates work, waits and iterations in the events of an engine. */
export function stepTraceOf(events: readonly TraceEvent[]): StepTrace {
  const origin = events.reduce((first, { begin }) => Math.min(first, begin), Number.POSITIVE_INFINITY);
  return { work: events.flatMap((event) => workOf(event, origin)), iterations: iterationsOf(events, origin) };
}

/** The parts of a step: waits, and the work before, between and after them. */
function workOf(event: TraceEvent, origin: number): DeviceWork[] {
  const kind = kinds[event.kind];
  if (!kind) return [];
  const { device, program, ops } = event;
  const source = event.source === unknownSource ? undefined : event.source;
  const name = `${ops.join(" + ") || event.kind}${kind === "collective" ? ` (${event.kind})` : ""}`;
  const shared = { device, program, source };
  const pieces: DeviceWork[] = [];
  const add = (own: Pick<DeviceWork, "kind" | "name">, begin: number, end: number) => {
    if (end > begin) pieces.push({ ...shared, ...own, begin: begin - origin, end: end - origin });
  };
  let from = event.begin;
  for (const { begin, end } of event.waits) {
    add({ kind, name }, from, begin);
    add({ kind: "wait", name: `wait: ${name}` }, begin, end);
    from = end;
  }
  add({ kind, name }, from, event.end);
  return pieces;
}

/** The engine's source of steps that do not come from a line of user code. */
const unknownSource = "unknown source";

function iterationsOf(events: readonly TraceEvent[], origin: number): LoopIteration[] {
  const all = events.flatMap(({ device, program, step, role, iteration, begin, end }) =>
    iteration === undefined ? [] : [{ device, program, loop: step, role, iteration, begin, end }],
  );
  all.sort((a, b) => a.device - b.device || a.begin - b.begin || b.end - a.end);
  const around: { readonly device: number; readonly end: number }[] = [];
  return all.map((one) => {
    for (let last = around.at(-1); last; last = around.at(-1)) {
      if (last.device === one.device && last.end >= one.end) break;
      around.pop();
    }
    const depth = around.push(one) - 1;
    return { ...one, depth, begin: one.begin - origin, end: one.end - origin };
  });
}

/** Gaps from this length, in milliseconds, are shown as idle time; shorter ones are the overhead of starting a step. */
const shortestIdle = 0.01;

/** Intervals in which a device neither worked nor waited, between the first and the last event of any device. */
export function idleTimes(work: readonly DeviceWork[]): { device: number; begin: number; end: number }[] {
  const last = work.reduce((latest, { end }) => Math.max(latest, end), 0);
  return devicesOf(work).flatMap((device) => {
    const own = work.filter((one) => one.device === device).sort((a, b) => a.begin - b.begin);
    const edges = [...own.map(({ begin, end }) => [begin, end] as const), [last, last] as const];
    let free = 0;
    return edges.flatMap(([begin, end]) => {
      const idle = begin - free >= shortestIdle ? [{ device, begin: free, end: begin }] : [];
      free = Math.max(free, end);
      return idle;
    });
  });
}

/** The devices that did something, in order. */
export function devicesOf(work: readonly { readonly device: number }[]): number[] {
  return [...new Set(work.map(({ device }) => device))].sort((a, b) => a - b);
}

/**
 * Writes a trace that Perfetto and chrome://tracing open: a track for each device with iterations of loops, what ran in
 * them, waits and idle time.
 *
 * @param nameOf the name of an iteration, if it is more than its number
 */
export function writeTrace(
  path: string,
  { work, iterations }: StepTrace,
  title: string,
  nameOf: (iteration: LoopIteration) => string | undefined = () => undefined,
  counters: readonly TraceCounter[] = [],
): void {
  const file = openTraceFile(path, { title });
  // Both ends are rounded to nanoseconds, so that slices do not overlap by rounding errors.
  const times = ({ begin, end }: { begin: number; end: number }) => {
    const [from, to] = [Math.round(begin * 1e6), Math.round(end * 1e6)];
    return { start: from / 1000, duration: (to - from) / 1000 };
  };
  for (const device of devicesOf(work)) {
    file.name({ device }, `device ${device}`);
    file.name({ device, thread: 0 }, "steps");
  }
  for (const counter of counters) file.counter(counter);
  // Events that begin at the same time are nested in the order of the file, so iterations come before their steps.
  for (const one of iterations) {
    const { device, program, loop, iteration } = one;
    const name = nameOf(one) ?? `iteration ${iteration}`;
    file.event({
      device,
      name,
      category: "iteration",
      ...times(one),
      args: { program, loop, iteration },
    });
  }
  for (const one of work) {
    const { device, kind, name, program, source } = one;
    const args = { program, ...(source === undefined ? {} : { source }) };
    file.event({ device, name, category: kind, ...times(one), args });
  }
  for (const { device, begin, end } of idleTimes(work)) {
    // Slices of a track must nest or be disjoint, so idle time is split where an iteration begins or ends.
    const cuts = iterations
      .filter((one) => one.device === device)
      .flatMap((one) => [one.begin, one.end])
      .filter((time) => time > begin && time < end)
      .sort((a, b) => a - b);
    [begin, ...cuts].forEach((from, i) => {
      const slice = times({ begin: from, end: cuts[i] ?? end });
      if (slice.duration > 0) file.event({ device, name: "idle", category: "idle", ...slice });
    });
  }
  file.close();
}

/** Where the time of every device went, as shares from 0 to 1. */
export interface DeviceShares {
  readonly device: number;
  readonly gemm: number;
  readonly kernel: number;
  readonly collective: number;
  readonly copy: number;
  /** Waiting for other devices. */
  readonly wait: number;
  /** Neither working nor waiting. */
  readonly idle: number;
}

/** Sums the work of each device over the time from the earliest begin to the latest end. */
export function sharesOfWork(work: readonly DeviceWork[]): DeviceShares[] {
  const end = work.reduce((last, one) => Math.max(last, one.end), 0) || 1;
  return devicesOf(work).map((device) => {
    const of = (kind: WorkKind) =>
      work
        .filter((one) => one.device === device && one.kind === kind)
        .reduce((sum, one) => sum + one.end - one.begin, 0) / end;
    const shares = {
      gemm: of("gemm"),
      kernel: of("kernel"),
      collective: of("collective"),
      copy: of("copy"),
      wait: of("wait"),
    };
    const used = Object.values(shares).reduce((sum, share) => sum + share, 0);
    return { device, ...shares, idle: Math.max(0, 1 - used) };
  });
}
