/**
 * Where the time of the fastest of several training steps goes: mean times over the devices for products, other
 * computation, exchanges and waits, and the most expensive kernels. Devices have one thread each.
 *
 *     npm run bench -- profile --devices 1,2,8,16 --sizes d256,d512,d1024 --precision float32,bfloat16
 *     npm run bench -- profile --devices 2 --sizes "npm start"
 */
import { createThreadsEngine, type ThreadsEngine, type TraceEvent } from "shardwise/engines";
import { type DecoderSize, precisions, sizes, stepFlops } from "./decoder.js";
import { prepareData } from "./lm.js";
import { allCorePeak, best, type Report, type Row, traced } from "./measure.js";
import { countsOption, listOption } from "./options.js";
import { prepareStart, startName } from "./startRun.js";

/** Number of recorded steps, after as many unrecorded ones; the fastest counts. */
const STEPS = 10;

/** How many kernels are listed. */
const SLOWEST = 12;

/** A step to be profiled. */
interface Work {
  readonly model: string;
  readonly dtype: (typeof precisions)[number];
  readonly prepare: (
    engine: ThreadsEngine,
  ) => Promise<{ readonly step: () => Promise<void>; readonly flops: number }>;
}

/** Runs the benchmark. */
export async function profile(): Promise<Report> {
  const names = [...sizes.map(({ name }) => name), startName];
  const chosen = listOption("sizes", ["d256"], names);
  const whole: Row[] = [];
  const slowest: Row[] = [];
  for (const devices of countsOption("devices", [1, 2])) {
    for (const dtype of listOption("precision", ["float32"], precisions)) {
      for (const { model, prepare } of worksOf(chosen, devices, dtype)) {
        const what = { model, precision: dtype, devices };
        const before = await allCorePeak(devices, dtype);
        const { stepMs, events, flops } = await traceStep(prepare, devices);
        // Other load on the machine may have affected only one of the two.
        const peak = Math.max(before, await allCorePeak(devices, dtype));
        const share = 1 / devices;
        whole.push({
          ...what,
          "step ms": stepMs,
          "products alone ms": flops / peak / 1e6,
          ...totals(events, share),
        });
        slowest.push(...slowestSteps(events, share).map((row) => ({ ...what, ...row })));
      }
    }
  }
  return {
    "where the time of a step goes, ms a device": whole,
    "what takes most of it, ms a device": slowest,
  };
}

function worksOf(chosen: readonly string[], devices: number, dtype: Work["dtype"]): Work[] {
  const decoders = sizes.map((size): Work => {
    const own: DecoderSize = { ...size, batch: Math.max(size.batch, devices), dtype };
    const prepare: Work["prepare"] = async (engine) => ({
      step: (await prepareData(own, engine)).step,
      flops: stepFlops(own),
    });
    return { model: size.name, dtype, prepare };
  });
  const start: Work = { model: startName, dtype, prepare: prepareStart };
  return [...decoders, ...(dtype === "float32" ? [start] : [])].filter(({ model }) => chosen.includes(model));
}

async function traceStep(prepare: Work["prepare"], devices: number) {
  const engine = createThreadsEngine({ numDevices: devices, threadsPerDevice: 1 });
  try {
    const { step, flops } = await prepare(engine);
    const stepMs = await best(step, { seconds: 2, least: STEPS });
    const recorded: TraceEvent[][] = [];
    for (let i = 0; i < STEPS; i++) recorded.push(await traced(engine, step));
    const [events = []] = recorded.sort((a, b) => duration(a) - duration(b));
    // What a loop does is in the events of its steps.
    const isStep = ({ iteration, kind }: TraceEvent) => iteration === undefined && kind !== "loop";
    return { stepMs, flops, events: events.filter(isStep) };
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
    const key =
      event.kind === "gemm" ? `gemm of ${lineOf(event.source)}` : `${event.kind} ${shorten(event.ops)}`;
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

/** The file and the line of a place in the source, such as `llama.ts:95`: products have little else to tell them apart. */
function lineOf(source = "unknown source"): string {
  return /([^/]+:\d+):\d+\)?$/.exec(source)?.[1] ?? source;
}

/** Ops by number, such as `2 mul, exp`. */
function shorten(ops: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const op of ops) counts.set(op, (counts.get(op) ?? 0) + 1);
  const text = [...counts].map(([op, count]) => (count > 1 ? `${count} ${op}` : op)).join(", ");
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
