import { silu } from "../../nn/functions.js";
import { Dense, DenseGeneral } from "../../nn/linear.js";
import { module } from "../../nn/module.js";
import { RMSNorm } from "../../nn/normalization.js";
import type { ParamInitializer } from "../../nn/partitioned.js";
import { isInitializing, param, variable } from "../../nn/variables.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { activation, weight, whole } from "./names.js";
import type { Reading } from "./reading.js";

/** The inputs of the matrix memory. */
export interface MemoryInputs {
  /** [batch, heads, length, size], as are key and value, whose size may be another. */
  readonly query: Tensor;
  readonly key: Tensor;
  readonly value: Tensor;
  /** [batch, heads, length], as is forgetGate. */
  readonly inputGate: Tensor;
  readonly forgetGate: Tensor;
  /**
   * The exponent that the stabiliser starts with: that of the empty memory before the first position, which every
   * position decays. −1e30, the default, has no influence.
   */
  readonly startExponent?: number;
}

/**
 * The matrix memory of xLSTM in its parallel form. With gate preactivations ĩ and f̃, position t reads position
 * s ≤ t with weight `exp(Σ_{s<j≤t} log σ(f̃_j) + ĩ_s)`, stabilised by the largest exponent of the row, and the
 * sum of weights (at least the stabilised one) normalises the result.
 */
export function matrixMemory(inputs: MemoryInputs): Tensor {
  const { query, key, value, inputGate, forgetGate, startExponent } = inputs;
  const [, , length = 0, size = 1] = query.shape;
  const logForget = np.negative(np.logaddexp(0, np.negative(forgetGate)));
  const decay = np.cumsum(logForget, -1);
  const exponent = np.expandDims(decay, -1).sub(np.expandDims(decay.sub(inputGate), -2));
  const rows = ops.iota("int32", [length, length], 0);
  const columns = ops.iota("int32", [length, length], 1);
  const masked = np.where(np.greaterEqual(rows, columns), exponent, -1e30);
  const peak = np.max(masked, -1, { keepdims: true });
  const largest =
    startExponent === undefined ? peak : np.maximum(peak, np.expandDims(decay.add(startExponent), -1));
  const weights = np.exp(masked.sub(largest));
  const scores = np
    .matmul(query, np.swapaxes(key, -1, -2))
    .mul(1 / Math.sqrt(size))
    .mul(weights);
  const total = np.sum(scores, -1, { keepdims: true });
  const normalizer = np.maximum(np.abs(total), np.exp(np.negative(largest)));
  return np.matmul(scores.div(normalizer.add(1e-6)), value);
}

/**
 * {@link matrixMemory} for one more position in its recurrent form: every position decays the matrix of each head and
 * adds the outer product of its key and value.
 */
export function nextOfMatrixMemory(inputs: MemoryInputs): Tensor {
  const { query, key, value, inputGate, forgetGate, startExponent = -1e30 } = inputs;
  const [batch = 0, heads = 0, , size = 1] = query.shape;
  const zeros = (...shape: number[]) => ops.zeros({ dtype: "float32", shape: [batch, heads, ...shape] });
  const memory = variable("cache", "memory", () => zeros(size, value.shape.at(-1) ?? 1));
  const total = variable("cache", "total", () => zeros(1, size));
  const largest = variable("cache", "largest", () => zeros(1).add(startExponent));
  const faded = largest.value.sub(np.logaddexp(0, np.negative(forgetGate)));
  const exponent = np.maximum(faded, inputGate);
  const fade = np.expandDims(np.exp(faded.sub(exponent)), -1);
  const scaled = key.mul(np.expandDims(np.exp(inputGate.sub(exponent)), -1)).mul(1 / Math.sqrt(size));
  const matrix = memory.value.mul(fade).add(np.matmul(np.swapaxes(scaled, -1, -2), value));
  const sum = total.value.mul(fade).add(scaled);
  if (!isInitializing()) {
    memory.value = matrix;
    total.value = sum;
    largest.value = exponent;
  }
  const seen = np.abs(np.sum(query.mul(sum), -1, { keepdims: true }));
  const normalizer = np.maximum(seen, np.expandDims(np.exp(np.negative(exponent)), -1));
  return np.matmul(query, matrix).div(normalizer.add(1e-6));
}

/** The inputs of a convolution, preceded by those of the `taps - 1` positions before. */
function withPast(x: Tensor, taps: number, isCached: boolean): Tensor {
  if (!isCached) {
    return np.pad(x, [
      [0, 0],
      [taps - 1, 0],
      [0, 0],
    ]);
  }
  const [batch = 0, , width = 0] = x.shape;
  const past = variable("cache", "past", () =>
    ops.zeros({ dtype: x.dtype, shape: [batch, taps - 1, width] }),
  );
  const all = np.concatenate([past.value, x], 1);
  if (!isInitializing()) past.value = all.get("...", np.s(1, taps), np.s());
  return all;
}

interface CausalConvConfig {
  readonly taps: number;
  readonly isCached: boolean;
}

