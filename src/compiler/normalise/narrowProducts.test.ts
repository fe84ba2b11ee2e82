import { describe, expect, test } from "vitest";
import { Random, randomProgram } from "../../../test/compiler/randomProgram.js";
import { text } from "../../../test/support/compilerText.js";
import { buildProgram, type Emit } from "../../../test/support/interpreting.js";
import { differenceBetween } from "../../../test/support/sameValues.js";
import type { Program, Var } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { narrowProducts } from "./narrowProducts.js";

const mesh = { axes: [] };
const sizes = { least: 64, block: 128, few: 64, wide: 1024 };

/** A kernel [k, n] of codes and scales of blocks of inputs. */
function kernel(emit: Emit, codes: Var, scales: Var): Var {
  const [k = 0, n = 0] = codes.type.shape;
  const [blocks = 0] = scales.type.shape;
  const shape = [blocks, k / blocks, n];
  const one = (...made: Var[]) => at(made, 0);
  const wide = one(...emit("convert", [codes], { dtype: "float32" }));
  const split = one(...emit("reshape", [wide], { shape }));
  const spread = one(...emit("broadcastInDim", [scales], { shape, dims: [0, 2] }));
  const scaled = one(...emit("mul", [split, spread], {}));
  return one(...emit("reshape", [scaled], { shape: [k, n] }));
}

/** `x · W`, or `x · Wᵀ` as in the backward pass. */
function product(m: number, k: number, n: number, blocks: number, isBackward: boolean): Program {
  const types = [
    tensorType("float32", [m, isBackward ? n : k]),
    tensorType("int8", [k, n]),
    tensorType("float32", [blocks, n]),
  ];
  return buildProgram(types, (emit, x, codes, scales) => {
    if (!x || !codes || !scales) return [];
    const rhsContract = [isBackward ? 1 : 0];
    const params = { lhsContract: [1], rhsContract, lhsBatch: [], rhsBatch: [], dtype: "float32" } as const;
    return emit("dotGeneral", [x, kernel(emit, codes, scales)], params);
  });
}

describe("what narrowProducts rewrites", () => {
  test("a product with a kernel of few bits is a loop over blocks of its outputs", () => {
    expect(printProgram(narrowProducts(product(2, 8, 8, 2, false), sizes))).toBe(text`
      (%0:f32[2,8], %1:i8[8,8], %2:f32[2,8]) {
        %3:f32[8,8] = convert %1 {dtype: float32}
        %4:f32[2,4,8] = reshape %3 {shape: [2,4,8]}
        %5:f32[2,4,8] = broadcastInDim %2 {shape: [2,4,8], dims: [0,2]}
        %6:f32[2,4,8] = mul %4 %5
        %7:f32[8,8] = reshape %6 {shape: [8,8]}
        %8:i8[8,2,4] = reshape %1 {shape: [8,2,4]}
        %9:i8[2,8,4] = transpose %8 {permutation: [1,0,2]}
        %10:f32[2,2,4] = reshape %2 {shape: [2,2,4]}
        %11:f32[2,2,4] = transpose %10 {permutation: [1,0,2]}
        %12:i32[2] = iota {dtype: int32, shape: [2], dim: 0}
        %13:f32[2,2,4] = scan %0 %12 %9 %11 {length: 2, reverse: false, numConsts: 1, numCarry: 0} (%14:f32[2,8], %15:i32[], %16:i8[8,4], %17:f32[2,4]) {
          %18:i32[] = mul %15 1
          %19:f32[8,4] = convert %16 {dtype: float32}
          %20:f32[2,4,4] = reshape %19 {shape: [2,4,4]}
          %21:f32[2,4,4] = broadcastInDim %17 {shape: [2,4,4], dims: [0,2]}
          %22:f32[2,4,4] = mul %20 %21
          %23:f32[8,4] = reshape %22 {shape: [8,4]}
          %24:f32[2,4] = dotGeneral %14 %23 {contract: [1]x[0]}
          return %24
        }
        %25:f32[2,2,4] = transpose %13 {permutation: [1,0,2]}
        %26:f32[2,8] = reshape %25 {shape: [2,8]}
        return %26
      }`);
  });

  test("blocks are wide where the other factor has many rows, and the kernel stays whole if it is not", () => {
    const many = product(65, 8, 16, 2, false);
    const counts = [4, 8, 16].map((wide) =>
      narrowProducts(many, { ...sizes, wide }).eqns.flatMap((eqn) =>
        eqn.op === "scan" ? [eqn.params.length] : [],
      ),
    );
    expect(counts).toEqual([[4], [2], []]);
  });

  test("kernels that others read, or that are small, stay whole", () => {
    const program = product(2, 8, 8, 2, false);
    const kernelOf = at(program.eqns.at(-1)?.ins ?? [], 1);
    const read = { ...program, outputs: [...program.outputs, kernelOf] };
    expect(printProgram(narrowProducts(read, sizes))).toBe(printProgram(read));
    expect(narrowProducts(program)).toBe(program);
  });
});

