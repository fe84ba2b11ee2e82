import type { OpParams } from "../../../ir/ops.js";
import type { EqnParts } from "../../../ir/program.js";
import { at, range, sizeOf, type TensorType, tensorType } from "../../../ir/shape.js";
import { arrayText, listText } from "./text.js";
import type { HloValue, Rule, Writer } from "./writer.js";

/** Which dims of x `[batch…, pre…, n, post…]`, of the indices and of the result correspond. */
interface Layout {
  /** The dims of the result that are dims of x. */
  readonly kept: readonly number[];
  readonly batch: readonly number[];
  readonly dim: number;
  readonly sliceSizes: readonly number[];
  readonly indexVector: number;
}

function layoutOf(x: TensorType, indices: TensorType, { dim, batchDims }: OpParams["gather"]): Layout {
  const numPre = dim - batchDims;
  const numRest = indices.shape.length - batchDims;
  const numPost = x.shape.length - dim - 1;
  return {
    kept: [
      ...range(numPre).map((d) => batchDims + d),
      ...range(numPost).map((d) => batchDims + numPre + numRest + d),
    ],
    batch: range(batchDims),
    dim,
    sliceSizes: x.shape.map((n, d) => (d < batchDims || d === dim ? 1 : n)),
    indexVector: indices.shape.length,
  };
}

/**
 * Gathers slices of x; the op itself clamps the indices. XLA makes a slice of a gather of one, and may forget to clamp
 * its start if x is a slice, too.
 */
export function gatherValue(
  x: HloValue,
  given: HloValue,
  params: OpParams["gather"],
  type: TensorType,
  write: Writer,
): HloValue {
  if (sizeOf(type.shape) === 0) return write.splat(0, type.dtype, type.shape);
  const isOne = sizeOf(given.type.shape) === 1;
  const indices = isOne ? write.clamped(given, at(x.type.shape, params.dim) - 1) : given;
  const { kept, batch, dim, sliceSizes, indexVector } = layoutOf(x.type, indices.type, params);
  const numbers = [
    `offset_dims = ${listText(kept)}`,
    `collapsed_slice_dims = [${dim}]`,
    `operand_batching_dims = ${listText(batch)}`,
    `start_indices_batching_dims = ${listText(batch)}`,
    `start_index_map = [${dim}]`,
    `index_vector_dim = ${indexVector}`,
  ];
  const attributes = [
    `dimension_numbers = #stablehlo.gather<${numbers.join(", ")}>`,
    "indices_are_sorted = false",
    `slice_sizes = ${arrayText(sliceSizes)}`,
  ];
  return write.listed("gather", [x, indices], attributes, type);
}

/** Combines updates into x; the op itself drops those whose index is out of bounds. */
function scatterValue(
  [x, indices, updates]: readonly [HloValue, HloValue, HloValue],
  params: OpParams["gather"],
  combine: "add" | "maximum",
  write: Writer,
): HloValue {
  const { kept, batch, dim, indexVector } = layoutOf(x.type, indices.type, params);
  const numbers = [
    `update_window_dims = ${listText(kept)}`,
    `inserted_window_dims = [${dim}]`,
    `input_batching_dims = ${listText(batch)}`,
    `scatter_indices_batching_dims = ${listText(batch)}`,
    `scatter_dims_to_operand_dims = [${dim}]`,
    `index_vector_dim = ${indexVector}`,
  ];
  const attributes = [
    `scatter_dimension_numbers = #stablehlo.scatter<${numbers.join(", ")}>`,
    "indices_are_sorted = false",
    "unique_indices = false",
  ];
  return write.combined("scatter", [x, indices, updates], attributes, `stablehlo.${combine}`, x.type);
}

/**
 * The last update of every element wins. XLA applies updates of one element in any order, so the number of the last
 * update is found first, as a maximum, which does not depend on the order, and then that update is gathered.
 */
function scatterLast(
  [x, indices, updates]: readonly [HloValue, HloValue, HloValue],
  { dim, batchDims }: OpParams["gather"],
  write: Writer,
): HloValue {
  const batch = x.type.shape.slice(0, batchDims);
  const rest = indices.type.shape.slice(batchDims);
  const count = sizeOf(rest);
  const flatIndices = write.reshape(indices, [...batch, count]);
  const numbers = write.iota(batchDims, tensorType("int32", [...batch, count]));
  const none = write.splat(-1, "int32", [...batch, at(x.type.shape, dim)]);
  const rowDims = { dim: batchDims, batchDims };
  const winners = scatterValue([none, flatIndices, numbers], rowDims, "maximum", write);
  const pre = x.type.shape.slice(batchDims, dim);
  const post = x.type.shape.slice(dim + 1);
  const flatUpdates = write.reshape(updates, [...batch, ...pre, count, ...post]);
  const fetched = gatherValue(flatUpdates, winners, { dim, batchDims }, x.type, write);
  const isWritten = write.compare("GE", winners, write.splat(0, "int32", winners.type.shape));
  const everywhere = write.mapped(
    "stablehlo.broadcast_in_dim",
    [isWritten],
    `, dims = ${listText([...range(batchDims), dim])}`,
    tensorType("bool", x.type.shape),
  );
  return write.select(everywhere, fetched, x);
}

/**
 * One index and what to add there, both in bounds: XLA makes a slice of it, whose start it may forget to clamp if x is
 * a slice, too. Where the index is out of bounds, what is added changes nothing.
 */
function inBounds(
  [x, index, update]: readonly [HloValue, HloValue, HloValue],
  { dim }: OpParams["gather"],
  write: Writer,
): [HloValue, HloValue] {
  const clamped = write.clamped(index, at(x.type.shape, dim) - 1);
  const isInside = write.compare("EQ", index, clamped);
  const everywhere = write.mapped(
    "stablehlo.broadcast_in_dim",
    [write.reshape(isInside, [])],
    ", dims = []",
    tensorType("bool", update.type.shape),
  );
  const nothing = write.splat(-0, update.type.dtype, update.type.shape);
  return [clamped, write.select(everywhere, update, nothing)];
}

const scatter = (eqn: EqnParts<"scatter">, write: Writer): HloValue => {
  const [x, indices, updates] = eqn.ins.map((atom) => write.read(atom));
  if (!x || !indices || !updates || sizeOf(updates.type.shape) === 0) return write.read(at(eqn.ins, 0));
  const { combine, ...params } = eqn.params;
  if (combine === "set") return scatterLast([x, indices, updates], params, write);
  if (sizeOf(indices.type.shape) !== 1) return scatterValue([x, indices, updates], params, "add", write);
  return scatterValue([x, ...inBounds([x, indices, updates], params, write)], params, "add", write);
};

/** The lowering rules of ops that access elements by index. */
export const indexingRules: { readonly [K in "gather" | "scatter"]: Rule<K> } = {
  gather: ({ ins, outs, params }, write) => {
    const [x, indices] = [write.read(at(ins, 0)), write.read(at(ins, 1))];
    return [gatherValue(x, indices, params, at(outs, 0).type, write)];
  },
  scatter: (eqn, write) => [scatter(eqn, write)],
};
