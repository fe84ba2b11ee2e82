/**
 * Causal attention over a sequence that devices share, forward and backward, beside one device with the whole sequence.
 * Exposed is the share of the time that devices spend in exchanges and in waiting for them, from the trace.
 *
 *     npm run bench -- context --devices 2 --lengths 2048,8192
 */
import { grad, jit, Mesh, NamedSharding, np, P, random, shardMap, type Tensor } from "shardwise";
import { createThreadsEngine, type ThreadsEngine, type TraceEvent } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { bestInTurns, type Report, type Row, settle } from "./measure.js";
import { countsOption } from "./options.js";

const [batch, heads, headDim] = [1, 8, 64];

/** Number of recorded runs. */
const RUNS = 3;

const ways = [
  { context: "ring", placement: "zigzag" },
  { context: "ring", placement: "contiguous" },
  { context: "allToAll", placement: "contiguous" },
  { context: "gather", placement: "contiguous" },
] as const;

type Step = () => Promise<unknown>;

/** The gradients of attention on the devices of an engine. */
function stepOn(engine: ThreadsEngine, length: number, way: (typeof ways)[number]): Step {
  const mesh = Mesh.create({ context: engine.numDevices }, { engine });
  const part = P(null, "context");
  const attend = shardMap(
    (q: Tensor, k: Tensor, v: Tensor) => nn.contextAttention(q, k, v, { causal: true, ...way }).output,
    { mesh, inSpecs: part, outSpecs: part },
  );
  const loss = (q: Tensor, k: Tensor, v: Tensor) => np.sum(np.sin(attend(q, k, v)));
  const sharding = new NamedSharding(mesh, part);
  const step = jit(grad(loss, { argnums: [0, 1, 2] }), {
    mesh,
    inShardings: sharding,
    outShardings: sharding,
  });
  const [q, k, v] = [1, 2, 3].map((seed) => random.normal(random.key(seed), [batch, length, heads, headDim]));
  return () => settle(step(q ?? np.zeros([]), k ?? np.zeros([]), v ?? np.zeros([])));
}

/** The share of the time of all steps that exchanges take, waits included. */
function exposedShare(events: readonly TraceEvent[]): number {
  const outermost = events.filter(({ iteration }) => iteration === undefined);
  const sum = (some: readonly TraceEvent[]) => some.reduce((ms, { begin, end }) => ms + end - begin, 0);
  return sum(outermost.filter(({ kind }) => kind === "start" || kind === "done")) / sum(outermost);
}

async function exposed(engine: ThreadsEngine, step: Step): Promise<number> {
  engine.tracer.start();
  for (let i = 0; i < RUNS; i++) await step();
  return exposedShare(await engine.tracer.stop());
}

/** Runs the benchmark. */
export async function context(): Promise<Report> {
  const rows: Row[] = [];
  for (const devices of countsOption("devices", [2])) {
    const alone = createThreadsEngine({ numDevices: 1, threadsPerDevice: 1 });
    const engine = createThreadsEngine({ numDevices: devices, threadsPerDevice: 1 });
    try {
      for (const length of countsOption("lengths", [2048, 8192])) {
        const steps = ways.map((way) => stepOn(engine, length, way));
        const [aloneMs = 0, ...times] = await bestInTurns([stepOn(alone, length, ways[0]), ...steps]);
        for (const [i, step] of steps.entries()) {
          const ms = times[i] ?? 0;
          rows.push({
            ...{ tokens: length, devices, ...ways[i], ms, "one device ms": aloneMs },
            "times as fast": aloneMs / ms,
            exposed: await exposed(engine, step),
          });
        }
      }
    } finally {
      await alone.close();
      await engine.close();
    }
  }
  return { "causal attention over a shared sequence": rows };
}
