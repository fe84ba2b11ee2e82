/** Low-rank adapters: a frozen module and a few trained parameters beside its linear layers. */
import { either, instanceOf, integerFrom } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at, range, type Shape } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import * as random from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { remat } from "../lift/remat.js";
import { currentScope } from "../modules/context.js";
import { type InterceptedCall, interceptMethods } from "../modules/intercept.js";
import { isBoxed, unbox } from "../modules/metadata.js";
import { dequantizeKernels, isTargetLayer, runningKernel } from "../modules/quantize.js";
import type { Variables } from "../modules/scope.js";
import { makeRng, variable } from "../modules/variables.js";

const loraOptions = schema({
  /** The rank of the adapters. */
  rank: required(integerFrom(1)),
  /** The adapters' contribution is scaled by `alpha / rank`; the rank by default. */
  alpha: optional("number"),
  /** Names of the linear layers to adapt, such as `query`, or a pattern for their paths; all by default. */
  targets: optional(either("strings", instanceOf(RegExp, "a regular expression"))),
  /** Whether the adapters also learn the length of every output's weights (DoRA). */
  dora: false,
});

/** Options of {@link lora}. */
export interface LoraOptions extends OptionsOf<typeof loraOptions> {}

/** A module that {@link lora} can adapt. */
export interface AdaptableModule<A extends readonly unknown[], R> {
  apply(variables: Variables, ...args: A): R;
  with(options: { readonly mutable: readonly string[]; readonly rngs: Readonly<Record<string, Tensor>> }): {
    apply(variables: Variables, ...args: A): unknown;
  };
}

/** A module with adapters. */
export interface LoraModule<A extends readonly unknown[], R> {
  /** The adapters before training, which change nothing: `{ lora: … }`. */
  init(key: Tensor, params: Variables, ...args: A): Variables;
  /** The module with its frozen parameters and the adapters. */
  apply(params: Variables, adapters: Variables, ...args: A): R;
  /** The parameters with the adapters added, for the module alone. */
  merge(params: Variables, adapters: Variables): Variables;
  /** The inverse of `merge`, up to rounding; not for DoRA. */
  unmerge(merged: Variables, adapters: Variables): Variables;
  /** The number of trained parameters. */
  count(adapters: Variables): number;
}

/** The collection of adapters. */
const collection = "lora";

/**
 * Adapts the linear layers of a module (LoRA): each computes `x · W + alpha / rank · (x · A) · B`, where `W` is frozen and
 * only the small `A` and `B` are trained. `B` starts at 0. `W` may be quantised (`quantizeKernels`). With `dora`, the columns of the sum are scaled to lengths
 * that are trained, too. Layers in a loop need `variableAxes: { lora: 0 }` and `splitRngs: { lora: true }` in their
 * `nn.scan`, as those of the models of `shardwise/train` have.
 *
 * @example
 * ```ts
 * const model = nn.Dense({ features: 3 });
 * const params = model.init(random.key(0), np.ones([1, 4]));
 * const adapted = nn.lora(model, { rank: 2 });
 * const adapters = adapted.init(random.key(1), params, np.ones([1, 4]));
 * adapted.count(adapters); // 14
 * ```
 */
export function lora<A extends readonly unknown[], R>(
  module: AdaptableModule<A, R>,
  options: LoraOptions,
): LoraModule<A, R> {
  const { rank, alpha = rank, targets, dora } = loraOptions.read(options, "nn.lora");
  const scale = alpha / rank;
  const intercept = (
    next: (...args: readonly unknown[]) => unknown,
    args: readonly unknown[],
    call: InterceptedCall,
  ) => {
    if (!isTargetLayer(call, undefined)) return next(...args);
    // Only the input is kept for the backward pass: a loop over layers would copy all kernels, quantised ones as floats.
    const y = remat((x: unknown) => next(x))(args[0]) as Tensor;
    return isTargetLayer(call, targets) ? adapted(args[0] as Tensor, y, { rank, scale, dora }) : y;
  };
  const changed = (params: Variables, adapters: Variables, sign: 1 | -1) =>
    changeKernels(dequantizeKernels(params), adapters, scale * sign);
  return {
    init: (key, params, ...args) => {
      const made = interceptMethods(intercept, () =>
        module.with({ mutable: [collection], rngs: { [collection]: key } }).apply(params, ...args),
      );
      const adapters = (made as readonly [unknown, Variables])[1];
      if (tree.leaves(adapters).length > 0) return adapters;
      throw new ValueError(`[nn.lora] no linear layer of the module matches the targets ${String(targets)}`);
    },
    apply: (params, adapters, ...args) =>
      interceptMethods(intercept, () => module.apply({ ...params, ...adapters }, ...args)),
    merge: (params, adapters) => changed(params, adapters, 1),
    unmerge: (merged, adapters) => {
      if (dora) throw new ValueError("[nn.lora] adapters of DoRA cannot be unmerged: keep the parameters");
      return changed(merged, adapters, -1);
    },
    count: (adapters) => tree.leaves(adapters).reduce<number>((sum, leaf) => sum + (leaf as Tensor).size, 0),
  };
}

