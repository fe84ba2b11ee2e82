import { describe, expect, test } from "vitest";
import { Random } from "../../../test/compiler/randomProgram.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Eqn } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { isView, type ViewOp } from "../lowering.js";
import { type DimList, expand, freshMap, type IndexMap } from "./dims.js";
import { backward, FusionGroup, forward } from "./group.js";

/** One view of a tensor of the given shape. */
function view<K extends OpName>(shape: readonly number[], op: K, params: OpParams[K]): Eqn<ViewOp> {
  const [eqn] = buildProgram([tensorType("float32", shape)], (emit, x) => emit(op, [x], params)).eqns;
  if (!eqn || !isView(eqn)) throw new Error(`${op} is no view`);
  return eqn;
}

/** The sizes of the loops that each dim runs along, `·` where it is open. */
const sizes = (map: IndexMap | undefined) =>
  map
    ?.map((list) =>
      list
        ? expand(list)
            .map((dim) => dim.size)
            .join("×") || "1"
        : "·",
    )
    .join(" ");

describe("along which loops a view runs", () => {
  test.each([
    ["a transpose takes them along", view([4, 6], "transpose", { permutation: [1, 0] }), "6 4"],
    [
      "a broadcast leaves new dims open",
      view([4], "broadcastInDim", { shape: [3, 4, 1], dims: [1] }),
      "· 4 1",
    ],
    ["a reshape splits a loop", view([4, 6], "reshape", { shape: [4, 2, 3] }), "4 2 3"],
    ["a reshape runs along several loops", view([4, 6], "reshape", { shape: [24] }), "4×6"],
    ["a reshape across loops splits them where it must", view([4, 6], "reshape", { shape: [8, 3] }), "4×2 3"],
    [
      "a slice is read from memory",
      view([4, 6], "slice", { starts: [1, 0], limits: [4, 6], strides: [1, 1] }),
      undefined,
    ],
  ] as const)("%s", (_, eqn, wanted) => {
    expect(sizes(forward(eqn, freshMap(at(eqn.ins, 0).type.shape)))).toBe(wanted);
  });

  test("going back gives the loops of the operand, for random transposes and reshapes", () => {
    const random = new Random(3);
    for (const _ of range(200)) {
      const shape = range(1 + random.below(4)).map(() => random.pick([1, 2, 3, 4, 6]));
      const order = range(shape.length).sort(() => random.next() - 0.5);
      const total = shape.reduce((n, d) => n * d, 1);
      const first = random.pick([1, 2, 3, 4, 6].filter((n) => total % n === 0));
      const eqn = random.chance(0.5)
        ? view(shape, "transpose", { permutation: order })
        : view(shape, "reshape", { shape: [first, total / first] });
      const source = freshMap(shape);
      const result = forward(eqn, source);
      if (!result) continue;
      const back = backward(
        eqn,
        result.map((list) => list ?? []),
      );
      const loops = source.flatMap(expand);
      const numbers = (map: readonly DimList[] | undefined) =>
        map?.map((list) => expand(list).map((dim) => loops.indexOf(dim)));
      expect(numbers(back)).toEqual(numbers(source));
    }
  });
});

describe("the loops of a result", () => {
  test("are those of its operands, and a broadcast fills what is left", () => {
    const [rows, columns] = freshMap([4, 6]);
    const group = new FusionGroup([...(rows ?? []), ...(columns ?? [])]);
    const map = group.unify([[rows, undefined]], [4, 6]);
    expect(map?.[0]?.[0]).toBe(rows?.[0]);
    expect(map?.[1]?.[0]).toBe(columns?.[0]);
  });

  test("are none where two dims of one value would run along the same loop", () => {
    const [rows] = freshMap([4]);
    const group = new FusionGroup([...(rows ?? [])]);
    expect(group.unify([[rows, rows]], [4, 4])).toBeUndefined();
  });

  test("are none where two operands run along different loops", () => {
    const [rows, others] = freshMap([4, 4]);
    const group = new FusionGroup([...(rows ?? []), ...(others ?? [])]);
    expect(group.unify([[rows], [others]], [4])).toBeUndefined();
  });
});
