/** Kernels of linear layers in 8 or 4 bits, as a frozen model that is fine-tuned has them. */
import { either, instanceOf, need, oneOf } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, range } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { currentScope } from "./context.js";
import { type InterceptedCall, interceptMethods } from "./intercept.js";
import { LogicallyPartitioned } from "./logicalPartitioning.js";
import { unbox } from "./metadata.js";
import { type DimNames, Partitioned } from "./partitioned.js";
import { isTree, type Scope, type Variables } from "./scope.js";

const quantizeOptions = schema({
  /**
   * `int8`: 8 bits, with a scale for every output; `nf4`: the 4-bit numbers of QLoRA, which suit normally distributed
   * weights, with a scale for every 64 inputs of an output.
   */
  type: optional(oneOf("int8", "nf4"), "nf4"),
  /**
   * Names of the linear layers to quantise, such as `query`, or of the kernels of experts, such as `gate`, or a pattern for
   * their paths; all by default.
   */
  targets: optional(either("strings", instanceOf(RegExp, "a regular expression"))),
});

/** Options of {@link quantizeKernels}. */
export interface QuantizeOptions extends OptionsOf<typeof quantizeOptions> {}

/** A kernel in few bits; it takes the place of the kernel among a module's parameters. */
export interface QuantizedKernel<T = Tensor> {
  /** int8 for 8 bits; uint8 for 4, with two inputs of an output in each. */
  readonly codes: T;
  /** float32, with 1 instead of the inputs, or the number of blocks instead of the last dim of inputs. */
  readonly scales: T;
}

/** The 16 numbers of NF4: quantiles of the normal distribution, scaled to 1, with an exact 0. */
const nf4 = [
  ...[-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635],
  ...[-0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725],
  ...[0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941],
  ...[0.7229568362236023, 1],
] as const;

/** The inputs that share a scale, and the fewest numbers of scales and of inputs in a block. */
const [wholeBlock, fewestBlocks, leastBlock] = [64, 8, 4];

/** Whether a parameter is a quantised kernel. */
export function isQuantized(value: unknown): value is QuantizedKernel<unknown> {
  return (
    typeof value === "object" &&
    value !== null &&
    "codes" in value &&
    "scales" in value &&
    Object.keys(value).length === 2
  );
}

/** The value of a parameter as modules use it: without its box, and as floats if it is quantised. */
export function plainValue(stored: unknown): unknown {
  const value = unbox(stored);
  if (!isQuantized(value)) return value;
  const { codes, scales } = value;
  if (codes instanceof Tensor && scales instanceof Tensor) return dequantized(codes, scales);
  throw new ValueError("[nn.dequantizeKernels] codes and scales must be tensors");
}

/** The floats that codes and scales stand for. */
export function dequantized(codes: Tensor, scales: Tensor): Tensor {
  if (codes.dtype === "int8") return codes.astype("float32").mul(scales);
  const dim = codes.shape.findIndex((size, d) => size !== scales.shape[d]);
  const [before, after] = [codes.shape.slice(0, dim), codes.shape.slice(dim + 1)];
  const half = at(codes.shape, dim);
  // Shifted rather than concatenated: elementwise, so that products compute the kernel as they read it.
  const shifts = np.arange(2).mul(4).astype("int32");
  const pairs = np.broadcastTo(np.expandDims(codes, dim + 1), [...before, half, 2, ...after]).astype("int32");
  const nibbles = np.bitwiseAnd(np.rightShift(pairs, shifts.reshape([2, ...after.map(() => 1)])), 15);
  const numBlocks = at(scales.shape, dim);
  const blocks = numberOf(nibbles).reshape([...before, numBlocks, (2 * half) / numBlocks, ...after]);
  return blocks.mul(np.expandDims(scales, dim + 1)).reshape([...before, 2 * half, ...after]);
}

/** The number of NF4 with a code from 0 to 15, by choices between halves: vectors have no look-up of 16 floats. */
function numberOf(codes: Tensor): Tensor {
  let numbers: (number | Tensor)[] = [...nf4];
  for (let bit = 1; bit < nf4.length; bit *= 2) {
    const isSet = np.notEqual(np.bitwiseAnd(codes, bit), 0);
    numbers = range(numbers.length / 2).map((i) =>
      np.where(isSet, asTensor(at(numbers, 2 * i + 1)), asTensor(at(numbers, 2 * i))),
    );
  }
  return asTensor(at(numbers, 0));
}

