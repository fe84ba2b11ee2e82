import type { PipelineLoop } from "../ir/ops.js";
import { range } from "../ir/shape.js";
import type { Variables } from "../nn/index.js";
import * as np from "../numpy/index.js";
import type { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import { scan, scanWithRole } from "../transforms/control/scan.js";
import { remat } from "../transforms/derivatives/remat.js";
import type { LoopState, PipelineBuffers } from "./pipelineLoop.js";
import { eachWeight, type SpecTree } from "./pipelineSpecs.js";
import type { CircularPipelineParts, IterationArguments } from "./pipelineStages.js";

/** The weights that the stages use in an iteration, [stages, …]. */
type WeightsAt = (loopIteration: number | Tensor) => Variables;

/** Runs all iterations, as loops of the program or unrolled. */
export function runIterations(
  parts: CircularPipelineParts,
  first: LoopState,
  given: IterationArguments,
): LoopState {
  const { loopIteration: _, ...start } = first;
  const { numRepeats, config } = parts.settings;
  const buffers =
    config.pipelineFsdpAgPerRepeat && numRepeats > 1
      ? runRounds(parts, start, given)
      : iterate(parts, start, { from: 0, length: parts.totalIterations, role: roleOf(parts) }, (state) =>
          parts.runOneIteration(state, given),
        );
  return { ...buffers, loopIteration: parts.totalIterations };
}

/** Consecutive iterations. */
interface Iterations {
  readonly from: number | Tensor;
  readonly length: number;
  /** The role of their loop, if they are all there are. */
  readonly role?: PipelineLoop | undefined;
}

/** The role of the loop over all iterations; none if activations are passed on with a delay. */
function roleOf({ settings }: CircularPipelineParts): PipelineLoop | undefined {
  const { numStages, numMicrobatches, numRepeats, forwardingDelay } = settings;
  return forwardingDelay === 1 ? { kind: "forward", numStages, numMicrobatches, numRepeats } : undefined;
}

/** Runs some iterations one after the other. */
function iterate(
  parts: CircularPipelineParts,
  start: PipelineBuffers,
  { from, length, role }: Iterations,
  run: (state: LoopState) => LoopState,
): PipelineBuffers {
  const { scanPipelineIterations = true, setRematPolicyOnPipelineIterations = true } = parts.settings.config;
  const policy = parts.getPipelineRematPolicy();
  const step = (buffers: PipelineBuffers, loopIteration: number | Tensor): PipelineBuffers => {
    const { loopIteration: _, ...next } = run({ ...buffers, loopIteration });
    return next;
  };
  if (scanPipelineIterations) {
    const body = setRematPolicyOnPipelineIterations ? remat(step, { policy }) : step;
    const iterations = np.add(np.arange(length).astype("int32"), from);
    const next = (carry: PipelineBuffers, i: Tensor) => [body(carry, i), null] as const;
    const [buffers] = scanWithRole(role, next, start, iterations);
    return buffers;
  }
  return range(length).reduce((carry: PipelineBuffers, i) => {
    const at = typeof from === "number" ? from + i : np.add(from, i);
    const fixed = (state: PipelineBuffers) => step(state, at);
    return setRematPolicyOnPipelineIterations ? remat(fixed, { policy })(carry) : fixed(carry);
  }, start);
}

/**
 * Runs the iterations repeat by repeat. While stage 0 is in a repeat, later stages finish the one before, so the
 * weights of two repeats are gathered along the fsdp axes at a time, and those of each are gathered once.
 */
function runRounds(
  parts: CircularPipelineParts,
  start: PipelineBuffers,
  given: IterationArguments,
): PipelineBuffers {
  const { numRepeats, numMicrobatches, config } = parts.settings;
  const specs = parts.physicalSpec(given.logicalPartitionSpec ?? null);
  const gather = (weights: Variables) => parts.gatherStageWeights(weights, specs);
  const run = (buffers: PipelineBuffers, from: number | Tensor, length: number, weightsAt: WeightsAt) =>
    iterate(parts, buffers, { from, length }, (state) =>
      parts.runWith(weightsAt(state.loopIteration), state, given),
    );
  const runRound = (
    buffers: PipelineBuffers,
    round: number | Tensor,
    before: Variables,
    now: Variables,
  ): PipelineBuffers => {
    const from = typeof round === "number" ? round * numMicrobatches : np.multiply(round, numMicrobatches);
    const both = tree.map((a: Tensor, b: Tensor) => np.stack([a, b]), before, now);
    return run(buffers, from, numMicrobatches, (i) => weightsOfRound(parts, i, round, { both, specs }));
  };
  const none = gather(eachWeight(given.pipelineWeights, null, (w) => np.zeros(w.shape.slice(1), w.dtype)));
  const { buffers, last } =
    (config.scanPipelineIterations ?? true)
      ? scanRounds()
      : range(numRepeats).reduce(
          ({ buffers, last }, round) => {
            const own = eachWeight(given.pipelineWeights, null, (w) => np.take(w, round, 0));
            const now = gather(own);
            return { buffers: runRound(buffers, round, last, now), last: now };
          },
          { buffers: start, last: none },
        );
  const bubble = parts.iterationsToCompleteFirstMicrobatchOneRepeat();
  return run(buffers, numRepeats * numMicrobatches, bubble, () => last);

  function scanRounds() {
    const [end] = scan(
      (carry: { buffers: PipelineBuffers; last: Variables }, [weights, round]: [Variables, Tensor]) => {
        const now = gather(weights);
        return [{ buffers: runRound(carry.buffers, round, carry.last, now), last: now }, null] as const;
      },
      { buffers: start, last: none },
      [given.pipelineWeights, np.arange(numRepeats).astype("int32")] as [Variables, Tensor],
    );
    return end;
  }
}

/**
 * The weights of every stage, from `[before, now]`: `now` for stages in the repeat of stage 0, `before` for those still
 * in the one before.
 */
function weightsOfRound(
  parts: CircularPipelineParts,
  loopIteration: number | Tensor,
  round: number | Tensor,
  { both, specs }: { readonly both: Variables; readonly specs: SpecTree },
): Variables {
  const [, repeatIds] = parts.getMicrobatchAndRepeatIds(loopIteration);
  const which = np.equal(repeatIds, round).astype("int32");
  return eachWeight(both, specs, (w, spec) => parts.vmapParallelGather(w, spec, which, 0, 1));
}
