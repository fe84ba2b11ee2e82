/** The third stage of a run: its step functions, its batches, its journal and its checkpoints. */
import { join } from "#platform/path";
import { mayBlock, nextTurn } from "#platform/system";
import type { Engine } from "../../ir/engine.js";
import { describeProducts } from "../../ir/engineReports.js";
import * as tree from "../../trace/tree.js";
import { batchType, checkMemory } from "../config/memoryNeed.js";
import { numParameters, runTrainingFunctions, splittingAxes } from "../config/setup.js";
import { replaceFile } from "../files/disk/files.js";
import { RunJournal } from "../folder/journal.js";
import { RunSaves } from "../folder/saves.js";
import { measurePeak } from "../report/peak.js";
import { abstractTree } from "../step/abstractTensor.js";
import type { Training } from "../step/training.js";
import { verifyDeterminism } from "./determinism.js";
import type { OpenRun } from "./open.js";
import { openRunBatches, type RunBatches } from "./runBatches.js";

/** A run with everything but its state. */
export interface BuiltRun extends OpenRun {
  readonly training: Training;
  readonly batches: RunBatches;
  readonly journal: RunJournal;
  readonly saves: RunSaves;
}

/** Builds what the steps need and logs a summary of the run; throws if the devices have too little memory for it. */
export async function build(run: OpenRun): Promise<BuiltRun> {
  const { config, options, group, mesh, life, from, data } = run;
  const { vocabSize } = data.tokenizer;
  const isFirst = group.index === 0;
  const training = runTrainingFunctions(config, vocabSize, mesh);
  const openBatches = () => {
    const position = from ? { position: from.manifest.data } : {};
    return openRunBatches(data.training, training, config, { seed: config.seed, ...position });
  };
  const batches = openBatches();
  const { stream, onStep } = options;
  const onChange = () => life.view.changed();
  const journal = new RunJournal({ config, types: training.types, from, isFirst, stream, onStep, onChange });
  life.keep(journal);
  life.view.show({ training, journal });
  const saves = new RunSaves(config, training, life.checkpoints, from, (text) => journal.note(text));
  if (isFirst) await replaceFile(join(config.out, "config.json"), `${JSON.stringify(config, null, 2)}\n`);
  journal.note(summaryLine(run, training));
  for (const note of data.notes) journal.note(note);
  if (!mayBlock()) await compileAside(run, training);
  await life.phase("planning the memory of a step");
  checkMemory(config, vocabSize, training, mesh);
  life.begin();
  await life.phase("measuring the peak of the devices");
  journal.peak = await measurePeak(mesh);
  if (options.verifiesDeterminism) {
    await life.phase("running the first step twice");
    const { tokens } = await openBatches().next();
    journal.note(await verifyDeterminism(training, config.seed, tokens));
    tree.dispose(tokens);
  }
  if (compilesItself(mesh.engine) && !isDone(run)) {
    await life.phase("compiling the training step");
    compileBeside(run, training);
  }
  return { ...run, training, batches, journal, saves };
}

/**
 * Lets other threads compile what the start of a run calls, for threads that must stay responsive: only tracing is left
 * to this one, which has turns in between. Failures are left to the calls themselves, where they are explained.
 */
async function compileAside({ config, data, life }: OpenRun, training: Training): Promise<void> {
  await life.phase("compiling the training step");
  const [state, tokens] = [abstractTree(training.types), batchType(config)];
  const calls = [
    () => training.step.compile(state, tokens),
    () => training.init.compile(config.seed),
    () => training.isFinite.compile(state),
    ...(data.validation ? [() => training.evaluate.compile(state, tokens)] : []),
  ];
  const pending: Promise<void>[] = [];
  for (const call of calls) {
    await nextTurn();
    pending.push(call());
  }
  await Promise.allSettled(pending);
}

/** Whether no step is left. */
const isDone = ({ from, config }: Pick<OpenRun, "from" | "config">): boolean =>
  from !== undefined && from.step >= config.steps;

/** Whether an engine compiles on threads of its own, as XLA does, and not with this package's compiler. */
const compilesItself = ({ compileSettings }: Engine): boolean => compileSettings === undefined && mayBlock();

/** Has the engine compile the step, which takes longest, while the state is made or read. Failures are left to the call. */
function compileBeside({ config }: OpenRun, training: Training): void {
  training.step.compile(abstractTree(training.types), batchType(config)).catch(() => {});
}

/** One line about the model, the devices and the data. */
function summaryLine({ config, mesh, from, data }: OpenRun, { types }: Training): string {
  const axes = splittingAxes(mesh.shape);
  const devices = `${mesh.size} ${mesh.size === 1 ? "device" : "devices"}${axes.length > 0 ? ` (${axes.join(", ")})` : ""}`;
  const start = from
    ? `, from step ${from.step}${isDone({ from, config }) ? ": none is left, raise --steps to continue" : ""}`
    : "";
  const tuned =
    config.tune.kind === "none" ? "" : ` in ${config.tune.kind} adapters of a ${config.tune.base} base`;
  const what = `${config.model.kind} with ${(numParameters(types) / 1e6).toFixed(2)} M parameters${tuned} on ${devices}, ${data.numTokens.toLocaleString("en-US")} tokens, ${config.steps} steps${start}`;
  const info = mesh.engine.info?.();
  const products = (info && describeProducts(info)) ?? [];
  return [what, products, `writing to ${config.out}`].flat().join("; ");
}
