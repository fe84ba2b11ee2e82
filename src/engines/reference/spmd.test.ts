import { describe, expect, test } from "vitest";
import { applyOp, buildProgram } from "../../../test/support/interpreting.js";
import { AxisError } from "../../ir/errors.js";
import type { MeshAxis, MeshShape } from "../../ir/mesh.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { hostTensor, numbersOf } from "./hostTensor.js";

const a: MeshAxis = { name: "a", size: 2 };
const b: MeshAxis = { name: "b", size: 3 };
const mesh: MeshShape = { axes: [a, b] };
const whole = hostTensor("float32", [4, 6], range(24));
const block = tensorType("float32", [2, 2]);

describe("shardMap", () => {
  test("splits its operands and puts the results together", () => {
    const body = buildProgram([block], (emit, x) => emit("neg", [x], {}));
    const spec = [["a"], ["b"]];
    const params = { mesh, manual: ["a", "b"], checked: false, inSpecs: [spec], outSpecs: [spec], body };
    const [y] = applyOp("shardMap", [whole], params);
    expect(y?.type.shape).toEqual([4, 6]);
    expect(y && numbersOf(y)).toEqual(range(24).map((i) => -i));
  });

  test("lets the body see its block and the other devices", () => {
    const body = buildProgram([block], (emit, x) => emit("psum", [x], { axes: [b] }));
    const params = {
      mesh,
      manual: ["a", "b"],
      checked: false,
      inSpecs: [[["a"], ["b"]]],
      outSpecs: [[["a"], []]],
      body,
    };
    const [y] = applyOp("shardMap", [whole], params);
    expect(y?.type.shape).toEqual([4, 2]);
    expect(y && numbersOf(y)).toEqual([6, 9, 24, 27, 42, 45, 60, 63]);
  });

  test("takes the first device's block along axes that a result's spec leaves out", () => {
    const body = buildProgram([], (emit) => {
      const index = emit("axisIndex", [], { axes: [a, b] });
      return [...emit("broadcastInDim", index, { shape: [1], dims: [] }), at(index, 0)];
    });
    const outSpecs = [[["b"]], []];
    const outs = applyOp("shardMap", [], {
      mesh,
      manual: ["a", "b"],
      checked: false,
      inSpecs: [],
      outSpecs,
      body,
    });
    expect(outs.map(numbersOf)).toEqual([[0, 1, 2], [0]]);
  });

  test("splits one dim over several axes in the order of the spec", () => {
    const body = buildProgram([tensorType("int32", [1])], (emit, x) => {
      const index = emit("axisIndex", [], { axes: [a, b] });
      const [place = x] = emit("reshape", index, { shape: [1] });
      return [x, place];
    });
    const spec = [["b", "a"]];
    const params = {
      mesh,
      manual: ["a", "b"],
      checked: false,
      inSpecs: [spec],
      outSpecs: [spec, spec],
      body,
    };
    const outs = applyOp("shardMap", [hostTensor("int32", [6], range(6))], params);
    expect(outs.map(numbersOf)).toEqual([
      [0, 1, 2, 3, 4, 5],
      [0, 3, 1, 4, 2, 5],
    ]);
  });

  test("over some axes of the mesh leaves the others alone", () => {
    const body = buildProgram([tensorType("float32", [2, 6])], (emit, x) => emit("psum", [x], { axes: [a] }));
    const params = {
      mesh,
      manual: ["a"],
      checked: false,
      inSpecs: [[["a"], []]],
      outSpecs: [[[], []]],
      body,
    };
    const [y] = applyOp("shardMap", [whole], params);
    expect(y?.type.shape).toEqual([2, 6]);
    expect(y && numbersOf(y)).toEqual(range(12).map((i) => 2 * i + 12));
  });

  test("inside another one knows the axes of both", () => {
    const inner = buildProgram([block], (emit, x) => {
      const [alongB = x] = emit("psum", [x], { axes: [b] });
      return [...emit("psum", [alongB], { axes: [a] }), ...emit("axisIndex", [], { axes: [b, a] })];
    });
    const outer = buildProgram([tensorType("float32", [2, 6])], (emit, x) => {
      const params = {
        mesh,
        manual: ["b"],
        checked: false,
        inSpecs: [[[], ["b"]]],
        outSpecs: [[[], []], []],
        body: inner,
      };
      const [sum = x, index = x] = emit("shardMap", [x], params);
      return [sum, ...emit("reshape", [index], { shape: [1] })];
    });
    const params = {
      mesh,
      manual: ["a"],
      checked: false,
      inSpecs: [[["a"], []]],
      outSpecs: [[[], []], [["a"]]],
      body: outer,
    };
    const [sum, index] = applyOp("shardMap", [whole], params);
    // Rows 0 and 2, and columns 0, 2 and 4, meet in the first element.
    expect(sum && numbersOf(sum)).toEqual([48, 54, 84, 90]);
    expect(index && numbersOf(index)).toEqual([0, 1]);
  });

  test("inside another one over many devices gives each its own results", () => {
    const [four, two]: MeshAxis[] = [
      { name: "four", size: 4 },
      { name: "two", size: 2 },
    ];
    if (!four || !two) throw new Error("two axes");
    const both: MeshShape = { axes: [four, two] };
    const place = buildProgram([], (emit) => {
      const index = emit("axisIndex", [], { axes: [four, two] });
      return emit("reshape", index, { shape: [1] });
    });
    const mapped = (manual: string, body: typeof place) => ({
      mesh: both,
      manual: [manual],
      checked: false,
      inSpecs: [],
      outSpecs: [[[manual]]],
      body,
    });
    const outer = buildProgram([], (emit) => emit("shardMap", [], mapped("two", place)));
    const [y] = applyOp("shardMap", [], mapped("four", outer));
    expect(y && numbersOf(y)).toEqual(range(8));
  });

  test("inside another one over the same axis is refused", () => {
    const inner = buildProgram([tensorType("float32", [1, 6])], (_emit, x) => [x]);
    const specs = { inSpecs: [[["a"], []]], outSpecs: [[["a"], []]] };
    const outer = buildProgram([tensorType("float32", [2, 6])], (emit, x) =>
      emit("shardMap", [x], { mesh, manual: ["a"], checked: false, ...specs, body: inner }),
    );
    const run = () =>
      applyOp("shardMap", [whole], { mesh, manual: ["a"], checked: false, ...specs, body: outer });
    expect(run).toThrow(AxisError);
    expect(run).toThrow(/axis "a" is already mapped/);
  });
});

test("shardingConstraint changes no value", () => {
  const spec = [["a"], "unconstrained"] as const;
  expect(applyOp("shardingConstraint", [whole], { mesh, spec })).toEqual([whole]);
});
