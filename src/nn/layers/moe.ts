import { oneOf } from "../../ir/arguments.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import type { MeshAxis } from "../../ir/mesh.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../ir/schema.js";
import { at, formatType, type Shape } from "../../ir/shape.js";
import { initializers, uniform } from "../../random/index.js";
import { psum } from "../../spmd/mesh/collectives.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import { shardMap } from "../../spmd/run/shardMap.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { remat } from "../../transforms/derivatives/remat.js";
import { boundAxis } from "../functions/contextMesh.js";
import { silu } from "../functions/functions.js";
import { currentScope } from "../modules/context.js";
import { unbox } from "../modules/metadata.js";
import { module } from "../modules/module.js";
import { layerTypes, promote } from "../modules/operands.js";
import type { ParamInitializer } from "../modules/partitioned.js";
import { dequantized, isQuantized, type QuantizedKernel } from "../modules/quantize.js";
import { hasRng, makeRng, param } from "../modules/variables.js";
import { Dense } from "./linear.js";
import { dispatchTokens } from "./moeDispatch.js";
import { expertCapacity, type RouterStatistics, routeTokens } from "./moeRouter.js";

export type { RouterStatistics } from "./moeRouter.js";

const perExpert = initializers.varianceScaling(1, "fanIn", "truncatedNormal", { batchAxis: 0 });

const moeConfig = schema({
  ...layerTypes.fields,
  /** The number of routed experts. */
  numExperts: required("number"),
  /** The inner width of an expert. */
  features: required("number"),
  /** The number of experts that each token is sent to; 2 by default. */
  numExpertsPerToken: 2,
  /** How logits become scores; `softmax` over all experts by default. */
  gate: optional(oneOf("softmax", "sigmoid"), "softmax"),
  /** Whether the weights of a token's experts add up to 1; true by default. */
  normalizeGates: true,
  /** A factor of all weights. */
  gateScale: 1,
  /** The number of experts that see every token; their results are added without weights. */
  numSharedExperts: 0,
  /**
   * Limits what an expert takes from each row of the batch to this multiple of its equal share; later tokens are dropped.
   * Without it nothing is dropped.
   */
  capacityFactor: optional("number"),
  /** Whether the router has a bias for balancing the load; it changes which experts are chosen, not their weights. */
  balanceBias: false,
  /** The router's input is multiplied with random numbers between 1 − jitter and 1 + jitter, if there is a key `jitter`. */
  jitter: 0,
  /** Initialises the router's kernel [width, experts]. */
  routerInit: optional<ParamInitializer>("function", initializers.lecunNormal()),
  /** Initialises `gate` and `up` [experts, width, features]. */
  kernelInit: optional<ParamInitializer>("function", perExpert),
  /** Initialises `down` [experts, features, width]. */
  outKernelInit: optional<ParamInitializer>("function", perExpert),
  /** Initialises the kernels of shared experts [inputs, outputs]: of `gate` and `up`, and of `down`. */
  sharedInit: optional<ParamInitializer>("function", initializers.lecunNormal()),
  sharedOutInit: optional<ParamInitializer>("function", initializers.lecunNormal()),
  /** Initialises the bias of the router, [experts]; zeros by default. */
  biasInit: optional<ParamInitializer>("function", initializers.zeros),
  /** The mesh axis that splits the experts. */
  expertAxis: optional("string", "expert"),
  /** The mesh axes that split the batch in the global view, the axis of experts among them. */
  batchAxes: optional("strings", ["data", "fsdp", "expert"]),
  /** The mesh axis that splits sequences in the global view, if they are a multiple of it. */
  contextAxis: optional("string", "context"),
  /** The mesh axis that splits the features of each expert. */
  modelAxis: optional("string", "model"),
});

/** Configuration of {@link MoE}. */
export interface MoEConfig extends OptionsOf<typeof moeConfig> {}

