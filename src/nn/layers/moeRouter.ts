/** Which experts get which tokens, and with what weight. Everything is decided within a row of the batch. */
import { at } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { sigmoid, softmax } from "../functions/functions.js";

/** How tokens choose experts. */
export interface RouterConfig {
  readonly numExperts: number;
  readonly numExpertsPerToken: number;
  readonly gate: "softmax" | "sigmoid";
  readonly normalizeGates: boolean;
  readonly gateScale: number;
  readonly capacityFactor: number | undefined;
}

/** Statistics of a router, one number for every row of the batch, so that they are the same on every mesh. */
export interface RouterStatistics {
  /** The load-balance loss, 1 per expert of a token when all experts get the same number of tokens; [batch]. */
  readonly loadBalance: Tensor;
  /** The mean squared log of the sum of the exponentials of a token's logits; [batch]. */
  readonly z: Tensor;
  /**
   * The router's bias times the surplus of its experts, whose gradient is the surplus: subtracting a multiple of its
   * sign balances the load without a loss; [batch].
   */
  readonly surplus: Tensor;
  /** The share of the choices of tokens that found their expert full; [batch]. */
  readonly dropped: Tensor;
  /** The mean entropy of a token's choice, in nats; [batch]. */
  readonly entropy: Tensor;
  /** The share of the choices that each expert got, before any were dropped; [batch, experts]. */
  readonly load: Tensor;
}

/** The experts of every token. */
export interface Routing {
  /** int32 [batch, length, experts per token]; the number of experts where the choice was dropped. */
  readonly experts: Tensor;
  /** float32 [batch, length, experts per token]; 0 where the choice was dropped. */
  readonly gates: Tensor;
  readonly statistics: RouterStatistics;
}

/**
 * The number of tokens that an expert takes from a row of the batch.
 *
 * @returns undefined without a limit
 */
export function expertCapacity(config: RouterConfig, length: number): number | undefined {
  const { capacityFactor, numExperts, numExpertsPerToken } = config;
  if (capacityFactor === undefined) return undefined;
  return Math.floor(Math.ceil((length * numExpertsPerToken) / numExperts) * capacityFactor);
}

/**
 * The indices of the largest elements along the last dim, largest first; of equal ones the first. They are different,
 * also where all elements are NaN, which counts as smallest.
 */
function largest(scores: Tensor, count: number): Tensor {
  const n = at(scores.shape, scores.ndim - 1);
  const index = np.arange(n).astype("int32");
  const found: Tensor[] = [];
  const least = Number.NEGATIVE_INFINITY;
  let rest = np.where(np.isnan(scores), least, scores);
  let isLeft = np.full(scores.shape, true, "bool");
  for (let i = 0; i < count; i++) {
    const isPeak = np.logicalAnd(isLeft, np.equal(rest, np.max(rest, -1, { keepdims: true })));
    const first = np.min(np.where(isPeak, index, n - 1), -1);
    found.push(first);
    isLeft = np.logicalAnd(isLeft, np.notEqual(index, np.expandDims(first, -1)));
    rest = np.where(isLeft, rest, least);
  }
  return np.stack(found, -1);
}

/**
 * Routes tokens by their logits.
 *
 * @param logits float32 [batch, length, experts]
 * @param bias float32 [experts], added to the scores for the choice only
 */
export function routeTokens(logits: Tensor, bias: Tensor | undefined, config: RouterConfig): Routing {
  const { numExperts, numExpertsPerToken: count, gate, normalizeGates, gateScale } = config;
  const scores = gate === "softmax" ? softmax(logits) : sigmoid(logits);
  const ranked = bias ? scores.add(ops.stopGradient(bias)) : logits;
  const chosen = ops.stopGradient(largest(ops.stopGradient(ranked), count));
  // [batch, length, experts per token, experts]
  const isChosen = np.equal(np.expandDims(chosen, -1), np.arange(numExperts).astype("int32"));
  const pick = (values: Tensor) => np.sum(np.where(isChosen, np.expandDims(values, -2), 0), -1);
  let gates = pick(scores);
  if (normalizeGates) {
    gates = gate === "softmax" ? softmax(pick(logits)) : gates.div(np.sum(gates, -1, { keepdims: true }));
  }
  if (gateScale !== 1) gates = gates.mul(gateScale);
  const kept = keptChoices(isChosen, expertCapacity(config, at(logits.shape, 1)));
  const statistics = statisticsOf(logits, scores, isChosen, kept, bias);
  if (!kept) return { experts: chosen, gates, statistics };
  return {
    experts: np.where(kept, chosen, numExperts).astype("int32"),
    gates: np.where(kept, gates, 0),
    statistics,
  };
}

/** Which choices find their expert not yet full, earlier tokens first; undefined if all do. */
function keptChoices(isChosen: Tensor, capacity: number | undefined): Tensor | undefined {
  if (capacity === undefined) return undefined;
  const [batch = 0, length = 0, count = 0, numExperts = 0] = isChosen.shape;
  const flat = ops.reshape(isChosen, [batch, length * count, numExperts]).astype("int32");
  const places = np.cumsum(flat, 1);
  const isIn = np.logicalAnd(np.greater(flat, 0), np.lessEqual(places, capacity));
  return np.max(ops.reshape(isIn, isChosen.shape), -1);
}

function statisticsOf(
  logits: Tensor,
  scores: Tensor,
  isChosen: Tensor,
  kept: Tensor | undefined,
  bias: Tensor | undefined,
): RouterStatistics {
  const [batch = 0, , count = 0, numExperts = 0] = isChosen.shape;
  const total = np.sum(scores, -1, { keepdims: true });
  const probabilities = scores.div(total);
  const density = np.mean(np.sum(isChosen.astype("float32"), 2), 1);
  const load = ops.stopGradient(density.div(count));
  const share = np.mean(probabilities, 1);
  const logSum = np.logsumexp(logits, -1);
  const information = np.where(np.greater(probabilities, 0), probabilities.mul(np.log(probabilities)), 0);
  const none = np.zeros([batch]);
  return {
    loadBalance: np.mean(density.mul(share), -1).mul(numExperts * numExperts),
    z: np.mean(np.square(logSum), -1),
    surplus: bias ? np.sum(load.sub(1 / numExperts).mul(bias), -1) : none,
    dropped: kept ? np.mean(np.logicalNot(kept).astype("float32"), [1, 2]) : none,
    entropy: ops.stopGradient(np.mean(np.sum(information, -1), -1).neg()),
    load,
  };
}
