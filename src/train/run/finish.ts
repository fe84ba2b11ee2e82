/** The last stage of a run: its last checkpoint, a sample, the trace of a step, and the report. */
import { join } from "node:path";
import * as tree from "../../trace/tree.js";
import { modelConfig } from "../config/runConfig.js";
import { onHost } from "../folder/savedRun.js";
import { toCanonical } from "../models/canonical.js";
import { sampleText } from "../models/sampleText.js";
import { writeRunReport, writeStepTrace } from "../report/runReport.js";
import { recordWorkOfAll } from "../report/stepTrace.js";
import type { TrainedRun } from "./loop.js";
import type { RunData } from "./runData.js";
import type { RunEnding, RunOutcome } from "./runOptions.js";

/** Length of the prompt of the final sample, in tokens. */
const promptTokens = 48;

/** Ends a run after its last step, and returns its outcome; the state is donated. */
export async function finish(run: TrainedRun): Promise<RunOutcome> {
  const { config, options, life, from, journal, saves, state, step, position } = run;
  await saves.finish(state, step, position);
  journal.finish();
  const isDone = step >= config.steps;
  const isClosing = isDone && options.finish !== false;
  const { sample, files } = isClosing && !life.isStopping ? await close(run) : { sample: "", files: {} };
  tree.dispose(state);
  return {
    status: isDone && !(isClosing && life.isStopping) ? "finished" : "stopped",
    step,
    resumedFrom: from?.step ?? 0,
    folder: config.out,
    checkpoint: saves.folder ?? "",
    steps: journal.steps,
    evaluations: journal.evaluations,
    sample,
    files: { metrics: journal.file, ...files },
  };
}

/** Makes sample, trace and report; all processes take part, and the first one writes. */
async function close(run: TrainedRun): Promise<RunEnding> {
  const sample = run.config.sample > 0 ? await sampleOf(run) : "";
  return { sample, files: run.life.isStopping ? {} : await writeFiles(run, sample) };
}

async function sampleOf({ config, options, group, mesh, training, data, state }: TrainedRun) {
  const params = toCanonical(await onHost(state.params), training.layout);
  // All processes hold a part of the parameters, but one of them is enough to sample.
  if (group.index > 0) return "";
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
    ...(options.signal ? { signal: options.signal } : {}),
  });
}

/** Records a step, and writes its trace and the report. */
async function writeFiles(
  { config, group, mesh, training, batches, journal, state }: TrainedRun,
  sample: string,
): Promise<RunEnding["files"]> {
  const { tokens } = await batches.next();
  const cost = training.cost(state, tokens);
  const warm = training.step(state, tokens);
  await warm[1].loss.ready();
  const recorded = await recordWorkOfAll(mesh.engine, async () => {
    const after = training.step(warm[0], tokens);
    await after[1].loss.ready();
    return after;
  });
  tree.dispose([warm, recorded.result, tokens]);
  if (group.index > 0) return {};
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
    steps: journal.steps,
    evaluations: journal.evaluations,
    sample,
  });
  return { report, ...(isRecorded ? { trace } : {}) };
}

/** A prompt that the model was not trained on, if there is validation text. */
async function promptFrom({ validation, training, tokenizer }: RunData): Promise<string> {
  const source = validation ?? training;
  const start = await source.read(0, Math.min(promptTokens, source.numTokens));
  const text = tokenizer.decode(start).replaceAll("\uFFFD", "").trim();
  // The first and the last word may be incomplete.
  return text.replace(/^\S*\s+/, "").replace(/\s+\S*$/, "");
}