type Config = Values<typeof moeConfig.fields>;

/** The result of {@link MoE}. */
export interface MoEResult {
  /** [batch, length, width] */
  readonly output: Tensor;
  readonly router: RouterStatistics;
}

/** The weights of experts, or of those of one device. */
interface ExpertWeights<T = Tensor | QuantizedKernel> {
  readonly gate: T;
  readonly up: T;
  readonly down: T;
}

/**
 * A mixture of experts: every token goes to the best `numExpertsPerToken` of `numExperts` gated MLPs, `down(silu(gate(x)) ·
 * up(x))`, and gets their weighted sum. Which tokens an expert takes is decided within each row of the batch, so the
 * result does not depend on the mesh.
 *
 * Along `expertAxis` every device has some of the experts, and tokens travel: an all-to-all to the experts and one back,
 * forward and backward. In the global view that needs a surrounding `withMesh`; inside of `shardMap` the module sees
 * blocks, and its parameters are those of the device's own experts and features.
 *
 * @example
 * ```ts
 * const layer = nn.MoE({ numExperts: 4, features: 8 });
 * const x = random.normal(random.key(1), [2, 3, 6]);
 * const { output, router } = layer.apply(layer.init(random.key(0), x), x);
 * output.shape; // [2, 3, 6]
 * np.sum(router.load, -1); // [1, 1]
 * ```
 */
export const MoE = module({ name: "MoE", options: moeConfig }, (config) => (inputs: Tensor): MoEResult => {
  checkSizes(config, inputs);
  const { numExperts, paramDtype, dtype } = config;
  const width = at(inputs.shape, 2);
  const routerKernel = param("router", config.routerInit, [width, numExperts], paramDtype);
  const bias = config.balanceBias
    ? param("balanceBias", config.biasInit, [numExperts], "float32")
    : undefined;
  const weights = expertWeights(config, width);
  const [x, gate, up, down] = promote([inputs, weights.gate, weights.up, weights.down], dtype, "MoE");
  const scope = currentScope("MoE");
  const stored = <T>(name: string, plain: T): T | QuantizedKernel => {
    const own = scope.get("params", name);
    return isQuantized(own) ? unbox<QuantizedKernel>(own) : plain;
  };
  const contract = { lhsContract: [2], rhsContract: [0] };
  // Small differences of logits decide, so they are computed in float32.
  const wide = (tensor: Tensor) => ops.convert(tensor, "float32");
  const logits = ops.dotGeneral(wide(jittered(x, config.jitter)), wide(routerKernel), contract);
  const { experts, gates, statistics } = routeTokens(logits, bias, config);
  const routed = onBlocks(config)(x, experts, gates, {
    gate: stored("gate", gate),
    up: stored("up", up),
    down: stored("down", down),
  });
  return { output: config.numSharedExperts > 0 ? routed.add(shared(config, x)) : routed, router: statistics };
});

/** Throws if sizes do not fit together. */
function checkSizes(config: Config, { shape, type }: Tensor): void {
  const { numExperts, numExpertsPerToken: count, capacityFactor, jitter } = config;
  if (shape.length !== 3) throw new ShapeError(`[MoE] needs [batch, length, width], got ${formatType(type)}`);
  if (!Number.isInteger(count) || count < 1 || count > numExperts) {
    throw new ValueError(
      `[MoE] numExpertsPerToken is ${count}: use an integer from 1 to the number of experts, ${numExperts}`,
    );
  }
  if (capacityFactor !== undefined && !(capacityFactor >= 0)) {
    throw new ValueError(`[MoE] capacityFactor is ${capacityFactor}: use 0 or more`);
  }
  if (!(jitter >= 0 && jitter < 1))
    throw new ValueError(`[MoE] jitter is ${jitter}: use 0 or more, and less than 1`);
}

