/** Reads the metrics of a step, and finds the cause if they are not finite. */
import { existsSync } from "#platform/fs";
import * as tree from "../../trace/tree.js";
import { modelConfig } from "../config/runConfig.js";
import type { Json } from "../files/checkpoints/checkpointManifest.js";
import { routerMetrics } from "../models/moeDecoder.js";
import {
  type DivergedError,
  diverged,
  isFiniteStep,
  originOfExplosion,
  originOfNonFinite,
  problemOf,
  type StepValues,
} from "../step/health.js";
import type { LanguageModelState, StepMetrics } from "../step/state.js";
import type { TokenInput } from "../step/tokenBatch.js";
import type { BuiltRun } from "./build.js";

/** A step whose metrics have not been read yet. */
export interface UnreadStep {
  readonly step: number;
  readonly metrics: StepMetrics;
  /** When the step ended, in milliseconds of `performance.now()`. */
  readonly ended: Promise<number>;
  /** The tokens of the step, kept until it is known to have succeeded. */
  readonly tokens: TokenInput;
  /** The position in the data before the step. */
  readonly before: Json;
}

/** Reads and records the metrics of a step; throws if it diverged. @param state after the last step */
export async function readStep(run: BuiltRun, unread: UnreadStep, state: LanguageModelState): Promise<void> {
  const { config, data, journal } = run;
  const values = await readValues(unread.metrics, config.mesh.expert);
  await journal.recordStep(unread.step, values, await unread.ended);
  const problem = problemOf(values, modelConfig(config, data.tokenizer.vocabSize).vocabSize);
  if (problem === undefined) tree.dispose(unread.tokens);
  else throw await divergence(run, unread, problem, values, state);
}

async function readValues(metrics: StepMetrics, numExpertDevices: number): Promise<StepValues> {
  const [loss, crossEntropy, gradientNorm, gradientSquares, numUpdates, lossScale, router] =
    await Promise.all([
      metrics.loss.item(),
      metrics.crossEntropy.item(),
      metrics.gradientNorm.item(),
      metrics.gradientSquares.data(),
      metrics.numUpdates.item(),
      metrics.lossScale?.item(),
      metrics.router?.data(),
    ]);
  tree.dispose(metrics);
  const routers = router ? { router: routerMetrics(router, numExpertDevices) } : {};
  const told = { loss, crossEntropy, gradientNorm, gradientSquares, numUpdates, ...routers };
  return lossScale === undefined ? told : { ...told, lossScale };
}

/** Finds the cause of a diverged step, and saves the state from before it if that still exists. */
async function divergence(
  { life, training, journal, saves }: BuiltRun,
  { step, tokens, before }: UnreadStep,
  problem: string,
  values: StepValues,
  state: LanguageModelState,
): Promise<DivergedError> {
  await life.checkpoints.finished().catch(() => {});
  const earlier = saves.folder;
  if (isFiniteStep(values)) {
    return diverged({ step, problem, origin: await originOfExplosion(state, values), kept: earlier });
  }
  journal.note(`step ${step}: ${problem}; looking for the tensor in which it started`);
  const origin = await originOfNonFinite(training, state, tokens, values);
  const isRescued = step - 1 > saves.step && (await saves.rescue(state, step - 1, before));
  if (!isRescued) return diverged({ step, problem, origin, kept: earlier });
  // The configuration limits the number of checkpoints.
  const kept = earlier !== undefined && existsSync(earlier) ? earlier : undefined;
  return diverged({ step, problem, origin, kept, rescued: saves.folder });
}