interface AdapterConfig {
  readonly rank: number;
  readonly scale: number;
  readonly dora: boolean;
}

/** The result of a linear layer with its adapter. @param y what the layer alone gives */
function adapted(x: Tensor, y: Tensor, { rank, scale, dora }: AdapterConfig): Tensor {
  const scope = currentScope("nn.lora");
  // The kernel is [inputs, outputs], each of one or more dims.
  const { kernel, numIn } = runningKernel(scope, x, y);
  const bias = scope.has("params", "bias") ? unbox<Tensor>(scope.get("params", "bias")) : undefined;
  const [ins, outs] = [kernel.shape.slice(0, numIn), kernel.shape.slice(numIn)];
  const inputs = ins.reduce((n, m) => n * m, 1);
  const bound = Math.sqrt(3 / inputs);
  const start = () => random.uniform(makeRng(collection), [...ins, rank], { minval: -bound, maxval: bound });
  const a = variable(collection, "a", start).value.astype(x.dtype);
  const b = variable(collection, "b", () => np.zeros([rank, ...outs])).value.astype(x.dtype);
  const dims = range(numIn);
  const low = ops.dotGeneral(x, a, { lhsContract: dims.map((d) => x.ndim - numIn + d), rhsContract: dims });
  const added = ops.dotGeneral(low, b, { lhsContract: [low.ndim - 1], rhsContract: [0] }).mul(scale);
  if (!dora) return y.add(added);
  const magnitude = variable(collection, "magnitude", () => lengths(kernel.astype("float32"), numIn)).value;
  const sum = kernel.astype("float32").add(product(a, b, ins, outs).mul(scale).astype("float32"));
  // The length is treated as a constant in the backward pass, as its authors do.
  const factor = magnitude.div(ops.stopGradient(lengths(sum, numIn))).astype(y.dtype);
  const linear = bias ? y.sub(bias.astype(y.dtype)) : y;
  const scaled = linear.add(added).mul(factor);
  return bias ? scaled.add(bias.astype(y.dtype)) : scaled;
}

/** The length of the weights of every output. */
function lengths(kernel: Tensor, numIn: number): Tensor {
  return np.sqrt(np.sum(np.square(kernel), range(numIn)));
}

/** `A · B` as a kernel. */
function product(a: Tensor, b: Tensor, ins: Shape, outs: Shape): Tensor {
  const [rank = 1] = b.shape;
  const count = (shape: Shape) => shape.reduce((n, m) => n * m, 1);
  return np.matmul(a.reshape([count(ins), rank]), b.reshape([rank, count(outs)])).reshape([...ins, ...outs]);
}

type Node = Readonly<Record<string, unknown>>;
const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** Adds `scale · A · B` to the kernels that have adapters; DoRA's lengths replace those of the sum. */
function changeKernels(params: Variables, adapters: Variables, scale: number): Variables {
  const walk = (node: unknown, own: unknown): unknown => {
    if (!isNode(node) || !isNode(own)) return node;
    const { a, b, magnitude } = own as Readonly<Record<string, Tensor | undefined>>;
    if ("kernel" in node && a && b && !isNode(a)) {
      return { ...node, kernel: mergedKernel(node.kernel, a, b, magnitude, scale) };
    }
    return Object.fromEntries(Object.entries(node).map(([name, child]) => [name, walk(child, own[name])]));
  };
  return { ...params, params: walk(params.params, adapters[collection]) as Variables[string] };
}

function mergedKernel(
  boxed: unknown,
  a: Tensor,
  b: Tensor,
  magnitude: Tensor | undefined,
  scale: number,
): unknown {
  const kernel = isBoxed(boxed)
    ? ((boxed as { readonly value?: Tensor }).value ?? (boxed.unbox() as Tensor))
    : (boxed as Tensor);
  // Stacked layers have one more dim in all three.
  const numStacked = a.ndim + b.ndim - 2 - kernel.ndim;
  const numIn = a.ndim - 1 - numStacked;
  const stacked = kernel.shape.slice(0, numStacked);
  const count = (shape: Shape) => shape.reduce((n, m) => n * m, 1);
  const ins = kernel.shape.slice(numStacked, numStacked + numIn);
  const outs = kernel.shape.slice(numStacked + numIn);
  const rank = at(a.shape, a.ndim - 1);
  const low = a.astype("float32").reshape([...stacked, count(ins), rank]);
  const high = b.astype("float32").reshape([...stacked, rank, count(outs)]);
  const sum = kernel.astype("float32").add(np.matmul(low, high).mul(scale).reshape(kernel.shape));
  const dims = range(numIn).map((d) => numStacked + d);
  const spread = magnitude?.reshape([...stacked, ...ins.map(() => 1), ...outs]);
  const norm = spread && np.sqrt(np.sum(np.square(sum), dims, { keepdims: true }));
  const merged = (spread && norm ? sum.mul(spread.div(norm)) : sum).astype(kernel.dtype);
  return isBoxed(boxed) ? boxed.replaceBoxed(merged) : merged;
}
