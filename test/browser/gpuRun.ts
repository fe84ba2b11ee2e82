/** A page that trains on its GPU, which it can lose. */
import { createWebGpuEngine, type WebGpuEngine } from "shardwise/engines";
import { openOriginFiles, readRunConfig, trainRun } from "shardwise/train";

/** How a run ended. */
export interface GpuRun {
  readonly losses?: readonly number[];
  readonly failure?: string;
}

/** The GPUs that were opened. */
const devices: GPUDevice[] = [];
const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (description) {
  const device = await requestDevice.call(this, description);
  devices.push(device);
  return device;
};

const page = { step: 0, run: undefined as Promise<GpuRun> | undefined };

/** The engine of all runs until its GPU is lost: its shaders are compiled once. */
let shared: WebGpuEngine | undefined;

/** Starts a run in the files of the origin. @param lostAfter the step after which its GPU is lost, if it is */
function start(out: string, resume: boolean, lostAfter?: number): void {
  page.run = train(out, resume, lostAfter);
}

async function train(out: string, resume: boolean, lostAfter: number | undefined): Promise<GpuRun> {
  const text = "a run in a tab goes on when nobody looks. ".repeat(40);
  await (await openOriginFiles("texts")).write("short.txt", new TextEncoder().encode(text));
  const { config } = readRunConfig({
    model: { width: 8, numLayers: 1, numHeads: 1, numKvHeads: 1, mlpWidth: 8 },
    mesh: { data: 1 },
    data: { source: "texts/short.txt", sequence: 8, batch: 2 },
    ...{ steps: 24, checkpointEvery: 2, evalEvery: 24, sample: 0, out },
  });
  shared ??= createWebGpuEngine();
  const engine = shared;
  await engine.opened;
  try {
    const { steps } = await trainRun({
      ...{ config, engine, resume, finish: false, stream: { write: () => {} } },
      onStep: ({ step }) => {
        page.step = step;
        if (step === lostAfter) devices.at(-1)?.destroy();
      },
    });
    return { losses: steps.map(({ loss }) => loss) };
  } catch (error) {
    shared = undefined;
    await engine.close();
    return { failure: String(error) };
  }
}

Object.assign(globalThis, { page, start });
