/**
 * One function per op, with shapes and types spelled out: no broadcasting, no promotion. The transforms are
 * written with these, `lax` re-exports most of them, `np` builds on them. Calls that would change nothing
 * return their operand.
 */
import { need } from "../ir/arguments.js";
import { type DType, isComplex, isFloat, isInteger, limits, needDType } from "../ir/dtype.js";
import { DTypeError } from "../ir/errors.js";
import { missingAxes, varyingAxes } from "../ir/infer/varying.js";
import type { MeshAxis } from "../ir/mesh.js";
import type { BinaryOp, UnaryOp } from "../ir/opFacts.js";
import type {
  CompareDirection,
  Float8,
  OpName,
  OpParams,
  Precision,
  RaggedDim,
  XlaFunction,
} from "../ir/ops.js";
import { at, inversePermutation, range, type Shape, sameNumbers, type TensorType } from "../ir/shape.js";
import { bindParts as bind } from "./complexRules.js";
import type { ExecutionTarget } from "./executionTarget.js";
import { needTensor, needTensors } from "./promote.js";
import { Tensor } from "./tensor.js";

const none = {};

/** {@link bind} for ops with one result. */
function bind1<K extends OpName>(
  op: K,
  ins: readonly Tensor[],
  params: OpParams[K],
  target?: ExecutionTarget,
): Tensor {
  return at(bind(op, ins, params, target), 0);
}

/** The operand, checked to be a tensor before its type is read. */
function given(x: Tensor, op: OpName): Tensor {
  needTensor(x, "the operand", op);
  return x;
}

const unary = (op: UnaryOp) => (x: Tensor) => bind1(op, [x], none);
const binary =
  (op: BinaryOp) =>
  (x: Tensor, y: Tensor | number): Tensor =>
    bind1(op, [x, typeof y === "number" ? Tensor.scalar(y, given(x, op).dtype) : y], none);

export const neg = unary("neg");
export const exp = unary("exp");
export const expm1 = unary("expm1");
export const log = unary("log");
export const log1p = unary("log1p");
export const tanh = unary("tanh");
export const sin = unary("sin");
export const cos = unary("cos");
export const sqrt = unary("sqrt");
export const rsqrt = unary("rsqrt");
export const cbrt = unary("cbrt");
export const abs = unary("abs");
export const sign = unary("sign");
export const floor = unary("floor");
export const ceil = unary("ceil");
export const round = unary("round");
export const erf = unary("erf");
export const erfInv = unary("erfInv");
export const logistic = unary("logistic");
export const not = unary("not");
export const add = binary("add");
export const sub = binary("sub");
export const mul = binary("mul");
export const div = binary("div");
export const rem = binary("rem");
export const pow = binary("pow");
export const max = binary("max");
export const min = binary("min");
export const and = binary("and");
export const or = binary("or");
export const xor = binary("xor");
export const shl = binary("shl");
export const shrLogical = binary("shrLogical");
export const shrArithmetic = binary("shrArithmetic");
export const atan2 = binary("atan2");

/** Whether each element is neither infinite nor NaN. */
export function finite(x: Tensor): Tensor {
  return bind1("isFinite", [x], none);
}

/** The same values in another data type. */
export function convert(x: Tensor, dtype: DType): Tensor {
  needDType(dtype, "convert");
  return given(x, "convert").dtype === dtype ? x : bind1("convert", [x], { dtype });
}

/** The same value; its data type no longer adapts to what it is combined with. */
export function strong(x: Tensor): Tensor {
  if (!x.type.weak) return x;
  if (x.node.kind === "literal") return Tensor.scalar(x.node.literal.value, x.dtype);
  return bind1("convert", [x], { dtype: x.dtype });
}

/** The same bits as another data type of the same width. */
export function bitcast(x: Tensor, dtype: DType): Tensor {
  needDType(dtype, "bitcast");
  return given(x, "bitcast").dtype === dtype ? x : bind1("bitcast", [x], { dtype });
}

/** A function with the bits that XLA computes on CPUs. */
export function xlaFunction(fn: XlaFunction, x: Tensor): Tensor {
  return bind1("xlaFunction", [x], { fn });
}

/** The nearest value of a float8 type. */
export function roundFloat8(x: Tensor, format: Float8): Tensor {
  return bind1("roundFloat8", [x], { format });
}

/** Compares elements. */
export function compare(direction: CompareDirection, x: Tensor, y: Tensor | number): Tensor {
  return bind1("compare", [x, typeof y === "number" ? Tensor.scalar(y, given(x, "compare").dtype) : y], {
    direction,
  });
}

