/** Compiles programs for many devices on one GPU, with collectives that only pretend, and runs this device's part. */
import { createXlaEngine } from "../../src/engines/xla/openXla.js";
import { devicePut, np } from "../../src/index.js";
import type { Engine } from "../../src/ir/engine.js";
import { axesSize } from "../../src/ir/mesh.js";
import { range } from "../../src/ir/shape.js";
import { readRunConfig } from "../../src/train/config/runConfig.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../../src/train/config/setup.js";
import type { EngineCase } from "../conformance/engine/cases.js";
import { writtenCases } from "../conformance/engine/opCases.js";
import { programCases } from "../conformance/engine/programCases.js";

/** Ways to split a training step, by the number of devices. */
const runs: Readonly<Record<number, readonly object[]>> = {
  4: [
    { mesh: { data: 4 } },
    { mesh: { fsdp: 4 } },
    { mesh: { data: 2, model: 2 }, tensor: "async" },
    { mesh: { data: 2, pipe: 2 } },
  ],
  8: [
    { mesh: { data: 2, fsdp: 2, model: 2 } },
    { mesh: { fsdp: 8 } },
    { mesh: { data: 2, pipe: 2, model: 2 } },
  ],
};

async function runCase(engine: Engine, { program, mesh, inputs, name }: EngineCase): Promise<void> {
  const devices = range(axesSize(mesh.axes));
  const executable = engine.compile(program, { mesh, devices, name });
  const buffers = inputs.map(([first]) => (first ? [engine.upload(first.type, first.data, 0)] : []));
  const outputs = executable.execute(buffers);
  for (const buffer of outputs.flat()) await engine.ready(buffer);
  for (const buffer of [...buffers, ...outputs].flat()) engine.release(buffer);
  executable.release();
}

async function runStep(engine: Engine, choices: object): Promise<void> {
  const model = { dtype: "bfloat16", width: 128, numHeads: 4, numKvHeads: 2 };
  const { config, violations } = readRunConfig({ model, data: { batch: 16 }, ...choices });
  if (violations.length > 0) throw new Error(violations.join("; "));
  const training = runTrainingFunctions(config, expectedVocabulary(config), runMesh(config, engine));
  const tokens = np.zeros([config.data.batch, config.data.sequence + 1], "int32");
  const [, metrics] = training.step(training.init(0), await devicePut(tokens, training.batchSharding));
  await metrics.loss.ready();
}

/** Compiles and starts everything for 4 and for 8 devices. */
export async function runPretended(
  print: (line: string) => void,
): Promise<{ passed: number; failed: number }> {
  const count = { passed: 0, failed: 0 };
  const attempt = async (name: string, work: () => Promise<void>) => {
    try {
      await work();
      count.passed++;
    } catch (error) {
      count.failed++;
      print(`FAIL ${name}: ${error instanceof Error ? error.message.slice(0, 300) : error}`);
    }
  };
  for (const [number, choices] of Object.entries(runs)) {
    const engine = createXlaEngine({ pretendDevices: Number(number), cache: false });
    const cases = [...Object.values(writtenCases).flat(), ...programCases];
    const split = cases.filter(
      ({ mesh }) => axesSize(mesh.axes) > 1 && axesSize(mesh.axes) <= engine.numDevices,
    );
    for (const one of split) await attempt(`${number} devices, ${one.name}`, () => runCase(engine, one));
    for (const one of choices)
      await attempt(`${number} devices, ${JSON.stringify(one)}`, () => runStep(engine, one));
    print(
      `${number} devices: process ${engine.process.index} of ${engine.process.count}, ${JSON.stringify(count)}`,
    );
    await engine.close();
  }
  return count;
}
