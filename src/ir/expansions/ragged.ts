/** Ragged ops in terms of smaller ones, for types and devices that have none of their own. */
import { axesSize } from "../mesh.js";
import type { OpParams } from "../ops.js";
import { newLiteral, type Program, type Var } from "../program.js";
import { at, range, type TensorType, tensorType } from "../shape.js";
import { writeProgram } from "./programBuilder.js";

/** The types without the axes that values differ along: these programs run where there are none. */
const plain = (types: readonly TensorType[]) => types.map(({ dtype, shape }) => tensorType(dtype, shape));

/**
 * What `raggedDot` computes, for operands of these types: every row is in the place of its group, so that one product
 * serves all groups. It does the work of all groups for every row.
 */
export function raggedDotProgram(params: OpParams["raggedDot"], types: readonly TensorType[]): Program {
  return writeProgram(plain(types), (b, inputs) => {
    const [x, y, sizes] = [at(inputs, 0), at(inputs, 1), at(inputs, 2)];
    const rank = x.type.shape.length - 2;
    const batch = range(rank);
    // [batch…, rows, groups]
    const shape = [...x.type.shape.slice(0, -1), at(sizes.type.shape, rank)];
    const along = (value: Var) => b.broadcast(value, shape, [...batch, rank + 1]);
    const counts = b.add("max", [sizes, newLiteral(0, "int32")], {});
    const ends = b.add("cumsum", [counts], { dim: rank, reverse: false });
    const row = b.add("iota", [], { dtype: "int32", shape, dim: rank });
    const isAfterStart = b.add("compare", [row, along(b.add("sub", [ends, counts], {}))], {
      direction: "ge",
    });
    const isBeforeEnd = b.add("compare", [row, along(ends)], { direction: "lt" });
    const isOwn = b.add("and", [isAfterStart, isBeforeEnd], {});
    const placed = (value: Var): Var => {
      const full = [...shape, at(value.type.shape, rank + 1)];
      const mask = b.broadcast(isOwn, full, [...batch, rank, rank + 1]);
      const rows = b.broadcast(value, full, [...batch, rank, rank + 2]);
      return b.add("select", [mask, rows, newLiteral(0, value.type.dtype)], {});
    };
    const { ragged, ...how } = params;
    const groups = [...batch, rank + 1];
    if (ragged === "rows") {
      const contract = { lhsContract: [rank + 1, rank + 2], rhsContract: [rank, rank + 1] };
      return [b.add("dotGeneral", [placed(x), y], { ...how, ...contract, lhsBatch: batch, rhsBatch: batch })];
    }
    // Both factors are 0 outside of a group, so that a NaN stays in its group.
    const dims = { lhsContract: [rank], rhsContract: [rank], lhsBatch: groups, rhsBatch: groups };
    return [b.add("dotGeneral", [placed(x), placed(y)], { ...how, ...dims })];
  });
}

/**
 * What `raggedAllToAll` computes, for operands of these types: every device gets the rows of all, and looks up those
 * that it receives.
 */
export function raggedAllToAllProgram(
  params: OpParams["raggedAllToAll"],
  types: readonly TensorType[],
): Program {
  return writeProgram(plain(types), (b, inputs) => {
    const [x, into, receives] = [at(inputs, 0), at(inputs, 1), at(inputs, 3)];
    const [numRows = 0, ...row] = x.type.shape;
    if (numRows === 0) return [into];
    const numBlocks = at(receives.type.shape, 0);
    const shape = [at(into.type.shape, 0), numBlocks];
    const column = (i: number) => b.broadcast(b.reshape(b.slice(receives, 1, i, 1), [numBlocks]), shape, [1]);
    const behind = b.add("sub", [b.add("iota", [], { dtype: "int32", shape, dim: 0 }), column(0)], {});
    const isAfterStart = b.add("compare", [behind, newLiteral(0, "int32")], { direction: "ge" });
    const isBeforeEnd = b.add("compare", [behind, column(1)], { direction: "lt" });
    const isReceived = b.add("and", [isAfterStart, isBeforeEnd], {});
    const block = b.add("iota", [], { dtype: "int32", shape, dim: 1 });
    const sender = b.add("div", [block, newLiteral(numBlocks / axesSize(params.axes), "int32")], {});
    const first = b.add("add", [column(2), b.add("mul", [sender, newLiteral(numRows, "int32")], {})], {});
    const found = b.add(
      "select",
      [isReceived, b.add("add", [behind, first], {}), newLiteral(-1, "int32")],
      {},
    );
    const source = b.add("reduceMax", [found], { dims: [1] });
    const all = b.add("allGather", [x], { axes: params.axes, dim: 0 });
    const taken = b.add("gather", [all, source], { dim: 0, batchDims: 0 });
    const isTaken = b.add("compare", [source, newLiteral(0, "int32")], { direction: "ge" });
    const mask = b.broadcast(isTaken, [at(shape, 0), ...row], [0]);
    return [b.add("select", [mask, taken, into], {})];
  });
}
