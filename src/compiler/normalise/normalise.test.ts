import { describe, expect, test } from "vitest";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { text } from "../../../test/support/compilerText.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import { differenceBetween } from "../../../test/support/sameValues.js";
import { type Eqn, innerPrograms, newLiteral, type Program, type Var } from "../../ir/program.js";
import { at, formatType, range, sizeOf, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { normalise } from "./normalise.js";

const mesh = {
  axes: [
    { name: "x", size: 2 },
    { name: "y", size: 2 },
  ],
};
const f32 = (...shape: number[]) => tensorType("float32", shape);
const dot = { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [] };

/** Normalises, checks that the values stay, and prints both programs. */
function normalised(program: Program): { readonly before: string; readonly after: string } {
  const result = verify(normalise(program), "lowered");
  expect(differenceBetween(program, result, mesh, 5)).toBeUndefined();
  return { before: printProgram(program), after: printProgram(result) };
}

describe("what normalise rewrites", () => {
  test("what only names, stops or orders values disappears, and so does what changes nothing", () => {
    const program = buildProgram([f32(2, 3)], (emit, x) => {
      const still = at(emit("stopGradient", [x], {}), 0);
      const named = at(emit("name", [still], { name: "kept" }), 0);
      const ordered = at(emit("optimizationBarrier", [named], {}), 0);
      const same = at(emit("reshape", [ordered], { shape: [2, 3] }), 0);
      const turned = at(emit("transpose", [same], { permutation: [0, 1] }), 0);
      return emit("exp", [turned], {});
    });
    expect(normalised(program)).toEqual({
      before: text`
        (%0:f32[2,3]) {
          %1:f32[2,3] = stopGradient %0
          %2:f32[2,3] = name %1 {name: "kept"}
          %3:f32[2,3] = optimizationBarrier %2
          %4:f32[2,3] = reshape %3 {shape: [2,3]}
          %5:f32[2,3] = transpose %4 {permutation: [0,1]}
          %6:f32[2,3] = exp %5
          return %6
        }`,
      after: text`
        (%0:f32[2,3]) {
          %1:f32[2,3] = exp %0
          return %1
        }`,
    });
  });

  test("a clamp is a max and a min", () => {
    const program = buildProgram([f32(3)], (emit, x) =>
      emit("clamp", [newLiteral(0, "float32"), x, newLiteral(6, "float32")], {}),
    );
    expect(normalised(program)).toEqual({
      before: text`
        (%0:f32[3]) {
          %1:f32[3] = clamp 0.0 %0 6.0
          return %1
        }`,
      after: text`
        (%0:f32[3]) {
          %1:f32[3] = max %0 0.0
          %2:f32[3] = min %1 6.0
          return %2
        }`,
    });
  });

  test("16-bit floats are summed and multiplied in float32", () => {
    const bf16 = (...shape: number[]) => tensorType("bfloat16", shape);
    const program = buildProgram([bf16(2, 3), bf16(3, 4)], (emit, x, y) => {
      const [z] = emit("dotGeneral", [x, y], { ...dot, dtype: "bfloat16" });
      return z ? emit("reduceSum", [z], { dims: [1] }) : [];
    });
    expect(normalised(program).after).toBe(text`
      (%0:bf16[2,3], %1:bf16[3,4]) {
        %2:f32[2,3] = convert %0 {dtype: float32}
        %3:f32[3,4] = convert %1 {dtype: float32}
        %4:f32[2,4] = dotGeneral %2 %3 {contract: [1]x[0]}
        %5:bf16[2,4] = convert %4 {dtype: bfloat16}
        %6:f32[2,4] = convert %5 {dtype: float32}
        %7:f32[2] = reduceSum %6 {dims: [1]}
        %8:bf16[2] = convert %7 {dtype: bfloat16}
        return %8
      }`);
  });

  test("a matrix product of integers is a product and a sum", () => {
    const int = (...shape: number[]) => tensorType("int32", shape);
    const program = buildProgram([int(2, 3), int(3, 4)], (emit, x, y) =>
      emit("dotGeneral", [x, y], { ...dot, dtype: "int32" }),
    );
    expect(normalised(program).after).toBe(text`
      (%0:i32[2,3], %1:i32[3,4]) {
        %2:i32[2,4,3] = broadcastInDim %0 {shape: [2,4,3], dims: [0,2]}
        %3:i32[4,3] = transpose %1 {permutation: [1,0]}
        %4:i32[2,4,3] = broadcastInDim %3 {shape: [2,4,3], dims: [1,2]}
        %5:i32[2,4,3] = mul %2 %4
        %6:i32[2,4] = reduceSum %5 {dims: [2]}
        return %6
      }`);
  });

  test("an all-to-all exchanges along dim 0", () => {
    const axes = mesh.axes.slice(0, 1);
    const program = buildProgram([f32(3, 4)], (emit, x) =>
      emit("allToAll", [x], { axes, splitDim: 1, concatDim: 0 }),
    );
    const { after } = normalised(program);
    expect(after.split("\n").filter((line) => line.includes("allToAll"))).toHaveLength(1);
    expect(after).toMatch(/%3:f32\[2,3,2\] = allToAll %2 \{.*splitDim: 0, concatDim: 0\}/);
  });

  test("what is made of no elements is a constant, and what nobody needs is gone unless other devices wait for it", () => {
    const axes = mesh.axes.slice(0, 1);
    const program = buildProgram([f32(2, 0), f32(2)], (emit, x, y) => {
      emit("exp", [y], {});
      emit("psum", [y], { axes });
      return emit("reduceMax", [x], { dims: [1] });
    });
    const { after } = normalised(program);
    expect(after).not.toContain("exp");
    expect(after).toContain("psum");
    expect(after).toContain("%3:f32[2] = broadcastInDim -Infinity {shape: [2], dims: []}");
  });
});

/** What is wrong with an equation of a normalised program. */
function complaint(eqn: Eqn): string | undefined {
  const [x] = eqn.ins;
  const is16Bit = x?.type.dtype === "bfloat16" || x?.type.dtype === "float16";
  switch (eqn.op) {
    case "remat":
    case "customVjp":
    case "name":
    case "stopGradient":
    case "optimizationBarrier":
    case "clamp":
      return `${eqn.op} is left`;
    case "reduceSum":
    case "reduceMax":
    case "reduceMin":
    case "cumsum":
    case "dotGeneral":
      if (eqn.op === "dotGeneral" && !x?.type.dtype.startsWith("float")) return "a product of integers";
      return is16Bit ? `${eqn.op} of 16-bit floats` : undefined;
    case "scatter":
      return is16Bit && eqn.params.combine === "add" ? "a sum of 16-bit floats" : undefined;
    case "allToAll":
      return eqn.params.splitDim + eqn.params.concatDim > 0 ? "an allToAll along another dim" : undefined;
    case "convert":
      return x?.type.dtype === eqn.params.dtype ? "a convert to the same type" : undefined;
    case "transpose":
      return eqn.params.permutation.every((p, i) => p === i) ? "a transpose that moves nothing" : undefined;
    case "reshape":
      return x?.type.shape.join() === eqn.params.shape.join() ? "a reshape to the same shape" : undefined;
    default:
      return undefined;
  }
}

function complaints(program: Program): string[] {
  return program.eqns.flatMap((eqn) => [
    ...[complaint(eqn)].filter((text) => text !== undefined),
    ...innerPrograms(eqn).flatMap(([, body]) => complaints(body)),
  ]);
}

/** The collectives of a program in order, those of bodies included. */
function collectives(program: Program): string[] {
  return program.eqns.flatMap((eqn) => [
    ...("axes" in eqn.params && eqn.op !== "axisIndex" ? [eqn.op] : []),
    ...innerPrograms(eqn).flatMap(([, body]) => collectives(body)),
  ]);
}

describe("random programs, normalised", () => {
  const cases = range(150).map((seed) => {
    const program = randomProgram({ seed: 7000 + seed, numEqns: 4 + (seed % 20), axes: mesh.axes });
    return { seed, program, result: normalise(program) };
  });

  test("speak only the small language, and are well formed", () => {
    for (const { seed, result } of cases) {
      verify(result, "lowered");
      expect(complaints(result), `seed ${seed}`).toEqual([]);
    }
  });

  test("have the same inputs, the same types of outputs and the same collectives in the same order", () => {
    const types = (p: Program) => [p.inputs, p.outputs].map((list) => list.map((v) => formatType(v.type)));
    for (const { seed, program, result } of cases) {
      expect(types(result), `seed ${seed}`).toEqual(types(program));
      expect(collectives(result), `seed ${seed}`).toEqual(collectives(program));
    }
  });

  test("have the same values", () => {
    for (const { seed, program, result } of cases)
      expect(differenceBetween(program, result, mesh, seed), `seed ${seed}`).toBeUndefined();
  });
});

describe("products of one row", () => {
  const [none, first, second] = [[], [0], [1]];
  test.each([
    ["a row and a matrix", [1, 128], [128, 130], [[1], [0], none, none], "float32"],
    ["a matrix and a column", [130, 128], [128, 1], [[1], [0], none, none], "float32"],
    ["a row and a transposed matrix", [128], [130, 128], [[0], [1], none, none], "bfloat16"],
    ["two contracted dims", [1, 16, 8], [8, 16, 130], [[1, 2], [1, 0], none, none], "float32"],
    ["a row and a large matrix", [1, 256], [256, 10, 30], [[1], [0], none, none], "float32"],
    ["a large matrix and two dims", [16, 16, 300], [16, 16], [[1, 0], [1, 0], none, none], "bfloat16"],
    ["large matrices between their rows", [2, 256], [256, 2, 200], [[1], [0], first, second], "float32"],
    ["several rows and matrices", [3, 1, 64], [90, 3, 64], [[2], [2], first, second], "float32"],
    ["several matrices and columns", [90, 3, 64], [64, 3], [[2], [0], second, second], "float32"],
  ] as const)("of %s are sums, with the same values", (_name, left, right, dims, dtype) => {
    const types = [tensorType(dtype, left), tensorType(dtype, right)];
    const [lhsContract, rhsContract, lhsBatch, rhsBatch] = dims;
    const params = { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype };
    const program = buildProgram(types, (emit, x, y) => (x && y ? emit("dotGeneral", [x, y], params) : []));
    const lowered = verify(normalise(program), "lowered");
    expect(lowered.eqns.map(({ op }) => op)).toContain("reduceSum");
    expect(lowered.eqns.map(({ op }) => op)).not.toContain("dotGeneral");
    const isNear = (x: number, y: number) => Math.abs(x - y) <= 1e-5 + 0.01 * Math.abs(y);
    expect(differenceBetween(program, lowered, { axes: [] }, 1, isNear)).toBeUndefined();
  });

  test.each(["float32", "bfloat16"] as const)("read a transposed %s matrix as it lies", (dtype) => {
    const types = [tensorType(dtype, [12, 20]), tensorType(dtype, [20, 70, 12])];
    const program = buildProgram(types, (emit, x, y) => {
      const turned = emit("transpose", [y as Var], { permutation: [2, 1, 0] });
      const contract = { lhsContract: [0, 1], rhsContract: [0, 2], lhsBatch: [], rhsBatch: [] };
      return emit("dotGeneral", [x as Var, turned[0] as Var], { ...contract, dtype: "float32" });
    });
    const lowered = verify(normalise(program), "lowered");
    const isLarge = ({ op, outs }: Eqn) => op === "transpose" && sizeOf(at(outs, 0).type.shape) > 1000;
    expect(lowered.eqns.filter(isLarge)).toEqual([]);
    expect(differenceBetween(program, lowered, { axes: [] }, 1)).toBeUndefined();
  });
});
