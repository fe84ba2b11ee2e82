/** The last stage of a run: its last checkpoint, a sample, the trace of a step, and the report. */
import { join } from "#platform/path";
import * as tree from "../../trace/tree.js";
import { writeRunReport, writeStepTrace } from "../report/runReport.js";
import { recordWorkOfAll } from "../report/stepTrace.js";
import type { TrainedRun } from "./loop.js";
import type { RunEnding, RunOutcome } from "./runOptions.js";
import { sampleOf } from "./sample.js";

/** Ends a run after its last step, and returns its outcome; the state is donated. */
export async function finish(run: TrainedRun): Promise<RunOutcome> {
  const { config, options, life, from, journal, saves, state, step, position } = run;
  await life.phase("writing the checkpoint");
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
  const { config, life, journal, state, step } = run;
  let sample = "";
  if (config.sample > 0) {
    await life.phase("writing a sample");
    sample = await sampleOf(run, state);
    journal.sampled(step, sample);
  }
  return { sample, files: life.isStopping ? {} : await writeFiles(run) };
}

/** Records a step, and writes its trace and the report. */
async function writeFiles(run: TrainedRun): Promise<RunEnding["files"]> {
  const { config, group, mesh, life, training, batches, journal, state } = run;
  await life.phase("recording a step for the report");
  const { tokens } = await batches.next();
  const cost = training.cost(state, tokens);
  const warm = training.step(state, tokens);
  await warm[1].loss.ready();
  const { result, ...recorded } = await recordWorkOfAll(mesh.engine, async () => {
    const after = training.step(warm[0], tokens);
    await after[1].loss.ready();
    return after;
  });
  const router = await result[1].router?.data();
  tree.dispose([warm, result, tokens]);
  if (group.index > 0) return {};
  const trace = join(config.out, "trace.json");
  const isRecorded = recorded.work.length > 0;
  if (isRecorded) {
    writeStepTrace(trace, recorded, `one step of ${config.out}`, { config, training, mesh }, router);
  }
  const report = join(config.out, "report.html");
  await writeRunReport(report, {
    config,
    mesh,
    training,
    cost,
    trace: recorded,
    steps: journal.steps,
    evaluations: journal.evaluations,
    samples: journal.samples,
  });
  journal.finish();
  life.view.show({ cost, trace: recorded, status: "" });
  return { report, ...(isRecorded ? { trace } : {}) };
}
