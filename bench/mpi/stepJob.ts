/** One AdamW step of a decoder, data parallel over processes of one device each: process 0 prints how long it takes. */
import { createMpiEngine } from "../../src/engines/mpi/engine.js";
import type { DecoderSize } from "../decoder.js";
import { prepareData } from "../lm.js";

/** What process 0 prints. */
export interface StepTimes {
  readonly stepMs: number;
  readonly compileMs: number;
}

const size: DecoderSize = JSON.parse(process.argv[2] ?? "{}");
const NUM_STEPS = 8;

const engine = createMpiEngine();
const { step } = await prepareData(size, engine);
const begin = performance.now();
await step();
const compileMs = performance.now() - begin;
let stepMs = Number.POSITIVE_INFINITY;
for (let i = 0; i < NUM_STEPS; i++) {
  const start = performance.now();
  await step();
  stepMs = Math.min(stepMs, performance.now() - start);
}
await engine.close();
if (engine.process.index === 0) console.log(JSON.stringify({ stepMs, compileMs } satisfies StepTimes));
