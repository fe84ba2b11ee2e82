import { afterAll, describe, expect, test } from "vitest";
import "../../index.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { hostEngine } from "../../engines/host.js";
import { createThreadsEngine } from "../../engines/threads/engine.js";
import * as np from "../../numpy/index.js";
import { devicePut } from "../../spmd/mesh/sharding.js";
import { trainRun } from "../run/trainRun.js";
import { memoryNeed, totalBytes } from "./memoryNeed.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "./setup.js";

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);

describe("the memory of a run", () => {
  const changes = { "mesh.data": 2, "model.numLayers": 1, "data.sequence": 32, "data.batch": 254, steps: 1 };
  const config = tinyConfig(folder.path, changes);
  const training = runTrainingFunctions(config, expectedVocabulary(config), runMesh(config, hostEngine));
  const need = totalBytes(memoryNeed(training, config));

  const runWith = async (memoryBytes: number) => {
    const engine = createThreadsEngine({ numDevices: 2, memoryBytes: Math.round(memoryBytes) });
    try {
      return await trainRun({ config, engine, stream: silent, finish: false });
    } finally {
      await engine.close();
    }
  };

  test("is compared with what devices can have before it starts, and the error tells what would need less", async () => {
    const error = await runWith(0.8 * need).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "out-of-memory" });
    const text = String(error);
    expect(text).toMatch(
      /a step needs [\d.]+ [KM]iB on each device \(state and batch .*\), but a device can have/,
    );
    // The batch of 254 does not split further.
    expect(text).toMatch(
      /\n {2}--model.remat full +[\d.]+ .iB.*\n {2}--mesh fsdp=2 +[\d.]+ .iB.*\na smaller model/,
    );
  });

  test("is enough when it is there, beside constants and tables", async () => {
    expect(await runWith(1.1 * need + 2 ** 20)).toMatchObject({ status: "finished", step: 1 });
  });
});

describe("the memory that is told of a step", () => {
  const model = { "model.width": 64, "model.mlpWidth": 192, "data.sequence": 64, "data.batch": 16 };
  const moe = {
    "model.kind": "moe",
    "model.experts.numExperts": 4,
    "model.experts.numExpertsPerToken": 2,
  };
  const pipeline = { "mesh.pipe": 2, "pipeline.schedule": "1f1b", "pipeline.microbatches": 4 };

  test.each<[string, Readonly<Record<string, string | number>>]>([
    ["data and fsdp", { "mesh.data": 2, "mesh.fsdp": 2 }],
    ["fsdp and model, sequences split", { "mesh.fsdp": 2, "mesh.model": 2, tensor: "sequence" }],
    ["context and fsdp, recomputed", { "mesh.context": 2, "mesh.fsdp": 2, "model.remat": "full" }],
    ["context in a pipeline", { "mesh.context": 2, ...pipeline }],
    ["experts", { "mesh.expert": 2, "mesh.fsdp": 2, ...moe }],
  ])("is what threads have, within a tenth: %s", async (_, changes) => {
    const config = tinyConfig(folder.path, { ...model, ...changes });
    const numDevices = Object.values(config.mesh).reduce((product, size) => product * size, 1);
    const engine = createThreadsEngine({ numDevices });
    try {
      const training = runTrainingFunctions(config, expectedVocabulary(config), runMesh(config, engine));
      const { batch, sequence } = config.data;
      const zeros = np.zeros([batch, sequence + 1], { dtype: "int32" });
      const tokens = await devicePut(zeros, training.batchSharding);
      const [, metrics] = training.step(training.init(0), tokens);
      await metrics.loss.data();
      const { used, peak = used, arena } = engine.memoryUsage(0);
      const told = totalBytes(memoryNeed(training, config));
      expect(told / (peak + arena)).toBeGreaterThan(0.9);
      expect(told / (peak + arena)).toBeLessThan(1.1);
    } finally {
      await engine.close();
    }
  });
});