function jittered(x: Tensor, jitter: number): Tensor {
  if (jitter === 0 || !hasRng("jitter")) return x;
  const noise = uniform(makeRng("jitter"), x.shape, { minval: 1 - jitter, maxval: 1 + jitter });
  return x.mul(noise.astype(x.dtype));
}

/** The equal part that each device along an axis has of a number of things. */
function partOf(whole: number, what: string, axis: MeshAxis | undefined): number {
  const size = axis?.size ?? 1;
  if (whole % size === 0) return whole / size;
  throw new ShapeError(
    `[MoE] ${whole} ${what} do not split over axis "${axis?.name}" (${whole} / ${size} = ${(whole / size).toFixed(2)}): use a multiple of ${size}`,
  );
}

/** The parameters of the experts; inside of a shard map those of this device, cut from what one device would have. */
function expertWeights(config: Config, width: number): ExpertWeights<Tensor> {
  const { numExperts, features, paramDtype, kernelInit, outKernelInit } = config;
  const [expertAxis, modelAxis] = [boundAxis(config.expertAxis, "MoE"), boundAxis(config.modelAxis, "MoE")];
  const own = partOf(numExperts, "experts", expertAxis);
  const ownFeatures = partOf(features, "features", modelAxis);
  const make = (name: string, init: ParamInitializer, whole: Shape, shape: Shape) =>
    param(name, cutInit(init, whole, expertAxis, modelAxis), shape, paramDtype);
  const inner = [
    [numExperts, width, features],
    [own, width, ownFeatures],
  ] as const;
  return {
    gate: make("gate", kernelInit, ...inner),
    up: make("up", kernelInit, ...inner),
    down: make("down", outKernelInit, [numExperts, features, width], [own, ownFeatures, width]),
  };
}

/** An initialiser of the block of this device. */
function cutInit(
  init: ParamInitializer,
  whole: Shape,
  expertAxis: MeshAxis | undefined,
  modelAxis: MeshAxis | undefined,
): ParamInitializer {
  if (!expertAxis && !modelAxis) return init;
  return (key, shape, dtype) => {
    const zero = ops.zeros({ dtype: "int32", shape: [] });
    const start = (d: number) => {
      const axis = shape[d] === whole[d] ? undefined : d === 0 ? expertAxis : modelAxis;
      return axis ? ops.axisIndex([axis]).mul(at(shape, d)) : zero;
    };
    const cut = (x: Tensor) =>
      ops.dynamicSlice(
        x,
        shape.map((_, d) => start(d)),
        shape,
      );
    return tree.map(cut, init(key, whole, dtype));
  };
}

/** The dense MLP of the shared experts, which is one of all their features together. */
function shared(config: Config, x: Tensor): Tensor {
  const { numSharedExperts, features, dtype, paramDtype, sharedInit, sharedOutInit } = config;
  const modelAxis = boundAxis(config.modelAxis, "MoE");
  const inner = partOf(numSharedExperts * features, "features of shared experts", modelAxis);
  const layer = (name: string, numFeatures: number, kernelInit: ParamInitializer) =>
    Dense({ name, features: numFeatures, useBias: false, dtype, paramDtype, kernelInit });
  const hidden = silu(layer("sharedGate", inner, sharedInit)(x)).mul(layer("sharedUp", inner, sharedInit)(x));
  const result = layer("sharedDown", at(x.shape, 2), sharedOutInit)(hidden);
  return modelAxis ? psum(result, config.modelAxis) : result;
}

type Block = (x: Tensor, experts: Tensor, gates: Tensor, weights: ExpertWeights) => Tensor;

