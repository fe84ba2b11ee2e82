import { describe, expect, test } from "vitest";
import { expectSharded, randomInputs } from "../../../../test/support/shardedPrograms.js";
import { hostTensor } from "../../../engines/reference/hostTensor.js";
import { lax, makeProgram, np, type Tensor } from "../../../index.js";
import type { MeshShape } from "../../../ir/mesh.js";
import { range } from "../../../ir/shape.js";

const mesh: MeshShape = { axes: [{ name: "d", size: 4 }] };
const rows = [["d"], []] as const;
const whole = [[], []] as const;
const x = np.zeros([8, 2]);
const start = np.zeros([], "int32");
const [cache] = randomInputs([x.type], 3);

/** Every start, also those that are clamped. */
const starts = range(14).map((i) => i - 3);

describe("windows of a split dim", () => {
  test.each([1, 2, 3])("%d rows are read wherever they lie, and nothing is gathered", (size) => {
    const read = (a: Tensor, i: Tensor) => lax.dynamicSlice(a, [i, 0], [size, 2]);
    const program = makeProgram(read)(x, start);
    for (const i of starts) {
      const { gathers } = expectSharded(program, mesh, { inSpecs: [rows, []], outSpecs: [whole] }, [
        ...(cache ? [cache] : []),
        hostTensor("int32", [], [i]),
      ]);
      expect(gathers).toEqual([]);
    }
  });

  test.each([1, 2, 3, 7])("%d rows are written wherever they lie, and nothing is sent", (size) => {
    const write = (a: Tensor, update: Tensor, i: Tensor) => lax.dynamicUpdateSlice(a, update, [i, 0]);
    const update = np.zeros([size, 2]);
    const program = makeProgram(write)(x, update, start);
    const [news] = randomInputs([update.type], 4);
    for (const i of starts) {
      const { program: local } = expectSharded(
        program,
        mesh,
        { inSpecs: [rows, whole, []], outSpecs: [rows] },
        [...(cache && news ? [cache, news] : []), hostTensor("int32", [], [i])],
      );
      expect(local.eqns.filter(({ params }) => "axes" in params).map(({ op }) => op)).toEqual(["axisIndex"]);
    }
  });
});

describe("the index of the extreme along a split dim", () => {
  const lists: readonly (readonly [string, readonly number[]])[] = [
    ["one largest and one smallest", [0, 3, 1, -4, 2, 1, 0, 1]],
    ["ties on several devices", [1, 5, 0, 5, 0, 5, 0, 1]],
    ["zeros of both signs", [-0, 0, 0, -0, 0, 0, -0, 0]],
    ["a NaN", [1, 5, 0, 7, Number.NaN, 5, 0, Number.NaN]],
    ["infinities", [1, Infinity, 0, -Infinity, Infinity, -Infinity, 0, 2]],
  ];
  test.each(lists)("is that of the first among %s", (_, values) => {
    for (const fn of [np.argmax, np.argmin]) {
      const program = makeProgram((a: Tensor) => fn(a, 0))(np.zeros([8]));
      const { gathers } = expectSharded(program, mesh, { inSpecs: [[["d"]]] }, [
        hostTensor("float32", [8], [...values]),
      ]);
      expect(gathers).toEqual([]);
    }
  });
});