const asTensor = (value: number | Tensor): Tensor =>
  typeof value === "number" ? Tensor.scalar(value, "float32") : value;

/** @param numIn dims of inputs, before `numOut` dims of outputs */
function quantized(kernel: Tensor, type: "int8" | "nf4", numIn: number, numOut: number): QuantizedKernel {
  const wide = kernel.astype("float32");
  const last = kernel.ndim - numOut - 1;
  if (type === "int8") {
    const inputs = range(numIn).map((d) => last - d);
    const scales = largestOf(wide, inputs).div(127);
    return { codes: np.round(wide.div(scales)).astype("int8"), scales };
  }
  const size = at(kernel.shape, last);
  const block = blockSize(size);
  const [before, after] = [kernel.shape.slice(0, last), kernel.shape.slice(last + 1)];
  const blocks = wide.reshape([...before, size / block, block, ...after]);
  const scales = largestOf(blocks, [last + 1]);
  const normed = blocks.div(scales).reshape([...before, size / 2, 2, ...after]);
  const nearest = nf4
    .slice(1)
    .map((number, i) => np.greater(normed, (number + at(nf4, i)) / 2).astype("int32"))
    .reduce((sum, isAbove) => sum.add(isAbove));
  const [low, high] = [0, 1].map((i) => np.squeeze(ops.sliceDim(nearest, last + 1, i, i + 1), last + 1));
  const codes = np.add(low ?? nearest, (high ?? nearest).mul(16)).astype("uint8");
  return { codes, scales: np.squeeze(scales, last + 1) };
}

/** The largest size along dims, which are kept; 1 where all are 0. */
function largestOf(x: Tensor, dims: readonly number[]): Tensor {
  const largest = np.max(np.abs(x), [...dims], { keepdims: true });
  return np.where(np.equal(largest, 0), Tensor.scalar(1, "float32"), largest);
}

/** The inputs of a block: 64, or fewer if there would be few blocks, which meshes could not split. */
function blockSize(size: number): number {
  let block = wholeBlock;
  while (block > leastBlock && (size % block !== 0 || size / block < fewestBlocks)) block /= 2;
  if (size % block === 0) return block;
  throw new ValueError(
    `[nn.quantizeKernels] the last dim of a kernel's inputs is ${size}: nf4 needs a multiple of ${leastBlock}; use int8`,
  );
}

/** A module whose kernels {@link quantizeKernels} can find. */
export interface QuantizableModule<A extends readonly unknown[]> {
  apply(variables: Variables, ...args: A): unknown;
}

type Targets = readonly string[] | RegExp | undefined;

function isTarget(path: readonly string[], targets: Targets): boolean {
  if (targets === undefined) return true;
  return targets instanceof RegExp ? targets.test(path.join("/")) : targets.includes(path.at(-1) ?? "");
}

/** Whether a call is one of a linear layer that the targets name. */
export function isTargetLayer(call: InterceptedCall, targets: Targets): boolean {
  const isLinear = call.method === "__call__" && ["Dense", "DenseGeneral"].includes(call.moduleName);
  return isLinear && isTarget(call.path, targets);
}

/** The parameters of a mixture of experts, of which each is a kernel [inputs, outputs] for every expert. */
const expertKernels = ["gate", "up", "down"] as const;

/** The kernel of the linear layer that is running, and how many of its dims are inputs. */
export function runningKernel(scope: Scope, x: Tensor, y: Tensor): { kernel: Tensor; numIn: number } {
  const kernel = plainValue(scope.get("params", "kernel")) as Tensor;
  return { kernel, numIn: (x.ndim + kernel.ndim - y.ndim) / 2 };
}

