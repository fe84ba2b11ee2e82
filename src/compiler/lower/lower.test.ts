import { describe, expect, test } from "vitest";
import { explainProgram } from "../../../scripts/explainProgram.js";
import { findDifference, randomInputs } from "../../../test/compiler/differential.js";
import { simulate } from "../../../test/compiler/simulate.js";
import { printPlanned, text } from "../../../test/support/compilerText.js";
import { caseProgram, opCases } from "../../../test/support/opCases.js";
import { fusedMultiply, testWith } from "../../../test/support/optional.js";
import { hostTensor } from "../../engines/reference/hostTensor.js";
import { enableRelaxedSimd } from "../../engines/system/v8Flags.js";
import { lax, makeProgram, np, simplify, type Tensor } from "../../index.js";
import type { MeshShape } from "../../ir/mesh.js";
import { makeEqn, newVar, type Program } from "../../ir/program.js";
import { at, range, type TensorType, tensorType } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { compileProgram, lowerProgram } from "../compile.js";
import { Compilation } from "../plan/compilation.js";
import { denseView } from "../plan/planBuffers.js";
import type { Step } from "../steps.js";
import { BASELINE_FEATURES, detectFeatures } from "../wasm/features.js";
import { LoweringFrame } from "./frame.js";

enableRelaxedSimd();

const ring = { axes: [{ name: "ring", size: 2 }] };
const alone: MeshShape = { axes: [] };
const f32 = (...shape: number[]) => newVar(tensorType("float32", shape));

/** The program of a function, which computes the same compiled as by the reference engine. */
function programOf(fn: (...args: Tensor[]) => unknown, args: readonly Tensor[]): Program {
  const program = simplify(makeProgram(fn)(...args));
  expect(findDifference(program, randomInputs(program, alone, 1), { mesh: alone })).toBeUndefined();
  return program;
}

/** The steps of a function, and what is noted of each: its ops, arithmetic operations and bytes. */
function lowered(program: Program, mesh = alone) {
  const { steps, compilation } = lowerProgram(program, { mesh });
  const notes = compilation.infos.map(({ ops, flops, bytes }) => [ops.join(" "), flops, bytes]);
  return { steps, notes, text: printPlanned(steps, compilation.infos) };
}

/** Two rows of a matrix of four, added to it or in its place. */
function scatter(combine: "add" | "set"): Program {
  const [x, updates, y] = [f32(4, 3), f32(2, 3), f32(4, 3)];
  const indices = newVar(tensorType("int32", [2]));
  const eqns = [makeEqn("scatter", [x, indices, updates], [y], { dim: 0, batchDims: 0, combine })];
  return { inputs: [x, indices, updates], eqns, outputs: [y] };
}

const costs = (fn: (...args: Tensor[]) => unknown, ...args: Tensor[]) => lowered(programOf(fn, args)).notes;