/** Takes each element from `onTrue` or `onFalse`. */
export function select(predicate: Tensor, onTrue: Tensor, onFalse: Tensor): Tensor {
  return bind1("select", [predicate, onTrue, onFalse], none);
}

/** Limits each element to low … high. */
export function clamp(low: Tensor, x: Tensor, high: Tensor): Tensor {
  return bind1("clamp", [low, x, high], none);
}

/** The threefry-2x32 hash of counters under a key. */
export function threefry2x32(key0: Tensor, key1: Tensor, x0: Tensor, x1: Tensor): [Tensor, Tensor] {
  const outs = bind("threefry2x32", [key0, key1, x0, x1], none);
  return [at(outs, 0), at(outs, 1)];
}

/** A tensor filled with one number. */
export function full(shape: Shape, value: number | boolean, dtype: DType): Tensor {
  return broadcastInDim(Tensor.scalar(value, dtype), shape, []);
}

/** Zeros of the given type. */
export function zeros(type: TensorType): Tensor {
  return pvary(full(type.shape, 0, type.dtype), varyingAxes(type));
}

/** A tensor whose elements are written before they are read, so that it need not be initialised. */
export function unset({ dtype, shape }: TensorType): Tensor {
  return bind1("broadcastInDim", [Tensor.scalar(0, dtype)], { shape, dims: [], unset: true });
}

/** Ones of the given type. */
export function ones(type: TensorType): Tensor {
  return pvary(full(type.shape, 1, type.dtype), varyingAxes(type));
}

/** The same value, marked as one that may differ along the axes where it is not yet. */
export function pvary(x: Tensor, axes: readonly MeshAxis[]): Tensor {
  const over = missingAxes(varyingAxes(x.type), axes);
  return over.length === 0 ? x : bind1("pvary", [x], { over });
}

/** 0, 1, 2 … along `dim`. */
export function iota(dtype: DType, shape: Shape, dim: number): Tensor {
  needDType(dtype, "iota");
  need("integers", shape, "the shape", "iota");
  need("integer", dim, "the dim", "iota");
  return bind1("iota", [], { dtype, shape, dim });
}

/** Repeats along new dims and dims of size 1; operand dim `i` becomes dim `dims[i]`. */
export function broadcastInDim(x: Tensor, shape: Shape, dims: readonly number[]): Tensor {
  need("list", shape, "the shape", "broadcastInDim");
  return sameNumbers(given(x, "broadcastInDim").shape, shape)
    ? x
    : bind1("broadcastInDim", [x], { shape, dims });
}

/**
 * The same elements in another shape.
 *
 * @example
 * ```ts
 * lax.reshape(np.arange(4), [2, 2]); // [[0, 1], [2, 3]]
 * ```
 */
export function reshape(x: Tensor, shape: Shape): Tensor {
  need("list", shape, "the shape", "reshape");
  return sameNumbers(given(x, "reshape").shape, shape) ? x : bind1("reshape", [x], { shape });
}

/**
 * Reorders dims: result dim `i` is dim `permutation[i]` of x.
 *
 * @example
 * ```ts
 * lax.transpose(np.array([[1, 2], [3, 4]]), [1, 0]); // [[1, 3], [2, 4]]
 * ```
 */
export function transpose(x: Tensor, permutation: readonly number[]): Tensor {
  need("list", permutation, "the permutation", "transpose");
  return sameNumbers(permutation, range(given(x, "transpose").ndim))
    ? x
    : bind1("transpose", [x], { permutation });
}

/** Moves one dim to another position. */
export function moveDim(x: Tensor, from: number, to: number): Tensor {
  const order = range(x.ndim).filter((d) => d !== from);
  order.splice(to, 0, from);
  return transpose(x, order);
}

/** Undoes {@link transpose} with the same permutation. */
export function untranspose(x: Tensor, permutation: readonly number[]): Tensor {
  return transpose(x, inversePermutation(permutation));
}

/**
 * Reverses the order along dims.
 *
 * @example
 * ```ts
 * lax.rev(np.array([1, 2, 3]), [0]); // [3, 2, 1]
 * ```
 */
export function reverse(x: Tensor, dims: readonly number[]): Tensor {
  need("list", dims, "dims", "reverse");
  return dims.length === 0 ? given(x, "reverse") : bind1("reverse", [x], { dims });
}

/**
 * The elements from `starts` up to `limits`, every `strides`-th.
 *
 * @example
 * ```ts
 * lax.slice(np.arange(5), [1], [4]); // [1, 2, 3]
 * ```
 */
