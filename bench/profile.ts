/**
 * Where the time of the fastest of several training steps goes: mean times over the devices for products, other
 * computation, exchanges and waits, and the most expensive kernels.
 *
 *     npm run bench -- profile --devices 1,2,8,16 --sizes d256,d512,d1024 --precision float32,bfloat16
 */
import { createThreadsEngine, type TraceEvent } from "shardwise/engines";
import { type DecoderSize, precisions, sizes, stepFlops } from "./decoder.js";
import { prepareData } from "./lm.js";
import { allCorePeak, best, type Report, type Row, traced } from "./measure.js";
import { countsOption, listOption } from "./options.js";

/** Number of recorded steps, after as many unrecorded ones; the fastest counts. */
const STEPS = 10;

/** How many kernels are listed. */
const SLOWEST = 8;

/** Runs the benchmark. */
export async function profile(): Promise<Report> {
  const names = sizes.map(({ name }) => name);
  const chosen = listOption("sizes", ["d256"], names);
  const whole: Row[] = [];
  const slowest: Row[] = [];
  for (const devices of countsOption("devices", [1, 2])) {
    for (const dtype of listOption("precision", ["float32"], precisions)) {
      const peak = await allCorePeak(devices, dtype);
      for (const size of sizes.filter(({ name }) => chosen.includes(name))) {
        const what = { model: size.name, precision: dtype, devices };
        const own = { ...size, batch: Math.max(size.batch, devices), dtype };
        const { stepMs, events } = await traceStep(own, devices);
        const share = 1 / devices;
        const ideal = stepFlops(own) / peak / 1e6;
        whole.push({ ...what, "step ms": stepMs, "products alone ms": ideal, ...totals(events, share) });
        slowest.push(...slowestSteps(events, share).map((row) => ({ ...what, ...row })));
      }
    }
  }
  return {
    "where the time of a step goes, ms a device": whole,
    "what takes most of it, ms a device": slowest,
  };
}

async function traceStep(size: DecoderSize, devices: number) {
  const engine = createThreadsEngine({ numDevices: devices });
  try {
    const step = await prepareData(size, engine);
    const stepMs = await best(step, { seconds: 2, least: STEPS });
    const recorded: TraceEvent[][] = [];
    for (let i = 0; i < STEPS; i++) recorded.push(await traced(engine, step));
    const [events = []] = recorded.sort((a, b) => duration(a) - duration(b));
    return { stepMs, events: events.filter(({ iteration }) => iteration === undefined) };
  } finally {
    await engine.close();
  }
}

const duration = (events: readonly TraceEvent[]): number =>
  Math.max(...events.map(({ end }) => end)) - Math.min(...events.map(({ begin }) => begin));

const waited = ({ waits }: TraceEvent): number => waits.reduce((sum, { begin, end }) => sum + end - begin, 0);

/** The time of each kind of step without waits, and the waits. */
function totals(events: readonly TraceEvent[], share: number): Row {
  const sums = { gemm: 0, kernel: 0, copy: 0, collective: 0, other: 0, wait: 0 };
  for (const event of events) {
    const wait = waited(event);
    sums[groupOf(event.kind)] += (event.end - event.begin - wait) * share;
    sums.wait += wait * share;
  }
  return sums;
}

function groupOf(kind: string): "gemm" | "kernel" | "copy" | "collective" | "other" {
  if (kind === "gemm" || kind === "kernel" || kind === "copy") return kind;
  return kind === "start" || kind === "done" ? "collective" : "other";
}

function slowestSteps(events: readonly TraceEvent[], share: number): Row[] {
  const sums = new Map<string, { ms: number; count: number }>();
  for (const event of events) {
    const key = `${event.kind} ${shorten(event.ops)}`;
    const sum = sums.get(key) ?? { ms: 0, count: 0 };
    sum.ms += (event.end - event.begin) * share;
    sum.count += share;
    sums.set(key, sum);
  }
  const sorted = [...sums].sort(([, a], [, b]) => b.ms - a.ms).slice(0, SLOWEST);
  return sorted.map(([what, { ms, count }]) => ({
    what,
    "ms a step": ms,
    "times a step": Math.round(count),
  }));
}

/** Ops by number, such as `2 mul, exp`. */
function shorten(ops: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const op of ops) counts.set(op, (counts.get(op) ?? 0) + 1);
  const text = [...counts].map(([op, count]) => (count > 1 ? `${count} ${op}` : op)).join(", ");
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