describe("what is noted of a step", () => {
  test("a matrix product: two operations for every product, and each operand and the result once", () => {
    const [x, y] = [np.ones([2, 3, 5]), np.ones([2, 5, 7])];
    expect(costs((a, b) => np.matmul(a, b), x, y)).toEqual([
      ["dotGeneral", 2 * 2 * 3 * 5 * 7, 4 * (2 * 3 * 5 + 2 * 5 * 7 + 2 * 3 * 7)],
    ]);
  });

  test("a product of groups of rows: as one of all rows, whatever their groups, written over what was there", () => {
    const [x, y, sizes, out] = [f32(6, 5), f32(3, 5, 7), newVar(tensorType("int32", [3])), f32(6, 7)];
    const eqn = makeEqn("raggedDot", [x, y, sizes], [out], { ragged: "rows", dtype: "float32" });
    const { steps, notes } = lowered({ inputs: [x, y, sizes], eqns: [eqn], outputs: [out] });
    expect(notes).toEqual([["raggedDot", 2 * 6 * 5 * 7, 4 * (6 * 5 + 3 * 5 * 7 + 3 + 6 * 7)]]);
    expect(steps).toMatchObject([{ op: "gemm", alpha: 1, beta: 0, m: 6, n: 7, k: 5 }]);
  });

  test("an exchange of rows: what is read and written, and the rows on both sides", () => {
    const [x, into, out] = [f32(5, 3), f32(4, 3), f32(4, 3)];
    const tables = [newVar(tensorType("int32", [4, 3])), newVar(tensorType("int32", [4, 3]))];
    const inputs = [x, into, ...tables];
    const eqn = makeEqn("raggedAllToAll", inputs, [out], { axes: ring.axes });
    const { steps, notes } = lowered({ inputs, eqns: [eqn], outputs: [out] }, ring);
    expect(notes.at(-1)).toEqual(["raggedAllToAll", 0, 2 * 4 * 5 * 3]);
    const ragged = { rows: 5, targetRows: 4, numBlocks: 2 };
    expect(steps.filter(({ op }) => op === "start")).toMatchObject([
      { collective: { elements: 15, inner: 8, ragged } },
    ]);
  });

  test("a kernel: one operation for every point and op, and what it reads and writes once", () => {
    const scaled = (x: Tensor, y: Tensor) => np.exp(x).mul(y);
    expect(costs((x, y) => scaled(x, y), np.ones([3, 5]), np.ones([5]))).toEqual([
      ["exp mul", 2 * 3 * 5, 4 * (3 * 5 + 5 + 3 * 5)],
    ]);
  });

  test("a kernel: where the last of its ops stands in the source", () => {
    const [x, ...ys] = range(4).map(() => f32(3));
    if (!x) throw new Error("four values");
    const eqns = ys.map((y, i) => ({
      ...makeEqn(at(["exp", "sin", "tanh"] as const, i), [at([x, ...ys], i)], [y], {}),
      source: { text: `model.ts:${i + 1}` },
    }));
    const { compilation } = lowerProgram({ inputs: [x], eqns, outputs: ys.slice(-1) }, { mesh: alone });
    expect(compilation.infos.map(({ source }) => source)).toEqual([eqns.at(-1)?.source]);
  });

  test("a kernel of no ops: a constant, which is written", () => {
    expect(costs(() => np.arange(6))).toEqual([["constant", 0, 24]]);
  });

  test("nothing for what is promised to be written before it is read", () => {
    const rows = (start: (type: TensorType) => Tensor) =>
      costs(
        (x) => {
          const put = (buffer: Tensor, i: Tensor): [Tensor, null] => [
            lax.dynamicUpdateIndexInDim(buffer, x, i, 0),
            null,
          ];
          return lax.scan(put, start({ dtype: "float32", shape: [4, 3] }), np.arange(4))[0];
        },
        np.ones([3]),
      ).filter(([name]) => name === "constant");
    expect(rows(ops.zeros)).toHaveLength(2);
    expect(rows(ops.unset)).toHaveLength(1);
  });

  test("a scatter: one operation for every update, which is read and written", () => {
    expect(lowered(scatter("add")).notes).toEqual([
      ["scatter", 0, 2 * 48],
      ["scatter", 6, 2 * 24],
    ]);
  });

  test("a step on the host: all it reads and writes", () => {
    expect(costs((x) => np.cumsum(x, 0), np.ones([4, 3]))).toEqual([["cumsum", 0, 2 * 48]]);
    expect(costs((x) => np.argmax(x, 1), np.ones([4, 3]))).toEqual([["argmax", 0, 48 + 16]]);
  });

  test("a place in the mesh: its four bytes; an address: nothing", () => {
    const out = newVar(tensorType("int32", []));
    const eqn = makeEqn("axisIndex", [], [out], { axes: ring.axes });
    expect(lowered({ inputs: [], eqns: [eqn], outputs: [out] }, ring).notes).toEqual([["axisIndex", 0, 4]]);
    const slice = (x: Tensor, i: Tensor) => lax.dynamicIndexInDim(x, i, 0);
    expect(costs(slice, np.ones([4, 3]), np.array(1, "int32"))).toContainEqual(["dynamicSlice", 0, 0]);
  });

  test("a callback: all it reads and writes", () => {
    const { notes } = lowered(caseProgram("callback", at(opCases.callback, 0)));
    expect(notes).toEqual([["callback", 0, 24 + 24 + 12]]);
  });

  test("loops and choices: nothing but what is inside", () => {
    const choose = (i: Tensor, x: Tensor) =>
      lax.switchCase(i, [(v: Tensor) => np.sin(v), (v: Tensor) => v.mul(2)], x);
    expect(costs((i, x) => choose(i, x), np.array(1, "int32"), np.ones([3]))).toEqual(
      expect.arrayContaining([
        ["sin", 3, 24],
        ["mul", 3, 24],
        ["cond", 0, 0],
      ]),
    );
    const loop = (x: Tensor, xs: Tensor) => lax.scan((c: Tensor, v: Tensor) => [c.add(v), null], x, xs)[0];
    expect(costs((x, xs) => loop(x, xs), np.ones([3]), np.ones([4, 3]))).toContainEqual(["scan", 0, 0]);
  });

  test("a permutation keeps that values nobody sends may be anything", () => {
    const [x, out] = [f32(3), f32(3)];
    const params = { axes: ring.axes, permutation: [[0, 1]] } as const;
    const startOf = (unset?: true) => {
      const eqn = makeEqn("ppermute", [x], [out], { ...params, ...(unset && { unset }) });
      return lowered({ inputs: [x], eqns: [eqn], outputs: [out] }, ring).steps.find(
        ({ op }) => op === "start",
      );
    };
    expect(startOf()).not.toHaveProperty("collective.unset");
    expect(startOf(true)).toHaveProperty("collective.unset", true);
  });

  test("a collective: no arithmetic, its operand and its result", () => {
    const [x, y] = [f32(6), f32(12)];
    const program: Program = {
      inputs: [x],
      eqns: [makeEqn("allGather", [x], [y], { axes: ring.axes, dim: 0 })],
      outputs: [y],
    };
    expect(lowered(program, ring).notes).toEqual([["allGather", 0, 24 + 48]]);
  });
});

