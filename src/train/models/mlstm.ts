import { silu } from "../../nn/functions/functions.js";
import { Dense, DenseGeneral } from "../../nn/layers/linear.js";
import { RMSNorm } from "../../nn/layers/normalization.js";
import { module } from "../../nn/modules/module.js";
import type { ParamInitializer } from "../../nn/modules/partitioned.js";
import { isInitializing, param, variable } from "../../nn/modules/variables.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { markedPositions, memoryFor } from "./matrixMemory.js";
import { activation, weight, whole } from "./names.js";
import { productsOf } from "./products.js";
import type { Reading } from "./reading.js";

/** The inputs of a convolution, preceded by those of the `taps - 1` positions before. */
function withPast(x: Tensor, taps: number, isCached: boolean, { positions }: Reading): Tensor {
  if (!isCached) {
    return np.pad(x, [
      [0, 0],
      [taps - 1, 0],
      [0, 0],
    ]);
  }
  const [batch = 0, length = 0, width = 0] = x.shape;
  const past = variable("cache", "past", () =>
    ops.zeros({ dtype: x.dtype, shape: [batch, taps - 1, width] }),
  );
  const all = np.concatenate([past.value, x], 1);
  if (isInitializing()) return all;
  if (positions.ndim < 2) past.value = all.get("...", np.s(length, length + taps - 1), np.s());
  else {
    // Padding at the end of rows is not kept.
    const counts = np.sum(np.greaterEqual(positions, 0), 1, { keepdims: true }).astype("int32");
    past.value = np.takeAlongAxis(all, np.expandDims(counts.add(np.arange(taps - 1)), -1), 1);
  }
  return all;
}

interface CausalConvConfig {
  readonly taps: number;
  readonly isCached: boolean;
}

/**
 * Mixes every channel with its own past: a causal convolution of `taps` positions, which does not reach into the document
 * before.
 */
const CausalConv = module(
  "CausalConv",
  ({ taps, isCached }: CausalConvConfig) =>
    (x: Tensor, reading: Reading): Tensor => {
      const positions = reading.segmentIds && reading.positions;
      const [, length = 0, width = 0] = x.shape;
      const kernel = param("kernel", weight(["conv", "mlp"], initializers.normal(1 / Math.sqrt(taps))), [
        taps,
        width,
      ]);
      const bias = param("bias", weight(["mlp"], initializers.zeros), [width]);
      const padded = withPast(x, taps, isCached, reading);
      const terms = Array.from({ length: taps }, (_, i) => {
        const tap = padded.get("...", np.s(i, i + length), np.s());
        const own = positions
          ? np.where(np.greaterEqual(np.expandDims(positions, -1), taps - 1 - i), tap, 0)
          : tap;
        return own.mul(kernel.get(i).astype(x.dtype));
      });
      return terms.reduce((sum, term) => sum.add(term), bias.astype(x.dtype));
    },
);

/** A projection to the inner features of a block. */
function upProjection(name: string, x: Tensor, config: ModelConfig): Tensor {
  const { mlpWidth: features, dtype } = config;
  const kernelInit = weight(["embed", "mlp"]);
  const up = Dense({ name, features, useBias: false, dtype, kernelInit, ...productsOf(config) })(x);
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
export const MlstmBlock = module("Block", (config: ModelConfig) => (x: Tensor, reading: Reading): Tensor => {
  const { mlpWidth, width, dtype, normEpsilon } = config;
  const isCached = config.cacheLength !== undefined;
  const scaleInit = weight(["norm"], initializers.ones);
  const normed = whole(RMSNorm({ name: "norm", epsilon: normEpsilon, dtype, scaleInit })(x));
  const inner = upProjection("up", normed, config);
  const gate = upProjection("gate", normed, config);
  const mixed = silu(CausalConv({ taps: 4, isCached, name: "conv" })(inner, reading));
  const query = perHead("query", mixed, config);
  const key = perHead("key", mixed, config);
  const value = perHead("value", inner, config);
  const all = np.concatenate([query, key, value], -1);
  const memory = memoryFor(config)({
    query,
    key,
    value,
    // Input gates start nearly closed, so that weights which are small relative to the stabiliser do not lead to
    // divisions by almost 0.
    inputGate: gates("inputGate", all, initializers.constant(-10)),
    // Heads forget at different rates.
    forgetGate: gates("forgetGate", all, (_key, [count = 1]) => np.linspace(3, 6, count)),
    ...markedPositions(reading, config.numHeads),
  });
  const heads = normalizeHeads(memory, config).reshape(inner.shape);
  const skip = param("skip", weight(["mlp"], initializers.ones), [mlpWidth]);
  const out = heads.add(mixed.mul(skip.astype(dtype))).mul(silu(gate));
  const kernelInit = weight(["mlp", "embed"]);
  const layer = { name: "down", features: width, useBias: false, dtype, kernelInit };
  const down = Dense({ ...layer, ...productsOf(config) })(out);
  return activation(x.add(down), "batch", "streamLength", "activationEmbed");
});
