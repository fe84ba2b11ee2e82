import { existsSync } from "node:fs";
import { ConfigError } from "../../ir/errors.js";
import { sizeOf } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { devicePut } from "../../spmd/mesh/sharding.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { text } from "../../train/config/configSchema.js";
import { batchType } from "../../train/config/memoryNeed.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../../train/config/setup.js";
import { writeStepTrace } from "../../train/report/runReport.js";
import { recordWork, sharesOfWork } from "../../train/report/stepTrace.js";
import { defineCommand, exitCodes } from "../command.js";
import { phase } from "../phase.js";
import {
  configOf,
  engineOption,
  findCheckpoint,
  isRunFolder,
  readConfigFile,
  useEngine,
} from "../runArguments.js";
import { explainInterrupts } from "../stopSignals.js";

/** Records what every device does during one step. */
export const trace = defineCommand({
  name: "trace",
  summary: "record what every device does during one step",
  usage: "[config.json | run or checkpoint folder] [options]",
  options: { output: text("trace.json", "the file to write"), ...engineOption },
  takesFields: true,
  examples: ["shardwise trace --mesh pipe=2", "shardwise trace my.json --output step.json"],
  run: async (parsed) => {
    const { output } = parsed.values;
    const forget = explainInterrupts(
      `${output} is ${existsSync(output) ? "as it was before" : "not written"}`,
    );
    await useEngine(parsed);
    const [what] = parsed.positional;
    const json =
      what === undefined
        ? {}
        : isRunFolder(what)
          ? (await findCheckpoint(what, "trace")).checkpoint.manifest.config
          : readConfigFile(what);
    const config = configOf(json, parsed);
    phase("compiling the training step");
    const mesh = runMesh(config);
    const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
    // The time of a step does not depend on the tokens, so any will do.
    const type = batchType(config);
    const { tokens: shape, ...rest } = type instanceof Tensor ? { tokens: type } : type;
    const ones = (x: Tensor) => np.ones(x.shape, { dtype: x.dtype });
    const values = np.arange(sizeOf(shape.shape)).mul(31).mod(256).reshape(shape.shape);
    const batch = type instanceof Tensor ? values : { ...tree.map(ones, rest), tokens: values };
    const tokens = await devicePut(batch, training.batchSharding);
    let [state, metrics] = training.step(training.init(config.seed), tokens);
    [state, metrics] = training.step(state, tokens);
    await metrics.loss.ready();
    phase("recording a step");
    const recorded = await recordWork(mesh.engine, async () => {
      [state, metrics] = training.step(state, tokens);
      await metrics.loss.ready();
    });
    const { work } = recorded;
    if (work.length === 0) {
      const why = mesh.engine.name === "webgpu" ? ": the adapter of this GPU has no timestamp-query" : "";
      throw new ConfigError(
        `[trace] the engine "${mesh.engine.name}" records nothing${why}: use --engine threads`,
      );
    }
    const router = await metrics.router?.data();
    writeStepTrace(output, recorded, "one training step", { training, config, mesh }, router);
    forget();
    phase("");
    const percent = (share: number) => `${(100 * share).toFixed(1)} %`.padStart(8);
    const total = Math.max(...work.map(({ end }) => end));
    const rows = sharesOfWork(work).map(
      ({ device, gemm, kernel, copy, collective, wait, idle }) =>
        `device ${String(device).padEnd(4)}${[gemm, kernel, copy, collective, wait, idle].map(percent).join("  ")}`,
    );
    process.stdout.write(
      `${[
        `one step of ${total.toFixed(1)} ms, ${work.length} events in ${output}; open it in ui.perfetto.dev`,
        "            products   kernels    copies  communic.   waiting      idle",
        ...rows,
      ].join("\n")}\n`,
    );
    return exitCodes.ok;
  },
});