describe("an exchange of rows", () => {
  test.each([
    [0, 4],
    [5, 0],
    [5, 4],
  ])("of %i rows into %i is a step unless there are none on one side", (rows, targetRows) => {
    const [x, into, out] = [f32(rows, 3), f32(targetRows, 3), f32(targetRows, 3)];
    const inputs = [x, into, ...range(2).map(() => newVar(tensorType("int32", [2, 3])))];
    const eqn = makeEqn("raggedAllToAll", inputs, [out], { axes: ring.axes });
    const { steps } = lowered({ inputs, eqns: [eqn], outputs: [out] }, ring);
    expect(steps.filter(({ op }) => op === "start")).toHaveLength(rows * targetRows > 0 ? 1 : 0);
  });
});

describe("where results are written", () => {
  test("the memory of a body knows how many loops and choices are around it", () => {
    const inner = (x: Tensor) => lax.scan((c: Tensor, _: Tensor) => [np.sin(c), null], x, np.zeros([3]))[0];
    const outer = (x: Tensor) => lax.scan((c: Tensor, _: Tensor) => [inner(c), null], x, np.zeros([3]))[0];
    const { compilation } = lowerProgram(
      programOf((x) => outer(x), [np.ones([5])]),
      { mesh: alone },
    );
    const depths = new Set(compilation.buffers.map(({ depth }) => depth));
    expect([...depths].sort()).toEqual([0, 1, 2]);
  });

  test("the one row of a matrix is as far from the next as it is long", () => {
    const products = [1, 4].map((n) =>
      programOf((x, y) => np.matmul(x, y), [np.ones([1, n]), np.ones([n, 1])]),
    );
    expect(products.map((program) => lowered(program).steps)).toMatchObject([
      [{ op: "gemm", lda: 1, ldb: 1, ldc: 1 }],
      [{ op: "gemm", lda: 4, ldb: 1, ldc: 1 }],
    ]);
  });

  test("what is only joined to others is computed in its place and copied nowhere", () => {
    const join = (x: Tensor, y: Tensor) => np.concatenate([np.exp(x), np.matmul(x, y)], 1);
    const program = programOf((x, y) => join(x, y), [np.ones([4, 4]), np.ones([4, 3])]);
    expect(lowered(program).notes.map(([ops]) => ops)).toEqual(["exp", "dotGeneral"]);
  });

  test("a product that is returned is computed there, also where it is turned or joined to others", () => {
    const [x, y] = [np.ones([4, 4]), np.ones([4, 3])];
    const turned = (a: Tensor, b: Tensor) => {
      const product = np.matmul(a, b);
      return [product, np.matmul(np.transpose(product), a)];
    };
    expect(lowered(programOf((a, b) => turned(a, b), [x, y])).text).toBe(text`
      gemm 4×3×4 in0 in1 → out0  dotGeneral
      gemm 3×4×4 out0 in0 → out1  dotGeneral`);
    const joined = (a: Tensor, b: Tensor) => {
      const product = np.matmul(a, b);
      return [product, np.concatenate([product, a], 1)];
    };
    expect(lowered(programOf((a, b) => joined(a, b), [x, y])).text).toBe(text`
      gemm 4×3×4 in0 in1 → out0  dotGeneral
      kernel out0 → out1  concatenate
      kernel in0 → out1+12  concatenate`);
  });

  test("a choice in a loop changes what it carries where it lies, and copies nothing that it hands on", () => {
    // Behind the choice one row is written whatever was chosen.
    const storeSum = ([all, sum]: [Tensor, Tensor]): [Tensor, Tensor] => [
      lax.dynamicUpdateIndexInDim(all, sum, 3, 0),
      sum,
    ];
    const rows = (x: Tensor, ids: Tensor) =>
      lax.scan(
        ([all, sum]: [Tensor, Tensor], id: Tensor): [[Tensor, Tensor], null] => [
          storeSum(
            lax.switchCase(
              id,
              [
                (a: Tensor, b: Tensor): [Tensor, Tensor] => [a, b],
                (a: Tensor, b: Tensor): [Tensor, Tensor] => [lax.dynamicUpdateIndexInDim(a, b, id, 0), b],
                (a: Tensor, b: Tensor): [Tensor, Tensor] => [
                  a,
                  b.add(lax.dynamicIndexInDim(a, id, 0, false)),
                ],
              ],
              all,
              sum,
            ),
          ),
          null,
        ],
        [np.zeros([4, 50]), x],
        ids,
      )[0];
    const program = programOf((x, ids) => rows(x, ids), [np.ones([50]), np.zeros([6], "int32")]);
    const { steps } = compileProgram(program, { mesh: alone, features: detectFeatures() });
    const [loop] = steps.filter((step) => step.op === "loop");
    const copied: number[] = [];
    const visit = (list: readonly Step[]): void => {
      for (const step of list) {
        if (step.op === "copy") copied.push(step.bytes);
        if (step.op === "cond") step.branches.forEach(visit);
      }
    };
    visit(loop?.body ?? []);
    // The row that a branch writes, and the one behind the choice.
    expect(copied).toEqual([200, 200]);
  });

  test("a choice in a loop leaves alone what the loop only reads", () => {
    const sums = (w: Tensor, ids: Tensor) =>
      lax.scan(
        (sum: Tensor, id: Tensor): [Tensor, null] => [
          sum.add(lax.switchCase(id, [(x: Tensor) => x, (x: Tensor) => np.exp(x)], w)),
          null,
        ],
        np.zeros([50]),
        ids,
      )[0];
    programOf((w, ids) => sums(w, ids), [np.ones([50]), np.zeros([6], "int32")]);
  });

  test("a choice in a loop leaves what it carries to what reads it next", () => {
    const products = (x: Tensor, ids: Tensor) =>
      lax.scan(
        (all: Tensor, id: Tensor): [Tensor, null] => {
          const chosen = lax.switchCase(id, [(y: Tensor) => y, (y: Tensor) => np.sin(y)], all);
          return [np.matmul(np.matmul(chosen, all), x), null];
        },
        x,
        ids,
      )[0];
    // After more iterations the numbers are so large that their sines have no digits left to compare.
    programOf((x, ids) => products(x, ids), [np.ones([5, 5]), np.zeros([2], "int32")]);
  });

  test("a row that is read again is not overwritten by what was computed of it first", () => {
    programOf(
      (a, b) => {
        const x = np.matmul(a, b);
        const twice = x.mul(2);
        return [twice, x.sub(np.max(twice, 1, { keepdims: true }))];
      },
      [np.ones([7, 9]), np.ones([9, 40])],
    );
  });

  test("a factor with gaps between all of its elements is copied, whatever the other one is", () => {
    const every = (x: Tensor) => lax.slice(x, [0, 0, 0], [4, 4, 2], [1, 1, 2]).reshape([4, 4]);
    programOf(
      (x, y) => [np.matmul(every(x), y), np.matmul(y, every(x))],
      [np.ones([4, 4, 2]), np.ones([4, 4])],
    );
  });

  /** A loop that stores a product, of which it also takes the sum, in the row of a buffer that an index says. */
  const collect =
    (read: (all: Tensor, i: Tensor, x: Tensor) => Tensor) => (all: Tensor, x: Tensor, ids: Tensor) => {
      const store = (carried: Tensor, id: Tensor): [Tensor, Tensor] => {
        const row = np.matmul(x, read(carried, id, x));
        return [lax.dynamicUpdateSlice(carried, row.reshape([1, 3, 3]), [id, 0, 0]), row.sum()];
      };
      return lax.scan(store, all, ids);
    };
  const storing = (read: (all: Tensor, i: Tensor, x: Tensor) => Tensor): string => {
    const loop = collect(read);
    const args = [np.ones([4, 3, 3]), np.ones([3, 3]), np.array([2, 0, 3], "int32")];
    const program = programOf((all, x, ids) => (all && x && ids ? loop(all, x, ids) : []), args);
    const { steps, infos } = compileProgram(program, { mesh: alone, features: detectFeatures() });
    const [body] = steps.flatMap((step) => (step.op === "loop" ? [step.body] : []));
    return (body ?? []).map(({ op, info }) => `${op} ${infos[info]?.ops.join(" ")}`).join("\n");
  };

  test("what a row of a buffer is updated with is computed in the row, also where others read it", () => {
    expect(storing((_, id, x) => x.add(id))).not.toContain("copy");
  });

  test("what a buffer is updated with is copied to its row where the buffer is still read", () => {
    const own = (all: Tensor, id: Tensor) => lax.dynamicIndexInDim(all, id, 0, false);
    expect(storing(own).match(/copy .*/g)).toEqual(["copy dynamicUpdateSlice"]);
  });

  test("a scatter writes what it has copied before", () => {
    expect(lowered(scatter("set")).text).toBe(text`
      copy in0 → out0  scatter
      kernel in2 in1 out0 → out0  scatter`);
  });

  test("a scalar is written over the donated one it is made of", () => {
    const program = programOf((x) => x.add(1), [np.array(3, "int32")]);
    const { outputs } = compileProgram(program, { mesh: alone, donated: [true] });
    expect(outputs.map(({ inputIndex }) => inputIndex)).toEqual([0]);
  });

  test("everything that a loop collects beside what it carries is written to its own rows", () => {
    const loop = (start: Tensor, xs: Tensor) =>
      lax.scan(
        (c: Tensor, x: Tensor): [Tensor, [Tensor, Tensor, Tensor]] => [
          c.add(x),
          [np.sin(x), c.mul(x), np.exp(c)],
        ],
        start,
        xs,
      );
    programOf((start, xs) => loop(start, xs), [np.ones([3]), np.ones([4, 3])]);
  });

  test("a carried value that is read otherwise than it is written has two places", () => {
    const turn = (start: Tensor, w: Tensor) =>
      lax.scan((c: Tensor, _: Tensor) => [np.transpose(c).add(w), null], start, np.zeros([3]))[0];
    const program = programOf((c, w) => turn(c, w), [np.ones([5, 5]), np.ones([5, 5])]);
    const loop = lowered(program).steps.find((step) => step.op === "loop");
    expect(loop?.swaps.length).toBe(1);
  });
});