/** Mixes every channel with its own past: a causal convolution of `taps` positions. */
const CausalConv = module("CausalConv", ({ taps, isCached }: CausalConvConfig) => (x: Tensor): Tensor => {
  const [, length = 0, width = 0] = x.shape;
  const kernel = param("kernel", weight(["conv", "mlp"], initializers.normal(1 / Math.sqrt(taps))), [
    taps,
    width,
  ]);
  const bias = param("bias", weight(["mlp"], initializers.zeros), [width]);
  const padded = withPast(x, taps, isCached);
  const terms = Array.from({ length: taps }, (_, i) =>
    padded.get("...", np.s(i, i + length), np.s()).mul(kernel.get(i).astype(x.dtype)),
  );
  return terms.reduce((sum, term) => sum.add(term), bias.astype(x.dtype));
});

/** A projection to the inner features of a block. */
function upProjection(name: string, x: Tensor, { mlpWidth, dtype }: ModelConfig): Tensor {
  const kernelInit = weight(["embed", "mlp"]);
  const up = Dense({ name, features: mlpWidth, useBias: false, dtype, kernelInit })(x);
  return activation(up, "batch", "length", "activationMlp");
}

/** Projects the features of every head separately, so that heads can be on different devices. */
function perHead(name: string, from: Tensor, { mlpWidth, numHeads, dtype }: ModelConfig): Tensor {
  const [batch = 0, length = 0] = from.shape;
  const headSize = mlpWidth / numHeads;
  const grouped = activation(
    from.reshape([batch, length, numHeads, headSize]),
    "batch",
    "length",
    "activationHeads",
    null,
  );
  const kernel = param(name, weight(["heads", "headSize", null]), [numHeads, headSize, headSize]);
  return np.einsum("blhi,hio->bhlo", grouped, kernel.astype(dtype)).astype("float32");
}

/** The gates of all heads, computed from the features of all heads; the kernel is initialised to 0. */
function gates(name: string, all: Tensor, biasInit: ParamInitializer): Tensor {
  const made = DenseGeneral({
    name,
    features: all.shape[1] ?? 1,
    axis: [1, 3],
    dtype: "float32",
    kernelInit: weight(["heads", "headSize", null], initializers.zeros),
    biasInit: weight(["heads"], biasInit),
  })(all);
  return np.swapaxes(activation(made, "batch", "length", "activationHeads"), 1, 2);
}

/** The outputs of the heads, [batch, head, length, feature], normalised: [batch, length, head, feature]. */
export function normalizeHeads(memory: Tensor, { dtype, normEpsilon }: ModelConfig): Tensor {
  const [, numHeads = 0, , headSize = 0] = memory.shape;
  const scale = param("outNorm", weight(["heads", "headSize"], initializers.ones), [numHeads, headSize]);
  // Squares of small values underflow in float16, so the norm is computed in float32.
  const centred = memory.sub(np.mean(memory, -1, { keepdims: true }));
  const variance = np.mean(centred.mul(centred), -1, { keepdims: true });
  const normalized = centred.div(np.sqrt(variance.add(normEpsilon)));
  return np.swapaxes(normalized.astype(dtype), 1, 2).mul(scale.astype(dtype));
}

/** A pre-norm block with the matrix memory between an up-projection and a gated down-projection. */
export const MlstmBlock = module("Block", (config: ModelConfig) => (x: Tensor, _reading: Reading): Tensor => {
  const { mlpWidth, width, dtype, normEpsilon } = config;
  const isCached = config.cacheLength !== undefined;
  const scaleInit = weight(["norm"], initializers.ones);
  const normed = whole(RMSNorm({ name: "norm", epsilon: normEpsilon, dtype, scaleInit })(x));
  const inner = upProjection("up", normed, config);
  const gate = upProjection("gate", normed, config);
  const mixed = silu(CausalConv({ taps: 4, isCached, name: "conv" })(inner));
  const query = perHead("query", mixed, config);
  const key = perHead("key", mixed, config);
  const value = perHead("value", inner, config);
  const all = np.concatenate([query, key, value], -1);
  const memory = (isCached ? nextOfMatrixMemory : matrixMemory)({
    query,
    key,
    value,
    // Input gates start nearly closed, so that weights which are small relative to the stabiliser do not lead to
    // divisions by almost 0.
    inputGate: gates("inputGate", all, initializers.constant(-10)),
    // Heads forget at different rates.
    forgetGate: gates("forgetGate", all, (_key, [count = 1]) => np.linspace(3, 6, count)),
  });
  const heads = normalizeHeads(memory, config).reshape(inner.shape);
  const skip = param("skip", weight(["mlp"], initializers.ones), [mlpWidth]);
  const out = heads.add(mixed.mul(skip.astype(dtype))).mul(silu(gate));
  const kernelInit = weight(["mlp", "embed"]);
  const down = Dense({ name: "down", features: width, useBias: false, dtype, kernelInit })(out);
  return activation(x.add(down), "batch", "length", "activationEmbed");
});
