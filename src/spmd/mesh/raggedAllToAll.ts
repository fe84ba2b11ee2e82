import { ShapeError } from "../../ir/errors.js";
import { joinAxes, missingAxes, varyingAxes } from "../../ir/infer/varying.js";
import { axesSize } from "../../ir/mesh.js";
import { at, formatType } from "../../ir/shape.js";
import { checkedAxes, lookUpAxes } from "../../trace/axes.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import type { AxisNames } from "./collectives.js";

/**
 * Sends blocks of rows of different sizes between devices, as `jax.lax.ragged_all_to_all`: `sendSizes[j]` rows of the
 * operand from row `inputOffsets[j]` on go to device j, to the rows of its output from `outputOffsets[j]` on. Rows of
 * the output that nobody sends stay. With lists of n numbers for each device there are n blocks between any two. Blocks
 * must not overlap. Backward, cotangents go back the same way.
 *
 * @param operand [rows, …]
 * @param output [rows, …]: the rows that stay where none arrive
 * @param inputOffsets int32 [devices], like all the others
 * @param recvSizes the number of rows that come from each device, which is what these send
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P("data") };
 * const int32 = (...values: number[]) => np.array(values, "int32");
 * const swap = shardMap((x: Tensor) => {
 *   const [first, one, mine] = [int32(0, 1), int32(1, 1), lax.axisIndex("data")];
 *   return lax.raggedAllToAll(x, np.zerosLike(x), first, one, np.stack([mine, mine]), one, "data");
 * }, specs);
 * swap(np.array([1, 2, 3, 4])); // [1, 3, 2, 4]
 * ```
 */
export function raggedAllToAll(
  operand: Tensor,
  output: Tensor,
  inputOffsets: Tensor,
  sendSizes: Tensor,
  outputOffsets: Tensor,
  recvSizes: Tensor,
  axes: AxisNames,
): Tensor {
  const found = lookUpAxes(axes, "raggedAllToAll");
  const size = axesSize(found);
  const lists = { inputOffsets, sendSizes, outputOffsets, recvSizes };
  needTensor(operand, "operand", "raggedAllToAll");
  needTensor(output, "output", "raggedAllToAll");
  for (const [name, list] of Object.entries(lists)) {
    needTensor(list, name, "raggedAllToAll");
    const fits = list.dtype === "int32" && list.ndim === 1 && at(list.shape, 0) % size === 0;
    if (fits && list.shape[0] === inputOffsets.shape[0]) continue;
    throw new ShapeError(
      `[raggedAllToAll] ${name} must be int32[${size}], or of one multiple of ${size}: as many numbers for every device along the axes; got ${formatType(list.type)}`,
    );
  }
  return tracedAsOneCall(() => {
    const columns = [inputOffsets, sendSizes, outputOffsets].map((list) =>
      ops.reshape(list, [at(list.shape, 0), 1]),
    );
    const sends = ops.pvary(ops.concatenate(columns, 1), checkedAxes(found));
    // What the others send here, seen from here: their outputs are the own one.
    const receives = ops.reverse(ops.allToAll(sends, found, 0, 0), [1]);
    return exchangeRows(operand, output, { sends, receives }, found);
  });
}

/** Which rows devices send each other: int32 `[blocks, 3]`, the first row here, the number of rows, the first there. */
export interface RowExchange {
  readonly sends: Tensor;
  readonly receives: Tensor;
}

/** {@link raggedAllToAll} by tables that are known on both sides. */
export function exchangeRows(
  operand: Tensor,
  output: Tensor,
  { sends, receives }: RowExchange,
  axes: ReturnType<typeof lookUpAxes>,
): Tensor {
  const all = joinAxes([checkedAxes(axes), varyingAxes(operand.type), varyingAxes(output.type)]);
  const marked = (x: Tensor) => ops.pvary(x, missingAxes(varyingAxes(x.type), all));
  return ops.raggedAllToAll([marked(operand), marked(output), sends, receives], axes);
}