test("bits of all 16-bit floats but NaN are read as either type", () => {
  const finite = range(2 ** 16).filter((bits) => {
    const isSpecial = (mask: number) => (bits & mask) === mask;
    return !isSpecial(0x7c00) && !isSpecial(0x7f80);
  });
  for (const [from, to] of [
    ["float16", "bfloat16"],
    ["bfloat16", "float16"],
    ["float16", "float16"],
    ["bfloat16", "bfloat16"],
  ] as const) {
    const [x, y] = [from, to].map((dtype) => newVar(tensorType(dtype, [finite.length])));
    if (!x || !y) throw new Error("two values");
    const program: Program = {
      inputs: [x],
      eqns: [makeEqn("bitcast", [x], [y], { dtype: to })],
      outputs: [y],
    };
    const inputs = [[{ type: x.type, data: Uint16Array.from(finite) }]];
    expect(findDifference(program, inputs, { mesh: alone })).toBeUndefined();
  }
});

describe("a kernel", () => {
  test("reads what an index of its row points to", () => {
    const scaled = (x: Tensor, table: Tensor, rows: Tensor) =>
      x.sum(1).add(np.take(table, rows, 0, { mode: "clip" }));
    const [x, table] = [np.ones([5, 7]), np.ones([11])];
    programOf((...args) => scaled(...(args as [Tensor, Tensor, Tensor])), [x, table, np.zeros([5], "int32")]);
  });

  testWith(fusedMultiply, "rounds products before it adds or takes them away", {}, () => {
    const step = 2 ** -23;
    const data = [1 + step, 1 - step, 1].map((value) => [new Float32Array([value])]);
    const inputs = data.map(([array = new Float32Array()]) => [hostTensor("float32", [1], [...array])]);
    const functions = [
      (x: Tensor, y: Tensor, z: Tensor) => z.neg().add(x.mul(y)),
      (x: Tensor, y: Tensor, z: Tensor) => z.sub(x.mul(y)),
    ];
    // In one rounding they would be 2 ** -46 off.
    for (const fn of functions) {
      const one = np.ones([1]);
      const program = simplify(makeProgram(fn)(one, one, one));
      const options = { mesh: alone, features: { fma: true } };
      expect(findDifference(program, inputs, options)).toBeUndefined();
      expect([...(simulate(compileProgram(program, options), data, 1)[0]?.[0] ?? [])]).toEqual([0]);
    }
  });
});

