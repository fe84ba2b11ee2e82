/**
 * Ragged products in terms of smaller ops: every row is in the place of its group, so that one product serves all
 * groups. This does the work of all groups for every row, and is for types and devices without a product of groups.
 */
import { inferTypes } from "./infer.js";
import type { OpName, OpParams } from "./ops.js";
import { type Eqn, makeEqn, newLiteral, newVar, type Program, type Var } from "./program.js";
import { at, range, type TensorType, tensorType } from "./shape.js";

/** What `raggedDot` computes, for operands of these types. */
export function raggedDotProgram(params: OpParams["raggedDot"], types: readonly TensorType[]): Program {
  const inputs = types.map(({ dtype, shape }) => newVar(tensorType(dtype, shape)));
  const [x, y, sizes] = [at(inputs, 0), at(inputs, 1), at(inputs, 2)];
  const eqns: Eqn[] = [];
  const add = <K extends OpName>(op: K, ins: Eqn["ins"], of: OpParams[K]): Var => {
    const out = newVar(at(inferTypes(op, ins, of), 0));
    eqns.push(makeEqn<OpName>(op, ins, [out], of));
    return out;
  };
  const rank = x.type.shape.length - 2;
  const batch = range(rank);
  // [batch…, rows, groups]
  const shape = [...x.type.shape.slice(0, -1), at(sizes.type.shape, rank)];
  const along = (value: Var) => add("broadcastInDim", [value], { shape, dims: [...batch, rank + 1] });
  const counts = add("max", [sizes, newLiteral(0, "int32")], {});
  const ends = add("cumsum", [counts], { dim: rank, reverse: false });
  const row = add("iota", [], { dtype: "int32", shape, dim: rank });
  const isAfterStart = add("compare", [row, along(add("sub", [ends, counts], {}))], { direction: "ge" });
  const isBeforeEnd = add("compare", [row, along(ends)], { direction: "lt" });
  const isOwn = add("and", [isAfterStart, isBeforeEnd], {});
  const placed = (value: Var): Var => {
    const full = [...shape, at(value.type.shape, rank + 1)];
    const zero = newLiteral(0, value.type.dtype);
    const mask = add("broadcastInDim", [isOwn], { shape: full, dims: [...batch, rank, rank + 1] });
    return add(
      "select",
      [mask, add("broadcastInDim", [value], { shape: full, dims: [...batch, rank, rank + 2] }), zero],
      {},
    );
  };
  const { ragged, ...how } = params;
  const groups = [...batch, rank + 1];
  const result =
    ragged === "rows"
      ? add("dotGeneral", [placed(x), y], {
          ...how,
          lhsContract: [rank + 1, rank + 2],
          rhsContract: [rank, rank + 1],
          lhsBatch: batch,
          rhsBatch: batch,
        })
      : // Both factors are 0 outside of a group, so that a NaN stays in its group.
        add("dotGeneral", [placed(x), placed(y)], {
          ...how,
          lhsContract: [rank],
          rhsContract: [rank],
          lhsBatch: groups,
          rhsBatch: groups,
        });
  return { inputs, eqns, outputs: [result] };
}
