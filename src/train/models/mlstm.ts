import { silu } from "../../nn/functions/functions.js";
import { Dense, DenseGeneral, type DotGeneral } from "../../nn/layers/linear.js";
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

/** Projections to the inner features of a block, [batch, length, ...parts, feature]. */
function upProjection(name: string, parts: readonly number[], x: Tensor, config: ModelConfig): Tensor {
  const { mlpWidth, dtype } = config;
  const between = parts.map(() => null);
  const up = DenseGeneral({
    name,
    features: [...parts, mlpWidth],
    useBias: false,
    dtype,
    ...productsOf(config),
    kernelInit: weight(["embed", ...between, "mlp"]),
  })(x);
  return activation(up, "batch", "length", ...between, "activationMlp");
}

/** The inner features of a block and their gate. */
function innerAndGate(x: Tensor, config: ModelConfig): readonly [inner: Tensor, gate: Tensor] {
  if (!config.isFused) return [upProjection("up", [], x, config), upProjection("gate", [], x, config)];
  const both = upProjection("upGate", [2], x, config);
  return [both.get("...", 0, np.s()), both.get("...", 1, np.s())];
}

/** Queries, keys and values, each projected within its head: [batch, head, length, those of queries, keys, values]. */
function queryKeyValue(mixed: Tensor, inner: Tensor, config: ModelConfig): Tensor {
  const { mlpWidth, numHeads, dtype } = config;
  const [batch = 0, length = 0] = inner.shape;
  const size = mlpWidth / numHeads;
  // Each head projects its own features, so that heads can be on different devices.
  const byHead = (x: Tensor) =>
    activation(x.reshape([batch, length, numHeads, size]), "batch", "length", "activationHeads", null);
  if (!config.isFused) {
    const project = (name: string, from: Tensor) => {
      const kernel = param(name, weight(["heads", "headSize", null]), [numHeads, size, size]);
      return np.einsum("blhi,hio->bhlo", byHead(from), kernel.astype(dtype));
    };
    return np.concatenate([project("query", mixed), project("key", mixed), project("value", inner)], -1);
  }
  const [own, first] = [byHead(inner), byHead(mixed)];
  // Inputs are last, or else XLA would turn the kernels of all layers for every token.
  const names = ["heads", null, null, "headSize"] as const;
  const kernel = param("queryKeyValue", weight(names), [numHeads, 3, size, size]);
  const made = np.einsum("blhpi,hpoi->bhlpo", np.stack([first, first, own], 3), kernel.astype(dtype));
  return made.reshape([batch, numHeads, length, 3 * size]);
}

/** Products of 16-bit factors are summed in float32. */
const summedInFloat32: DotGeneral = (x, kernel, dims) => ops.dotGeneral(x, kernel, dims, "float32");

/** Gates of all heads, computed from the features of all heads, [batch, length, ...parts, head]. */
function gateProjection(
  name: string,
  parts: readonly number[],
  all: Tensor,
  biasInit: ParamInitializer,
): Tensor {
  const between = parts.map(() => null);
  const made = DenseGeneral({
    name,
    features: [...parts, all.shape[1] ?? 1],
    axis: [1, 3],
    dotGeneral: summedInFloat32,
    kernelInit: weight(["heads", "headSize", ...between, null], initializers.zeros),
    biasInit: weight([...between, "heads"], biasInit),
  })(all);
  return activation(made, "batch", "length", ...between, "activationHeads");
}

/** The input and forget gates of all heads, [batch, head, length]; their kernels are initialised to 0. */
function inputAndForgetGate(all: Tensor, { isFused }: ModelConfig): readonly [input: Tensor, forget: Tensor] {
  const inOrder = (gates: Tensor) => np.swapaxes(gates, 1, 2);
  if (isFused) {
    const both = gateProjection("gates", [2], all, initializers.zeros);
    return [inOrder(both.get("...", 0, np.s())), inOrder(both.get("...", 1, np.s()))];
  }
  // Input gates start nearly closed, so that weights which are small relative to the stabiliser do not lead to divisions
  // by almost 0. Heads forget at different rates.
  return [
    inOrder(gateProjection("inputGate", [], all, initializers.constant(-10))),
    inOrder(gateProjection("forgetGate", [], all, (_key, [count = 1]) => np.linspace(3, 6, count))),
  ];
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
  const [inner, gate] = innerAndGate(normed, config);
  const mixed = silu(CausalConv({ taps: 4, isCached, name: "conv" })(inner, reading));
  const all = queryKeyValue(mixed, inner, config);
  const size = mlpWidth / config.numHeads;
  const part = (i: number) => all.get("...", np.s(i * size, (i + 1) * size)).astype("float32");
  const [inputGate, forgetGate] = inputAndForgetGate(all, config);
  const memory = memoryFor(config)({
    ...{ query: part(0), key: part(1), value: part(2), inputGate, forgetGate },
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