describe("a product that is added to something", () => {
  const compiled = (program: Program, donated: readonly boolean[] = []) =>
    explainProgram(compileProgram(program, { mesh: alone, donated }))
      .split("\n")
      .filter((line) => /gemm|kernel k|copy|loop/.test(line))
      .map((line) => line.trim().replace(/ {2}.*/, ""));
  const [w, x] = [np.ones([4, 5]), np.ones([3, 4, 5])];

  test("is added where that lies: a gradient that a loop collects takes neither a kernel nor a copy", () => {
    const collect = (xs: Tensor) =>
      lax.scan(
        (sum: Tensor, rows: Tensor) => [sum.add(np.matmul(np.swapaxes(rows, 0, 1), rows)), null],
        np.zeros([5, 5]),
        xs,
      )[0];
    expect(compiled(programOf(collect as (...args: Tensor[]) => unknown, [x]))).toEqual([
      "kernel k0(out0)",
      "loop 3 times",
      "gemm 5×5×4 TN slot4 · slot4 + slot2 → slot2",
    ]);
  });

  test("and in the memory of a donated input", () => {
    const program = programOf((sum, a, b) => sum.add(np.matmul(a, b)), [np.ones([4, 4]), w, np.ones([5, 4])]);
    expect(compiled(program, [true, false, false])).toEqual(["gemm 4×4×5 NN in1 · in2 + in0 → in0"]);
    expect(compiled(program)).toEqual(["copy in0 → out0", "gemm 4×4×5 NN in1 · in2 + out0 → out0"]);
  });

  test("has a kernel for the sum where somebody else reads a summand, or the kernel does more", () => {
    const square = np.ones([4, 4]);
    const both = programOf((sum, a) => [sum.add(np.matmul(a, a)), np.exp(sum)], [square, square]);
    expect(compiled(both).filter((line) => line.includes("+"))).toEqual([]);
    const outputs = programOf((sum, a) => [sum.add(np.matmul(a, a)), sum], [square, square]);
    expect(compiled(outputs).filter((line) => line.includes("+"))).toEqual([]);
    const product = programOf(
      (sum, a) => {
        const squared = np.matmul(a, a);
        return [sum.add(squared), squared];
      },
      [square, square],
    );
    expect(compiled(product).filter((line) => line.includes("+"))).toEqual([]);
    const turned = programOf((sum, a) => np.swapaxes(sum, 0, 1).add(np.matmul(a, a)), [square, square]);
    expect(compiled(turned, [true, false]).filter((line) => line.includes("+"))).toEqual([]);
    const more = programOf((sum, a) => np.tanh(sum.add(np.matmul(a, a))), [square, square]);
    expect(compiled(more)).toEqual(["gemm 4×4×4 NN in1 · in1 → out0", "kernel k0(in0 out0 out0)"]);
  });

  test("does not wait for what other devices send, but is added to it afterwards", () => {
    const [x, y] = [f32(4, 4), f32(4, 4)];
    const [moved, product, sum] = [f32(4, 4), f32(4, 4), f32(4, 4)];
    const dot = { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [], dtype: "float32" } as const;
    const eqns = [
      makeEqn("psum", [x], [moved], { axes: ring.axes }),
      makeEqn("dotGeneral", [y, y], [product], dot),
      makeEqn("add", [moved, product], [sum], {}),
    ];
    const { steps } = compileProgram({ inputs: [x, y], eqns, outputs: [sum] }, { mesh: ring });
    expect(steps.map(({ op }) => op)).toEqual(["start", "gemm", "done", "kernel"]);
    const turned = f32(4, 4);
    const viewed = [
      makeEqn("psum", [x], [moved], { axes: ring.axes }),
      makeEqn("transpose", [moved], [turned], { permutation: [1, 0] }),
      makeEqn("dotGeneral", [y, y], [product], dot),
      makeEqn("add", [turned, product], [sum], {}),
    ];
    const later = compileProgram({ inputs: [x, y], eqns: viewed, outputs: [sum] }, { mesh: ring });
    expect(later.steps.map(({ op }) => op)).toEqual(["start", "gemm", "done", "kernel"]);
  });

  test("adds two products in one place", () => {
    const square = np.ones([4, 4]);
    const program = programOf((a, b) => np.matmul(a, b).add(np.matmul(b, a)), [square, square]);
    expect(compiled(program)).toEqual([
      "gemm 4×4×4 NN in0 · in1 → out0",
      "gemm 4×4×4 NN in1 · in0 + out0 → out0",
    ]);
  });
});

test("asking where a value lies adds no steps: what memory cannot show is copied with the unit that reads it", () => {
  const program = simplify(
    makeProgram((x: Tensor) => np.exp(np.matmul(np.reshape(np.transpose(x), [2, 6]), np.ones([6, 2]))))(
      np.ones([4, 3]),
    ),
  );
  const compilation = new Compilation(alone, BASELINE_FEATURES, 1);
  const frame = new LoweringFrame(compilation, program, 0);
  const [input] = program.inputs;
  const flat = program.eqns.find(({ op }) => op === "reshape")?.outs[0];
  if (!input || !flat) throw new Error("the program has no reshape");
  const buffer = compilation.buffer(48, { kind: "input", index: 0 }, 0);
  frame.define(input, denseView(buffer, input.type));
  expect(() => frame.view(flat)).toThrow("memory cannot show");
  expect(frame.steps).toEqual([]);
  frame.run();
  const numSteps = frame.steps.length;
  expect(frame.steps[0]?.op).toBe("kernel");
  expect(frame.view(flat).shape).toEqual([2, 6]);
  expect(frame.steps).toHaveLength(numSteps);
});