/** Finds the kernels that a call of the module uses, by path: their dims of inputs and of outputs. */
function findKernels<A extends readonly unknown[]>(
  module: QuantizableModule<A>,
  params: Variables,
  args: A,
  targets: Targets,
): Map<string, readonly [numIn: number, numOut: number]> {
  const found = new Map<string, readonly [number, number]>();
  const record = (
    next: (...given: readonly unknown[]) => unknown,
    given: readonly unknown[],
    call: InterceptedCall,
  ) => {
    const y = next(...given);
    if (isTargetLayer(call, targets)) {
      const { kernel, numIn } = runningKernel(
        currentScope("nn.quantizeKernels"),
        given[0] as Tensor,
        y as Tensor,
      );
      found.set([...call.path, "kernel"].join("/"), [numIn, kernel.ndim - numIn]);
    }
    if (call.method === "__call__" && call.moduleName === "MoE") {
      const paths = expertKernels.map((name) => [...call.path, name]);
      for (const path of paths) if (isTarget(path, targets)) found.set(path.join("/"), [1, 1]);
    }
    return y;
  };
  evalShape((own: Variables) => interceptMethods(record, () => module.apply(own, ...args)))(params);
  return found;
}

/**
 * The parameters of a module with the kernels of its linear layers in 8 or 4 bits. The module computes with them as with
 * others: products turn them into floats block by block while they read them. They are not meant to be trained, but
 * {@link lora} trains adapters beside them.
 *
 * @param args what the module is called with
 *
 * @example
 * ```ts
 * const model = nn.Dense({ features: 2, useBias: false });
 * const params = { params: { kernel: np.array([[0.5, -2], [1, 0], [-1, 1], [0, 2]]) } };
 * const small = nn.quantizeKernels(model, params, { type: "nf4" }, np.ones([1, 4]));
 * nn.dequantizeKernels(small).params.kernel; // [[0.4407, -2], [1, 0], [-1, 0.8814], [0, 2]]
 * ```
 */
export function quantizeKernels<A extends readonly unknown[]>(
  module: QuantizableModule<A>,
  params: Variables,
  options: QuantizeOptions,
  ...args: A
): Variables {
  const { type, targets } = quantizeOptions.read(options, "nn.quantizeKernels");
  const kernels = findKernels(module, params, args, targets);
  if (kernels.size === 0) {
    throw new ValueError(`[nn.quantizeKernels] no linear layer matches the targets ${String(targets)}`);
  }
  const change = (path: string, stored: unknown): unknown => {
    const own = kernels.get(path);
    if (!own || isQuantized(stored)) return undefined;
    const [numIn, numOut] = own;
    const kernel = unbox<Tensor>(stored);
    const { codes, scales } = quantized(kernel, type, numIn, numOut);
    if (!(stored instanceof Partitioned)) return { codes, scales };
    const isInput = (d: number) => d >= kernel.ndim - numOut - numIn && d < kernel.ndim - numOut;
    const names = range(kernel.ndim).map((d) =>
      type === "int8" && isInput(d) ? null : (stored.names[d] ?? null),
    );
    return { codes: stored.replaceBoxed(codes), scales: reboxed(stored, scales, names) };
  };
  return mapKernels(params, change);
}

/**
 * The inverse of {@link quantizeKernels}, up to rounding: kernels in float32.
 *
 * @example
 * ```ts
 * nn.dequantizeKernels({ params: { kernel: np.ones([1]) } }); // { "params": { "kernel": [1] } }
 * ```
 */
export function dequantizeKernels(params: Variables): Variables {
  need("object", params, "params", "dequantizeKernels");
  return mapKernels(params, (_, stored) => {
    if (!isQuantized(stored)) return undefined;
    const { codes } = stored;
    const plain = plainValue(stored);
    return codes instanceof Partitioned ? codes.replaceBoxed(plain) : plain;
  });
}

/** A box of the same kind around another value, whose dims have other names. */
function reboxed(box: Partitioned, value: Tensor, names: DimNames): Partitioned {
  if (box instanceof LogicallyPartitioned) return new LogicallyPartitioned(value, names, box);
  return new Partitioned(value, names, box.mesh);
}

/** Changes the parameters for which `change` gives something. */
function mapKernels(variables: Variables, change: (path: string, stored: unknown) => unknown): Variables {
  const walk = (node: unknown, path: readonly string[]): unknown => {
    const changed = change(path.join("/"), node);
    if (changed !== undefined || !isTree(node)) return changed ?? node;
    return Object.fromEntries(
      Object.entries(node).map(([name, child]) => [name, walk(child, [...path, name])]),
    );
  };
  return { ...variables, params: walk(variables.params, []) as Variables[string] };
}