export function slice(
  x: Tensor,
  starts: readonly number[],
  limits: readonly number[],
  strides?: readonly number[],
): Tensor {
  needTensor(x, "the operand", "slice");
  need("list", starts, "starts", "slice");
  need("list", limits, "limits", "slice");
  const steps = strides ?? starts.map(() => 1);
  need("list", steps, "strides", "slice");
  const whole = starts.every((s) => s === 0) && sameNumbers(limits, x.shape) && steps.every((s) => s === 1);
  return whole ? x : bind1("slice", [x], { starts, limits, strides: steps });
}

/** {@link slice} along one dim. */
export function sliceDim(x: Tensor, dim: number, start: number, limit: number, stride = 1): Tensor {
  const put = (other: number, value: number, d: number) => (d === dim ? value : other);
  return slice(
    x,
    x.shape.map((_, d) => put(0, start, d)),
    x.shape.map((n, d) => put(n, limit, d)),
    x.shape.map((_, d) => put(1, stride, d)),
  );
}

/** Puts `value` around and between the elements. */
export function pad(x: Tensor, value: Tensor, params: OpParams["pad"]): Tensor {
  const nothing = [params.low, params.high, params.interior].every((list) => list.every((n) => n === 0));
  return nothing ? x : bind1("pad", [x, value], params);
}

/**
 * Joins tensors along a dim.
 *
 * @example
 * ```ts
 * lax.concatenate([np.array([1, 2]), np.array([3])], 0); // [1, 2, 3]
 * ```
 */
export function concatenate(xs: readonly Tensor[], dim: number): Tensor {
  needTensors(xs, "the operands", "concatenate");
  return xs.length === 1 ? at(xs, 0) : bind1("concatenate", xs, { dim });
}

/** Tensors of one shape along a new first dim. */
export function stack(xs: readonly Tensor[]): Tensor {
  const rows = xs.map((x) => reshape(x, [1, ...x.shape]));
  return concatenate(rows, 0);
}

/** A slice of the given sizes that starts where int32 scalars say. */
export function dynamicSlice(x: Tensor, starts: readonly Tensor[], sizes: Shape): Tensor {
  return bind1("dynamicSlice", [x, ...starts], { sizes });
}

/** Writes `update` over x, starting where int32 scalars say. */
export function dynamicUpdateSlice(x: Tensor, update: Tensor, starts: readonly Tensor[]): Tensor {
  return bind1("dynamicUpdateSlice", [x, update, ...starts], none);
}

/**
 * Takes slices along a dim by index.
 *
 * @example
 * ```ts
 * lax.gather(np.array([10, 20, 30]), np.array([2, 0], "int32"), { dim: 0, batchDims: 0 }); // [30, 10]
 * ```
 */
export function gather(x: Tensor, indices: Tensor, params: OpParams["gather"]): Tensor {
  return bind1("gather", [x, indices], params);
}

/**
 * Adds or writes slices along a dim by index.
 *
 * @example
 * ```ts
 * const [ids, updates] = [np.array([2, 2], "int32"), np.array([1, 5])];
 * lax.scatter(np.zeros([3]), ids, updates, { dim: 0, batchDims: 0, combine: "add" }); // [0, 0, 6]
 * ```
 */
export function scatter(x: Tensor, indices: Tensor, updates: Tensor, params: OpParams["scatter"]): Tensor {
  return bind1("scatter", [x, indices, updates], params);
}

const reduction = (op: "reduceSum" | "reduceMax" | "reduceMin") => (x: Tensor, dims: readonly number[]) =>
  dims.length === 0 ? x : bind1(op, [x], { dims });

export const reduceSum = reduction("reduceSum");
export const reduceMax = reduction("reduceMax");
export const reduceMin = reduction("reduceMin");

/** The index of the first largest element along a dim. */
export function argmax(x: Tensor, dim: number): Tensor {
  return bind1("argmax", [x], { dim });
}

/** The index of the first smallest element along a dim. */
export function argmin(x: Tensor, dim: number): Tensor {
  return bind1("argmin", [x], { dim });
}

/** Running sums along a dim. */
export function cumsum(x: Tensor, dim: number, reversed = false): Tensor {
  return bind1("cumsum", [x], { dim, reverse: reversed });
}

/** Sorts along a dim by the first `numKeys` operands, carrying the others along. */
export function sort(xs: readonly Tensor[], dim: number, numKeys = 1): Tensor[] {
  return bind("sort", xs, { dim, numKeys });
}

/** The dims that `dotGeneral` pairs, and how exactly it multiplies. */
export interface DotDims {
  readonly lhsContract: readonly number[];
  readonly rhsContract: readonly number[];
  readonly lhsBatch?: readonly number[];
  readonly rhsBatch?: readonly number[];
  /** The minimum precision of float32 products; full float32 unless this or the engine allows less. */
  readonly precision?: Precision;
}