/** Groups of rows with the matrices of their groups, or with these transposed. */
function groupedProduct(m: number, k: number, n: number, groups: number, isBackward: boolean): Program {
  const types = [
    tensorType("float32", [m, isBackward ? n : k]),
    tensorType("int8", [groups, k, n]),
    tensorType("float32", [groups, 1, n]),
    tensorType("int32", [groups]),
  ];
  return buildProgram(types, (emit, x, codes, scales, counts) => {
    if (!x || !codes || !scales || !counts) return [];
    const one = (...made: Var[]) => at(made, 0);
    const wide = one(...emit("convert", [codes], { dtype: "float32" }));
    const spread = one(...emit("broadcastInDim", [scales], { shape: [groups, k, n], dims: [0, 1, 2] }));
    const scaled = one(...emit("mul", [wide, spread], {}));
    const turned = isBackward ? one(...emit("transpose", [scaled], { permutation: [0, 2, 1] })) : scaled;
    return emit("raggedDot", [x, turned, counts], { ragged: "rows", dtype: "float32" });
  });
}

describe("random products", () => {
  test("of groups of rows keep every bit, forward and backward", () => {
    let numLoops = 0;
    for (const seed of range(40)) {
      const random = new Random(seed);
      const [k, n] = [4 * (1 + random.below(4)), 4 * (1 + random.below(4))];
      const program = groupedProduct(1 + random.below(5), k, n, 1 + random.below(3), seed % 2 === 0);
      const tiled = verify(narrowProducts(program, sizes));
      if (tiled.eqns.some(({ op }) => op === "scan")) numLoops++;
      expect(differenceBetween(program, tiled, mesh, seed), `seed ${seed}`).toBeUndefined();
    }
    expect(numLoops).toBeGreaterThan(20);
  });

  test("keep every bit, forward and backward", () => {
    let numLoops = 0;
    for (const seed of range(60)) {
      const random = new Random(seed);
      const blocks = 2 ** random.below(3);
      const k = blocks * 4 * (1 + random.below(3));
      const program = product(1 + random.below(3), k, 4 * (1 + random.below(4)), blocks, seed % 2 === 0);
      const tiled = verify(narrowProducts(program, sizes));
      if (tiled.eqns.some(({ op }) => op === "scan")) numLoops++;
      expect(differenceBetween(program, tiled, mesh, seed), `seed ${seed}`).toBeUndefined();
    }
    expect(numLoops).toBeGreaterThan(30);
  });

  test("other programs keep their values", () => {
    for (const seed of range(60)) {
      const program = randomProgram({ seed: 5000 + seed, numEqns: 20, types: ["float32", "bfloat16"] });
      const tiled = verify(narrowProducts(program, { ...sizes, least: 16, block: 16 }));
      expect(differenceBetween(program, tiled, mesh, seed), `seed ${seed}`).toBeUndefined();
    }
  });
});