/** The experts on blocks of the batch: those that a shard map here makes, or those of a surrounding one. */
function onBlocks(config: Config): Block {
  const mesh = currentMesh();
  const isLeft = (name: string) => (mesh?.shape[name] ?? 1) > 1 && boundAxis(name, "MoE") === undefined;
  const batchAxes = config.batchAxes.filter(isLeft);
  const axes = [...new Set([...batchAxes, ...[config.expertAxis, config.contextAxis].filter(isLeft)])];
  if (!mesh || axes.length === 0) return blockFunction(config);
  const expertAxis = isLeft(config.expertAxis)
    ? { name: config.expertAxis, size: mesh.shape[config.expertAxis] ?? 1 }
    : undefined;
  partOf(config.numExperts, "experts", expertAxis);
  return mappedBlock(config, mesh, axes, batchAxes, expertAxis?.name ?? null);
}

function mappedBlock(
  config: Config,
  mesh: Mesh,
  axisNames: readonly string[],
  batchAxes: readonly string[],
  expertAxis: string | null,
): Block {
  const ofExperts = new PartitionSpec([expertAxis]);
  return (x, experts, gates, weights) => {
    const size = batchAxes.reduce((product, name) => product * (mesh.shape[name] ?? 1), 1);
    const [batch = 0, length = 0] = x.shape;
    if (batch % size !== 0) {
      throw new ShapeError(
        `[MoE] a batch of ${batch} rows does not split over the axes ${batchAxes.join(", ")} (${batch} / ${size} = ${(batch / size).toFixed(2)}): use a multiple of ${size}`,
      );
    }
    const { contextAxis } = config;
    const splitsLength = axisNames.includes(contextAxis) && length % (mesh.shape[contextAxis] ?? 1) === 0;
    const tokens = new PartitionSpec([
      batchAxes.length === 0 ? null : batchAxes,
      splitsLength ? contextAxis : null,
    ]);
    return shardMap(blockFunction(config, length), {
      mesh,
      axisNames,
      inSpecs: [tokens, tokens, tokens, tree.map(() => ofExperts, weights)] as never,
      outSpecs: tokens,
    })(x, experts, gates, weights);
  };
}

/** The experts of this device on its tokens. @param rowLength the length of whole rows, if devices have parts of them */
function blockFunction(config: Config, rowLength?: number): Block {
  return (x, experts, gates, { gate, up, down }) => {
    const [batch = 0, length = 0, width = 0] = x.shape;
    const axis = boundAxis(config.expertAxis, "MoE");
    const modelAxis = boundAxis(config.modelAxis, "MoE");
    const { numExperts, numExpertsPerToken: count } = config;
    const numTokens = batch * length;
    const capacity = expertCapacity(config, rowLength ?? length);
    const perDevice = partOf(numExperts, "experts", axis);
    const all = numTokens * Math.min(count, perDevice);
    const run = (rows: Tensor, sizes: Tensor): Tensor => {
      const product = (a: Tensor, w: Tensor | QuantizedKernel) => expertProduct(a, w, sizes);
      const result = product(silu(product(rows, gate)).mul(product(rows, up)), down);
      return modelAxis ? psum(result, config.modelAxis) : result;
    };
    const flat = (tensor: Tensor) => ops.reshape(tensor, [numTokens, at(tensor.shape, 2)]);
    const output = dispatchTokens(flat(x), flat(experts), flat(gates), run, {
      numExperts,
      axis: axis && axis.size > 1 ? axis : undefined,
      maxRows: capacity === undefined ? all : Math.min(all, capacity * batch * perDevice),
      drops: capacity !== undefined,
    });
    return ops.reshape(output, [batch, length, width]);
  };
}

/** Rows with the kernels of their experts; of quantised ones, the backward pass does not keep the floats. */
function expertProduct(rows: Tensor, kernel: Tensor | QuantizedKernel, sizes: Tensor): Tensor {
  if (!isQuantized(kernel)) return ops.raggedDot(rows, kernel, sizes, "rows");
  const product = (x: Tensor, codes: Tensor, scales: Tensor) =>
    ops.raggedDot(x, dequantized(codes, scales).astype(x.dtype), sizes, "rows");
  return remat(product)(rows, kernel.codes, kernel.scales);
}