/** Sums of products over paired dims; of bools, whether there is a pair of trues. */
export function dotGeneral(x: Tensor, y: Tensor, dims: DotDims, dtype?: DType): Tensor {
  const own = given(x, "dotGeneral").dtype;
  const type = dtype ?? own;
  if (own === "bool" && given(y, "dotGeneral").dtype === "bool")
    return convert(dotGeneral(convert(x, "int32"), convert(y, "int32"), dims), type);
  if (isInteger(own) && isInteger(type) && limits(type).max < limits(own).max) {
    throw new DTypeError(
      `[dotGeneral] preferredElementType ${type} cannot hold products of ${own}: leave it out, and convert the result with astype("${type}")`,
    );
  }
  return bind1("dotGeneral", [x, y], { lhsBatch: [], rhsBatch: [], ...dims, dtype: type });
}

/** Products of consecutive groups of rows, of the sizes given. */
export function raggedDot(
  x: Tensor,
  y: Tensor,
  sizes: Tensor,
  ragged: RaggedDim,
  { dtype = x.dtype, precision }: { readonly dtype?: DType; readonly precision?: Precision } = {},
): Tensor {
  return bind1("raggedDot", [x, y, sizes], { ragged, dtype, ...(precision && { precision }) });
}

/** softmax(query · keyᵀ · scale) · value for every head, and the logarithms of the softmax's sums. */
export function attention(
  operands: readonly [query: Tensor, key: Tensor, value: Tensor, ...extras: Tensor[]],
  params: OpParams["attention"],
): Tensor[] {
  return bind("attention", operands, params);
}

/** Marks a value for remat policies. */
export function name(x: Tensor, label: string): Tensor {
  return bind1("name", [x], { name: label });
}

/** The same value, treated as a constant by differentiation. */
export function stopGradient(x: Tensor): Tensor {
  const { dtype } = given(x, "stopGradient");
  return isFloat(dtype) || isComplex(dtype) ? bind1("stopGradient", [x], none) : x;
}

/**
 * The same values, none of which is available before all are.
 *
 * @example
 * ```ts
 * lax.optimizationBarrier([np.array([1]), np.array([2])]); // [[1], [2]]
 * ```
 */
export function optimizationBarrier(xs: readonly Tensor[]): Tensor[] {
  return bind("optimizationBarrier", xs, none);
}

const reduceAcross = (op: "psum" | "pmax" | "pmin") => (x: Tensor, axes: readonly MeshAxis[]) =>
  axes.length === 0 ? x : bind1(op, [x], { axes });

export const psum = reduceAcross("psum");
export const pmax = reduceAcross("pmax");
export const pmin = reduceAcross("pmin");

/** Concatenates the devices' blocks along a dim. */
export function allGather(x: Tensor, axes: readonly MeshAxis[], dim: number): Tensor {
  return axes.length === 0 ? x : bind1("allGather", [x], { axes, dim });
}

/** Sums over the devices; each keeps its block of a dim. */
export function psumScatter(x: Tensor, axes: readonly MeshAxis[], dim: number): Tensor {
  return axes.length === 0 ? x : bind1("psumScatter", [x], { axes, dim });
}

/** Sends from device to device. */
export function ppermute(
  x: Tensor,
  axes: readonly MeshAxis[],
  permutation: readonly (readonly [number, number])[],
  others: Pick<OpParams["ppermute"], "unset"> = {},
): Tensor {
  return bind1("ppermute", [x], { axes, permutation, ...others });
}

/** Splits one dim among the devices and joins what they send along another. */
export function allToAll(x: Tensor, axes: readonly MeshAxis[], splitDim: number, concatDim: number): Tensor {
  return axes.length === 0 ? x : bind1("allToAll", [x], { axes, splitDim, concatDim });
}

/** Moves blocks of rows between devices: the tables say which. */
export function raggedAllToAll(
  [x, into, sends, receives]: readonly [x: Tensor, into: Tensor, sends: Tensor, receives: Tensor],
  axes: readonly MeshAxis[],
): Tensor {
  return bind1("raggedAllToAll", [x, into, sends, receives], { axes });
}

/** This device's position along axes. */
export function axisIndex(axes: readonly MeshAxis[]): Tensor {
  return bind1("axisIndex", [], { axes });
}

/** Asks the partitioner to split a value in a certain way. */
export function shardingConstraint(
  x: Tensor,
  params: OpParams["shardingConstraint"],
  target?: ExecutionTarget,
): Tensor {
  return bind1("shardingConstraint", [x], params, target);
}
