/** The fifth stage of a run: steps, and between them evaluations and checkpoints. */
import * as tree from "../../trace/tree.js";
import type { Json } from "../files/checkpoints/checkpointManifest.js";
import { recordWorkOfAll } from "../report/stepTrace.js";
import type { LanguageModelState, StepMetrics } from "../step/state.js";
import type { TokenInput } from "../step/tokenBatch.js";
import { evaluateOn } from "./evaluation.js";
import { readStep, type UnreadStep } from "./readStep.js";
import type { RestoredRun } from "./restore.js";
import { sampleOf } from "./sample.js";

/** A run after its last step, or that was asked to stop. */
export interface TrainedRun extends RestoredRun {
  /** The position in the data after the last step. */
  readonly position: Json;
}

/** Trains until the last step is done or the run is asked to stop; the initial state is donated. */
export async function loop(run: RestoredRun): Promise<TrainedRun> {
  const { config, options, life, batches } = run;
  let { state, step } = run;
  let position = batches.position();
  let unread: UnreadStep | undefined;
  /**
   * Reads and records the metrics of the last step, before a checkpoint after which that step would not be repeated.
   */
  const settle = async () => {
    const last = unread;
    unread = undefined;
    if (last) await readStep(run, last, state);
  };
  const prefetch = () => {
    if (step >= config.steps) return undefined;
    const batch = batches.next();
    // It is awaited a step later, where a failure is thrown.
    batch.catch(() => {});
    return batch;
  };
  let next = prefetch();
  /** Whether the next step is recorded for whoever watches the run. */
  let records = false;
  await life.phase("compiling the training step");
  run.journal.startClock();
  for (let isFirst = true; next && !life.isStopping; isFirst = false) {
    const batch = await next;
    // Only this step is to be recorded, not what is left of the one before.
    if (records) await settle();
    const take = () => run.training.step(state, batch.tokens, unread?.metrics);
    const [changed, metrics] = records ? await recordStep(run, take) : take();
    const ended = endOf(metrics);
    if (isFirst) started(run, changed, batch.tokens, ended);
    state = changed;
    step++;
    const before = position;
    position = batch.position;
    next = prefetch();
    // The metrics of the previous step are read while this one runs, so that no device waits for the host.
    await settle();
    if (step === run.step + 2) compileEvaluation(run, state, batch.tokens);
    unread = { step, metrics, ended, tokens: batch.tokens, before };
    const isEvaluated = step % config.evalEvery === 0 || step === config.steps;
    records = options.onChange !== undefined && (isFirst || isEvaluated);
    if (isEvaluated || isDue(config.sampleEvery, step)) await settle();
    if (isEvaluated) await evaluate(run, state, step);
    if (step === config.steps) continue;
    if (isDue(config.sampleEvery, step)) run.journal.sampled(step, await sampleOf(run, state));
    await saveIfDue(run, settle, { state, step, position });
  }
  await settle();
  tree.dispose((await next)?.tokens);
  return { ...run, state, step, position };
}

/** The time at which a step ends; if it fails, whoever reads its metrics learns why. */
function endOf({ loss }: StepMetrics): Promise<number> {
  const now = () => performance.now();
  return loss.ready().then(now, now);
}

const isDue = (every: number, step: number) => every > 0 && step % every === 0;

/**
 * Compiles the evaluation while steps run. Not before the first step has ended: compilations of some engines take cores,
 * and the device, from each other. A failure is thrown by the evaluation itself.
 */
function compileEvaluation(
  { training, data }: RestoredRun,
  state: LanguageModelState,
  tokens: TokenInput,
): void {
  if (data.validation) training.evaluate.compile(state, tokens).catch(() => {});
}

/** Saves a state if it is time for that, or for another attempt after one that failed. */
async function saveIfDue(
  { config, group, saves, journal }: RestoredRun,
  settle: () => Promise<void>,
  { state, step, position }: Pick<TrainedRun, "state" | "step" | "position">,
): Promise<void> {
  const isPlanned = isDue(config.checkpointEvery, step);
  // Processes that decided by their own clocks would not save together.
  if (!isPlanned && !(saves.isDue && group.count === 1)) return;
  await settle();
  await (isPlanned ? saves.save(state, step, position) : saves.retry(state, step, position));
  journal.startClock();
}

/** Called when the first step is on its way. @param state after it */
function started(
  run: RestoredRun,
  state: LanguageModelState,
  tokens: TokenInput,
  ended: Promise<unknown>,
): void {
  const { options, life, training } = run;
  ended.then(() => life.tellTime("the first step has run"));
  // Once there is something to save, a signal must not wait for the compiler.
  training.isFinite(state).dispose();
  life.listen();
  if (options.onChange) life.view.show({ cost: training.cost(state, tokens), status: "" });
}

async function evaluate(run: RestoredRun, state: LanguageModelState, step: number): Promise<void> {
  const { config, data, training, journal } = run;
  if (data.validation) journal.evaluated(step, await evaluateOn(training, state, data.validation, config));
}

/** Takes a step while the engine records what its devices do, and shows that. */
async function recordStep<T extends readonly [unknown, StepMetrics]>(
  { mesh, life }: RestoredRun,
  take: () => T,
): Promise<T> {
  const { result, ...trace } = await recordWorkOfAll(mesh.engine, async () => {
    const taken = take();
    await taken[1].loss.ready();
    return taken;
  });
  life.view.show({ trace });
  return result;
}
