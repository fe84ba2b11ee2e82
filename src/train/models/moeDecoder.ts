/**
 * Decoders whose MLPs are mixtures of experts. The statistics of their routers travel with the residual stream, in extra
 * positions behind its tokens, so that loops over layers, stages of pipelines and their schedules need not know of them.
 * If sequences are split, each part is followed by the same statistics.
 */

import { MoE, type RouterStatistics } from "../../nn/layers/moe.js";
import { module } from "../../nn/modules/module.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { expertsOf, numStatistics, travelling } from "./experts.js";
import { decoderBlock } from "./llama.js";
import { activation, weight } from "./names.js";
import type { Reading } from "./reading.js";
import { sequencePositions } from "./sequence.js";

/** The positions that the statistics take: 16-bit streams carry what rounding takes off in a second one. */
function numPositions({ kind, dtype }: ModelConfig): number {
  if (kind !== "moe") return 0;
  return dtype === "float32" ? 1 : 2;
}

/** The parts of every sequence: [batch, parts, length of a part, width]. */
function inParts({ context }: ModelConfig, stream: Tensor): Tensor {
  const numParts = context ? (currentMesh()?.shape.context ?? 1) : 1;
  const [batch = 0, length = 0, width = 0] = stream.shape;
  const parts = ops.reshape(stream, [batch, numParts, length / numParts, width]);
  return activation(parts, "batch", "streamLength", null, "activationEmbed");
}

/** Parts as whole sequences. */
function joined(parts: Tensor): Tensor {
  const [batch = 0, numParts = 0, length = 0, width = 0] = parts.shape;
  const stream = ops.reshape(parts, [batch, numParts * length, width]);
  return activation(stream, "batch", "streamLength", "activationEmbed");
}

/** A residual stream with room for statistics. */
export function withStatistics(config: ModelConfig, stream: Tensor): Tensor {
  const count = numPositions(config);
  if (count === 0) return stream;
  const parts = inParts(config, stream);
  const [batch = 0, numParts = 0, , width = 0] = parts.shape;
  const room = ops.zeros({ dtype: stream.dtype, shape: [batch, numParts, count, width] });
  return joined(np.concatenate([parts, room], 2));
}

/** The tokens of a residual stream. */
export function tokensOf(config: ModelConfig, stream: Tensor): Tensor {
  const count = numPositions(config);
  if (count === 0) return stream;
  const parts = inParts(config, stream);
  return joined(ops.sliceDim(parts, 2, 0, (parts.shape[2] ?? 0) - count));
}

/** The positions of the tokens of a residual stream, int32 [length]. */
export function streamPositions(config: ModelConfig, stream: Tensor): Tensor {
  return sequencePositions(config, tokensOf(config, stream).shape[1] ?? 0);
}

/** The statistics in a residual stream, summed over layers: float32 [batch, parts, {@link numStatistics}]. */
function statisticsOf(config: ModelConfig, stream: Tensor): Tensor {
  const [count, size] = [numPositions(config), numStatistics(config)];
  const parts = inParts(config, stream);
  const length = parts.shape[2] ?? 0;
  const rows = ops.sliceDim(ops.sliceDim(parts, 2, length - count, length), 3, 0, size);
  return np.sum(rows.astype("float32"), 2);
}

/** Puts statistics behind the tokens of a stream. */
function packed(config: ModelConfig, tokens: Tensor, statistics: Tensor): Tensor {
  const parts = inParts(config, tokens);
  const [batch = 0, numParts = 0, , width = 0] = parts.shape;
  const count = numPositions(config);
  const first = statistics.astype(tokens.dtype);
  const rest = statistics.sub(first.astype("float32")).astype(tokens.dtype);
  const rows = np.stack([first, rest].slice(0, count), 2);
  const left = width - numStatistics(config);
  const room = ops.zeros({ dtype: tokens.dtype, shape: [batch, numParts, count, left] });
  return joined(np.concatenate([parts, np.concatenate([rows, room], 3)], 2));
}

