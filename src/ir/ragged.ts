/** Ragged ops in terms of smaller ones, for types and devices that have none of their own. */
import { inferTypes } from "./infer.js";
import { axesSize } from "./mesh.js";
import type { OpName, OpParams } from "./ops.js";
import { type Eqn, makeEqn, newLiteral, newVar, type Program, type Var } from "./program.js";
import { at, range, type TensorType, tensorType } from "./shape.js";

/** Collects the equations of a program. */
function newBuilder() {
  const eqns: Eqn[] = [];
  const add = <K extends OpName>(op: K, ins: Eqn["ins"], params: OpParams[K]): Var => {
    const out = newVar(at(inferTypes(op, ins, params), 0));
    eqns.push(makeEqn<OpName>(op, ins, [out], params));
    return out;
  };
  return { eqns, add };
}

/**
 * What `raggedDot` computes, for operands of these types: every row is in the place of its group, so that one product
 * serves all groups. It does the work of all groups for every row.
 */
export function raggedDotProgram(params: OpParams["raggedDot"], types: readonly TensorType[]): Program {
  const inputs = types.map(({ dtype, shape }) => newVar(tensorType(dtype, shape)));
  const [x, y, sizes] = [at(inputs, 0), at(inputs, 1), at(inputs, 2)];
  const { eqns, add } = newBuilder();
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

/**
 * What `raggedAllToAll` computes, for operands of these types: every device gets the rows of all, and looks up those
 * that it receives.
 */
export function raggedAllToAllProgram(
  params: OpParams["raggedAllToAll"],
  types: readonly TensorType[],
): Program {
  const inputs = types.map(({ dtype, shape }) => newVar(tensorType(dtype, shape)));
  const [x, into, receives] = [at(inputs, 0), at(inputs, 1), at(inputs, 3)];
  const { eqns, add } = newBuilder();
  const [numRows = 0, ...row] = x.type.shape;
  if (numRows === 0) return { inputs, eqns, outputs: [into] };
  const numBlocks = at(receives.type.shape, 0);
  const shape = [at(into.type.shape, 0), numBlocks];
  const column = (i: number) => {
    const cut = { starts: [0, i], limits: [numBlocks, i + 1], strides: [1, 1] };
    const one = add("reshape", [add("slice", [receives], cut)], { shape: [numBlocks] });
    return add("broadcastInDim", [one], { shape, dims: [1] });
  };
  const behind = add("sub", [add("iota", [], { dtype: "int32", shape, dim: 0 }), column(0)], {});
  const isReceived = add(
    "and",
    [
      add("compare", [behind, newLiteral(0, "int32")], { direction: "ge" }),
      add("compare", [behind, column(1)], { direction: "lt" }),
    ],
    {},
  );
  const block = add("iota", [], { dtype: "int32", shape, dim: 1 });
  const sender = add("div", [block, newLiteral(numBlocks / axesSize(params.axes), "int32")], {});
  const first = add("add", [column(2), add("mul", [sender, newLiteral(numRows, "int32")], {})], {});
  const found = add("select", [isReceived, add("add", [behind, first], {}), newLiteral(-1, "int32")], {});
  const source = add("reduceMax", [found], { dims: [1] });
  const all = add("allGather", [x], { axes: params.axes, dim: 0 });
  const taken = add("gather", [all, source], { dim: 0, batchDims: 0 });
  const isTaken = add("compare", [source, newLiteral(0, "int32")], { direction: "ge" });
  const mask = add("broadcastInDim", [isTaken], { shape: [at(shape, 0), ...row], dims: [0] });
  return { inputs, eqns, outputs: [add("select", [mask, taken, into], {})] };
}
