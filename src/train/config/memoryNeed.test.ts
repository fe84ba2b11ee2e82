import { afterAll, describe, expect, test } from "vitest";
import "../../index.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { hostEngine } from "../../engines/host.js";
import { createThreadsEngine } from "../../engines/threads/engine.js";
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
