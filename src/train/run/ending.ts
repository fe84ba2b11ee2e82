import { join } from "node:path";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { modelConfig, type RunConfig } from "../config/runConfig.js";
import { onHost } from "../folder/savedRun.js";
import { toCanonical } from "../models/canonical.js";
import { sampleText } from "../models/sampleText.js";
import type { RunReport } from "../report/reportPage.js";
import { writeRunReport, writeStepTrace } from "../report/runReport.js";
import { recordWorkOfAll } from "../report/stepTrace.js";
import type { LanguageModelState } from "../step/state.js";
import type { Training } from "../step/training.js";
import type { RunData } from "./runData.js";

/** A run whose last step is done. */
export interface EndedRun extends Pick<RunReport, "steps" | "evaluations"> {
  readonly config: RunConfig;
  readonly mesh: Mesh;
  readonly training: Training;
  readonly data: RunData;
  /** When it is aborted, the rest is left out. */
  readonly signal?: AbortSignal;
}

/** What is made of a run at its end. */
export interface RunEnding {
  readonly sample: string;
  /** The files written, by what they are. */
  readonly files: Readonly<Record<string, string>>;
}

/** How many tokens of text the sample at the end begins with. */
const promptTokens = 48;

/**
 * Writes a sample, the trace of a step and the report; where several processes train, they all take part, and the
 * first one writes.
 *
 * @param state is used up
 * @param tokens a batch to record a step with
 */
export async function endRun(
  run: EndedRun,
  state: LanguageModelState,
  tokens: () => Promise<Tensor>,
): Promise<RunEnding> {
  const sample = run.config.sample > 0 ? await sampleOf(run, state) : "";
  if (run.signal?.aborted) return { sample, files: {} };
  return { sample, files: await writeFiles(run, state, await tokens(), sample) };
}

async function sampleOf({ config, training, mesh, data, signal }: EndedRun, state: LanguageModelState) {
  const params = toCanonical(await onHost(state.params), training.layout);
  // All processes have a part of the parameters, but one of them is enough to read with.
  if (!isFirst(mesh)) return "";
  const sampled = {
    model: modelConfig(config, data.tokenizer.vocabSize),
    params,
    tokenizer: data.tokenizer,
    window: config.data.sequence,
    engine: mesh.engine,
  };
  return sampleText(sampled, {
    prompt: await promptFrom(data),
    length: config.sample,
    seed: config.seed,
    ...(signal ? { signal } : {}),
  });
}

/** Whether this process is the one that tells how a run went. */
function isFirst({ engine }: Mesh): boolean {
  return engine.process.index === 0;
}

/** Records a step, and writes its trace and the report. */
async function writeFiles(
  { config, mesh, training, steps, evaluations }: EndedRun,
  state: LanguageModelState,
  tokens: Tensor,
  sample: string,
): Promise<RunEnding["files"]> {
  const cost = training.cost(state, tokens);
  const warm = training.step(state, tokens);
  await warm[1].loss.ready();
  const recorded = await recordWorkOfAll(mesh.engine, async () => {
    const after = training.step(warm[0], tokens);
    await after[1].loss.ready();
    return after;
  });
  tree.dispose([warm, recorded.result, tokens]);
  if (!isFirst(mesh)) return {};
  const trace = join(config.out, "trace.json");
  const isRecorded = recorded.work.length > 0;
  if (isRecorded) writeStepTrace(trace, recorded, `one step of ${config.out}`, { config, training, mesh });
  const report = join(config.out, "report.html");
  await writeRunReport(report, {
    config,
    mesh,
    training,
    cost,
    trace: recorded,
    steps,
    evaluations,
    sample,
  });
  return { report, ...(isRecorded ? { trace } : {}) };
}

/** A few words that the model was not trained on. */
async function promptFrom({ validation, training, tokenizer }: RunData): Promise<string> {
  const source = validation ?? training;
  const start = await source.read(0, Math.min(promptTokens, source.numTokens));
  const text = tokenizer.decode(start).replaceAll("\uFFFD", "").trim();
  // The first and the last word may be cut off.
  return text.replace(/^\S*\s+/, "").replace(/\s+\S*$/, "");
}
