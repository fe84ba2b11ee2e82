/** Runs a small model under a schedule on the workers of this tab, and reports what each device did in one step. */
import { engineInfo, jit, Mesh, np, random, type Tensor } from "shardwise";
import { makeSchedule, pipelineTrainStep, placeParts, type ScheduleName } from "shardwise/parallel";
import { type Span, spansOf } from "./record.js";

/** What the page asks for. */
export interface ToPipeline {
  readonly name: ScheduleName;
  readonly numStages: number;
  readonly numMicrobatches: number;
  readonly numChunks: number;
}

/** What the page is told. */
export type FromPipeline =
  | { readonly kind: "failed"; readonly message: string }
  | {
      readonly kind: "measured";
      readonly engine: string;
      readonly ms: number;
      readonly spans: readonly Span[];
    };

const width = 192;
const functions = {
  first: (w: { readonly kernel: Tensor }, x: Tensor) => np.matmul(x, w.kernel),
  stage: (w: { readonly up: Tensor; readonly down: Tensor }, h: Tensor) =>
    h.add(np.matmul(np.tanh(np.matmul(h, w.up)), w.down)),
  last: (w: { readonly kernel: Tensor }, h: Tensor, y: Tensor) =>
    np.mean(np.square(np.matmul(h, w.kernel).sub(y))),
};

async function measure({ name, numStages, numMicrobatches, numChunks }: ToPipeline): Promise<FromPipeline> {
  const schedule = makeSchedule(name, { numStages, numMicrobatches, numChunks });
  const mesh = Mesh.create({ pipe: numStages });
  const scaled = (seed: number, ...shape: number[]) =>
    random.normal(random.key(seed), shape).mul(width ** -0.5);
  const numParts = numStages * numChunks;
  const weights = {
    first: { kernel: scaled(1, width, width) },
    stages: placeParts(schedule, {
      up: scaled(2, numParts, width, 2 * width),
      down: scaled(3, numParts, 2 * width, width),
    }),
    last: { kernel: scaled(4, width, width) },
  };
  const step = jit(pipelineTrainStep(schedule, functions, { mesh }), { mesh });
  const rows = 32 * numMicrobatches;
  const [x, y] = [scaled(5, rows, width), scaled(6, rows, width)];
  const run = async () => {
    await step(weights, x, y).value.item();
  };
  await run();
  await run();
  const { tracer } = mesh.engine;
  tracer?.start();
  const begin = performance.now();
  await run();
  const ms = performance.now() - begin;
  const spans = spansOf((await tracer?.stop()) ?? []);
  return { kind: "measured", engine: engineInfo().engine, ms, spans };
}

addEventListener("message", async ({ data }: MessageEvent<ToPipeline>) => {
  try {
    postMessage(await measure(data));
  } catch (error) {
    postMessage({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
  }
});
