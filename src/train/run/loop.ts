/** The fifth stage of a run: steps, and between them evaluations and checkpoints. */
import type { Json } from "../files/checkpointManifest.js";
import { evaluateOn } from "./evaluation.js";
import { readStep, type UnreadStep } from "./readStep.js";
import type { RestoredRun } from "./restore.js";

/** A run after its last step, or that was asked to stop. */
export interface TrainedRun extends RestoredRun {
  /** The position in the data after the last step. */
  readonly position: Json;
}

/** Trains until the last step is done or the run is asked to stop; the initial state is donated. */
export async function loop(run: RestoredRun): Promise<TrainedRun> {
  const { config, group, life, data, training, batches, journal, saves } = run;
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
  journal.startClock();
  for (let isFirst = true; next && !life.isStopping; isFirst = false) {
    const batch = await next;
    if (isFirst) {
      // Everything that runs between steps is compiled now, so that a signal never waits for the compiler once there is
      // something to save.
      training.isFinite(state).dispose();
      if (data.validation) training.evaluate(state, batch.tokens).dispose();
    }
    const [changed, metrics] = training.step(state, batch.tokens, unread?.metrics);
    if (isFirst) life.listen();
    state = changed;
    step++;
    const before = position;
    position = batch.position;
    next = prefetch();
    // The metrics of the previous step are read while this one runs, so that no device waits for the host.
    await settle();
    unread = { step, metrics, tokens: batch.tokens, before };
    if (step % config.evalEvery === 0 || step === config.steps) {
      await settle();
      if (data.validation) {
        journal.evaluated(step, await evaluateOn(training, state, data.validation, config));
      }
    }
    if (step === config.steps) continue;
    if (step % config.checkpointEvery === 0) {
      await settle();
      await saves.save(state, step, position);
    } else if (saves.isDue && group.count === 1) {
      // Processes that decided by their own clocks would not save together.
      await settle();
      await saves.retry(state, step, position);
    }
  }
  await settle();
  (await next)?.tokens.dispose();
  return { ...run, state, step, position };
}