const asVector = (router: RouterStatistics): Tensor =>
  np.concatenate(
    [
      np.stack(
        travelling.map((name) => router[name]),
        1,
      ),
      router.load,
    ],
    1,
  );

/** The mixture of experts of a block. */
function expertLayer(config: ModelConfig) {
  const { expertWidth, capacityFactor, biasRate, zLoss: _, balanceLoss: __, ...experts } = expertsOf(config);
  return MoE({
    ...experts,
    name: "mlp",
    features: expertWidth || config.mlpWidth,
    ...(capacityFactor > 0 ? { capacityFactor } : {}),
    balanceBias: biasRate > 0,
    dtype: config.dtype,
    routerInit: weight(["embed", null]),
    kernelInit: weight(["experts", "embed", "mlp"]),
    outKernelInit: weight(["experts", "mlp", "embed"]),
    sharedInit: weight(["embed", "mlp"]),
    sharedOutInit: weight(["mlp", "embed"]),
    biasInit: weight([null], initializers.zeros),
  });
}

/** A block of a decoder with a mixture of experts. */
export const MoeBlock = module(
  "Block",
  (config: ModelConfig) =>
    (x: Tensor, reading: Reading, layer?: Tensor): Tensor => {
      let statistics = statisticsOf(config, x);
      const mlp = (input: Tensor) => {
        const { output, router } = expertLayer(config)(input);
        statistics = statistics.add(np.expandDims(asVector(router), 1));
        return output;
      };
      return packed(config, decoderBlock(config, mlp)(tokensOf(config, x), reading, layer), statistics);
    },
);

/** The losses of routers, and what they did, as means over rows and layers. */
export interface RouterLosses {
  /** To be added to the loss. */
  readonly loss: Tensor;
  /** float32 [{@link numStatistics}] */
  readonly statistics: Tensor;
}

/** The losses of routers from the stream after the last block; undefined if there are none. */
export function routerLosses(config: ModelConfig, stream: Tensor): RouterLosses | undefined {
  if (config.kind !== "moe") return undefined;
  const { balanceLoss, zLoss } = expertsOf(config);
  const sums = np.mean(statisticsOf(config, stream), [0, 1]);
  const statistics = sums.div(config.numLayers);
  const [balance, z, surplus] = [0, 1, 2].map((i) => ops.reshape(ops.sliceDim(statistics, 0, i, i + 1), []));
  if (!balance || !z || !surplus) return undefined;
  // Its gradient is the surplus of experts; its value means nothing.
  const unseen = surplus.sub(ops.stopGradient(surplus)).mul(config.numLayers);
  return {
    loss: balance.mul(balanceLoss).add(z.mul(zLoss)).add(unseen),
    statistics: ops.stopGradient(statistics),
  };
}

/** The numbers in front of the load of each expert in the statistics of routers. */
const numSums = 5;

/** The load of the experts of each device as a multiple of the mean. */
export function deviceLoads(statistics: ArrayLike<number>, numDevices: number): number[] {
  const load = Array.from(statistics).slice(numSums);
  const perDevice = load.length / numDevices;
  return Array.from(
    { length: numDevices },
    (_, device) =>
      numDevices *
      load.slice(device * perDevice, (device + 1) * perDevice).reduce((sum, share) => sum + share, 0),
  );
}

/** Router statistics as metrics of a step. @param numDevices how many devices have some of the experts each */
export function routerMetrics(
  statistics: ArrayLike<number>,
  numDevices = 1,
): Readonly<Record<string, number>> {
  const [balance = 0, z = 0, , dropped = 0, entropy = 0, ...load] = Array.from(statistics);
  return {
    routerBalance: balance,
    routerZ: z,
    routerDropped: dropped,
    routerEntropy: entropy,
    /** The load of the fullest expert as a multiple of the mean. */
    routerImbalance: Math.max(...load) * load.length,
    /** The same of devices, of which the fullest decides how long all take. */
    ...(numDevices > 1 && { routerDeviceImbalance: Math.max(...deviceLoads(statistics, numDevices)) }),
  };
}
