import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { lowerToStableHlo } from "../../src/engines/xla/stablehlo/lower.js";
import type { Unrolling } from "../../src/engines/xla/stablehlo/unroll.js";
import { AxisError } from "../../src/ir/errors.js";
import { isInDomain } from "../../src/ir/infer/inferChecks.js";
import { opFacts, opsOf } from "../../src/ir/opFacts.js";
import type { OpName, Precision } from "../../src/ir/ops.js";
import { newLiteral } from "../../src/ir/program.js";
import { at, tensorType } from "../../src/ir/shape.js";
import * as lax from "../../src/lax/index.js";
import * as np from "../../src/numpy/index.js";
import { bind, traceFlat } from "../../src/trace/builder.js";
import type { Tensor } from "../../src/trace/tensor.js";
import { vmap } from "../../src/transforms/batching/vmap.js";
import { grad } from "../../src/transforms/derivatives/grad.js";
import { remat } from "../../src/transforms/derivatives/remat.js";
import type { EngineCase } from "../conformance/engine/cases.js";
import { opCases, writtenCases } from "../conformance/engine/opCases.js";
import { programCases } from "../conformance/engine/programCases.js";
import { buildProgram } from "../support/interpreting.js";
import { unaryOps } from "../support/unaryOps.js";

const attentionFile = fileURLToPath(new URL("../fixtures/fusedAttention.mlir", import.meta.url));
const file = fileURLToPath(new URL("../fixtures/stablehlo.mlir", import.meta.url));

/** Ops of one operand that are written in ways of their own; the records of all have the names they are written by. */
const unaryExamples: readonly OpName[] = ["exp", "sign", "erf"];

/** The texts of the first and the last case of every op and of all programs; UPDATE=1 writes them anew. */
function texts(): string {
  const others = opsOf("unary").filter((op) => !unaryExamples.includes(op));
  const chosen = Object.entries(writtenCases).flatMap(([op, cases]): readonly EngineCase[] => {
    if (others.some((other) => other === op)) return [];
    return cases.length > 1 ? [at(cases, 0), at(cases, cases.length - 1)] : cases;
  });
  return [...chosen, ...programCases]
    .map(({ name, program, mesh }) => `// ${name}\n${lowerToStableHlo(program, { mesh }).text}`)
    .join("\n");
}

describe("programs as StableHLO", () => {
  test("have the texts that were run by XLA", () => {
    const now = texts();
    if (process.env.UPDATE === "1") writeFileSync(file, now);
    expect(now).toBe(readFileSync(file, "utf8"));
  });

  test.each(opsOf("unary"))("have %s by the name in its record", (op) => {
    const dtype = isInDomain("float32", opFacts[op].on) ? "float32" : "int32";
    const { program } = traceFlat(([x]) => (x ? bind(op, [x], {}) : []), [tensorType(dtype, [3])]);
    const { text } = lowerToStableHlo(program, { mesh: { axes: [] } });
    expect(text.match(/(?:stablehlo|chlo)\.\w+/g)).toEqual([unaryOps[op].text]);
  });

  test("exist for every case of every op, with an equation for every line in between", () => {
    const written = new Set<string>();
    for (const { name, program, mesh } of [...Object.values(writtenCases).flat(), ...programCases]) {
      const { text, origins } = lowerToStableHlo(program, { mesh });
      expect(text.split("\n").length - 1, name).toBe(origins.length);
      for (const eqn of origins) if (eqn) written.add(eqn.op);
    }
    const identities = ["name", "stopGradient"];
    const withCases = Object.entries(writtenCases).filter(([, cases]) => cases.length > 0);
    const expected = withCases.map(([op]) => op).filter((op) => !identities.includes(op));
    expect([...written].sort()).toEqual(expected.sort());
  });

  test("have loops unrolled, iteration by iteration, where other loops read large stacks of theirs", () => {
    const step = (carry: Tensor, x: Tensor): [Tensor, Tensor] => [carry.add(x), np.sin(x)];
    const types = [tensorType("float32", [4]), tensorType("float32", [3, 4])];
    const isUnrolled = (fn: (start: Tensor, xs: Tensor) => readonly Tensor[], minBytes: number) => {
      const { program } = traceFlat((args) => fn(at(args, 0), at(args, 1)), types);
      return lowerToStableHlo(program, { mesh: { axes: [] }, unrolling: { minBytes, maxEqns: 100 } })
        .isUnrolled;
    };
    const once = (start: Tensor, xs: Tensor) => lax.scan(step, start, xs);
    const twice = (start: Tensor, xs: Tensor) => lax.scan(step, start, once(start, xs)[1]);
    expect([once, twice].map((fn) => isUnrolled(fn, 16))).toEqual([false, true]);
    expect([once, twice].map((fn) => isUnrolled(fn, 17))).toEqual([false, false]);
  });

  test("have loops that overwrite a donated stack where nothing else reads it", () => {
    const step = (sum: Tensor, x: Tensor): [Tensor, Tensor] => [sum.add(np.sum(x)), x.mul(2)];
    const types = [tensorType("float32", []), tensorType("float32", [3, 4])];
    const whileOf = (fn: (start: Tensor, xs: Tensor) => readonly Tensor[], donated: readonly boolean[]) => {
      const { program } = traceFlat((args) => fn(at(args, 0), at(args, 1)), types);
      const { text } = lowerToStableHlo(program, { mesh: { axes: [] }, donated });
      const starts = /while\((.*)\) :/.exec(text)?.[1] ?? "";
      const read = /dynamic_slice (%\d+)/.exec(text)?.[1];
      const stack = starts.split(", ").at(2)?.split(" = ");
      return { startsWithInput: stack?.[1] === "%1", readsCarry: read === stack?.[0] };
    };
    const once = (start: Tensor, xs: Tensor) => lax.scan(step, start, xs);
    const again = (start: Tensor, xs: Tensor) => [...once(start, xs), np.sum(xs)];
    expect(whileOf(once, [false, true])).toEqual({ startsWithInput: true, readsCarry: true });
    expect(whileOf(once, [true, false])).toEqual({ startsWithInput: false, readsCarry: false });
    expect(whileOf(again, [false, true])).toEqual({ startsWithInput: false, readsCarry: false });
  });

  test("have the iterations of unrolled loops as calls of one function", () => {
    const step = (carry: Tensor, x: Tensor): [Tensor, Tensor] => [carry.add(x), np.sin(x)];
    const { program } = traceFlat(
      (args) => lax.scan(step, at(args, 0), at(args, 1), { reverse: true }),
      [tensorType("float32", [4]), tensorType("float32", [3, 4])],
    );
    const written = (maxEqns: number) =>
      lowerToStableHlo(program, { mesh: { axes: [] }, unrolling: { minBytes: 0, maxEqns } });
    const loop = lowerToStableHlo(program, { mesh: { axes: [] } });
    expect(loop.isUnrolled).toBe(false);
    expect(written(5).text).toBe(loop.text);
    const { text, isUnrolled } = written(6);
    expect(isUnrolled).toBe(true);
    expect(text).toMatchInlineSnapshot(`
      "module @program {
        func.func public @main(%0: tensor<4xf32>, %1: tensor<3x4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) {
          %2 = stablehlo.constant dense<0> : tensor<i32>
          %3 = stablehlo.constant dense<1> : tensor<i32>
          %4 = stablehlo.constant dense<2> : tensor<i32>
          %5:3 = stablehlo.optimization_barrier %2, %3, %4 : tensor<i32>, tensor<i32>, tensor<i32>
          %14:2 = func.call @step_0(%5#2, %0, %1) : (tensor<i32>, tensor<4xf32>, tensor<3x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
          %15:2 = func.call @step_0(%5#1, %14#0, %1) : (tensor<i32>, tensor<4xf32>, tensor<3x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
          %16:2 = func.call @step_0(%5#0, %15#0, %1) : (tensor<i32>, tensor<4xf32>, tensor<3x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
          %17 = stablehlo.reshape %16#1 : (tensor<4xf32>) -> tensor<1x4xf32>
          %18 = stablehlo.reshape %15#1 : (tensor<4xf32>) -> tensor<1x4xf32>
          %19 = stablehlo.reshape %14#1 : (tensor<4xf32>) -> tensor<1x4xf32>
          %20 = stablehlo.concatenate %17, %18, %19, dim = 0 : (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<3x4xf32>
          %21 = stablehlo.optimization_barrier %20 : tensor<3x4xf32>
          return %16#0, %21 : tensor<4xf32>, tensor<3x4xf32>
        }
        func.func private @step_0(%6: tensor<i32>, %7: tensor<4xf32>, %8: tensor<3x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
          %9 = stablehlo.constant dense<0> : tensor<i32>
          %10 = stablehlo.dynamic_slice %8, %6, %9, sizes = [1, 4] : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
          %11 = stablehlo.reshape %10 : (tensor<1x4xf32>) -> tensor<4xf32>
          %12 = stablehlo.add %7, %11 : tensor<4xf32>
          %13 = stablehlo.sine %11 : tensor<4xf32>
          return %12, %13 : tensor<4xf32>, tensor<4xf32>
        }
      }
      "
    `);
  });

  test("have large results of unrolled loops written into their stack, unless other loops read them", () => {
    const types = [tensorType("float32", [128, 128]), tensorType("float32", [3, 128, 128])];
    const step = (carry: Tensor, x: Tensor): [Tensor, Tensor] => [carry.add(x), np.sin(x)];
    const textOf = (fn: (start: Tensor, xs: Tensor) => readonly Tensor[]) => {
      const { program } = traceFlat((args) => fn(at(args, 0), at(args, 1)), types);
      const unrolling = { minBytes: 0, maxEqns: 100 };
      return lowerToStableHlo(program, { mesh: { axes: [] }, unrolling }).text;
    };
    const numFills = (fn: Parameters<typeof textOf>[0]) =>
      [...textOf(fn).matchAll(/func\.call @fill_float32_3_128_128\(/g)].length;
    const once = (start: Tensor, xs: Tensor) => lax.scan(step, start, xs);
    expect(numFills(once)).toBe(3);
    expect(numFills((start, xs) => lax.scan(step, start, once(start, xs)[1]))).toBe(3);
    expect(numFills((start, xs) => lax.scan(step, np.sum(start, 0), np.sum(xs, 1)))).toBe(0);
    // A stack that is summed up and read again is whole before, lest both kernels fill it.
    const barrier = /stablehlo\.optimization_barrier %\d+ : tensor<3x128x128xf32>/;
    const withNorm = (start: Tensor, xs: Tensor) => {
      const [, sines] = once(start, xs);
      return [sines.mul(2), np.sum(sines.reshape([-1]).mul(3))];
    };
    expect(textOf(once)).not.toMatch(barrier);
    expect(textOf(withNorm)).toMatch(barrier);
  });

  test("have slices of stacks that loops do not change cut out of rows on GPUs", () => {
    const step = (sum: Tensor, x: Tensor): [Tensor, null] => [sum.add(np.sum(x, [0, 2])), null];
    const { program } = traceFlat(
      (args) => [lax.scan(step, at(args, 0), at(args, 1))[0]],
      [tensorType("float32", [5]), tensorType("float32", [3, 4, 5, 6])],
    );
    const textOf = (unrolling?: Unrolling) =>
      lowerToStableHlo(program, { mesh: { axes: [] }, unrolling }).text;
    const onGpus = textOf({ minBytes: 1, maxEqns: 1000 });
    expect(onGpus).toContain("stablehlo.reshape %1 : (tensor<3x4x5x6xf32>) -> tensor<3x120xf32>");
    expect(onGpus).toMatch(/stablehlo\.dynamic_slice .* sizes = \[1, 120\]/);
    expect(textOf()).toMatch(/stablehlo\.dynamic_slice .* sizes = \[1, 4, 5, 6\]/);
  });

  test("have sums with products as sums of matrices", () => {
    const types = [tensorType("bfloat16", [2, 3, 4]), tensorType("bfloat16", [4, 4])];
    const { program } = traceFlat((args) => {
      const [x, weight] = [at(args, 0), at(args, 1)];
      const sum = x.add(np.matmul(x, weight));
      return [sum.add(np.matmul(sum, weight)), sum.add(x)];
    }, types);
    const { text } = lowerToStableHlo(program, { mesh: { axes: [] } });
    expect([...text.matchAll(/stablehlo\.add .* : (\S+)$/gm)].map(([, type]) => type)).toEqual([
      "tensor<6x4xbf16>",
      "tensor<6x4xbf16>",
      "tensor<2x3x4xbf16>",
    ]);
  });

  test("call a function for every iteration of an unrolled loop, unless there are loops in it", () => {
    const types = [tensorType("float32", [4]), tensorType("float32", [3, 2, 4])];
    const add = (carry: Tensor, x: Tensor): [Tensor, Tensor] => [carry.add(x), np.sin(carry)];
    const calls = (step: (carry: Tensor, x: Tensor) => [Tensor, Tensor]) => {
      const { program } = traceFlat((args) => lax.scan(step, at(args, 0), at(args, 1)), types);
      const { text } = lowerToStableHlo(program, {
        mesh: { axes: [] },
        unrolling: { minBytes: 0, maxEqns: 1000 },
      });
      return [...text.matchAll(/func\.call @(\w+)/g)].map(([, name]) => name);
    };
    expect(calls((carry, x) => add(carry, x.sum(0)))).toEqual(["step_0", "step_0", "step_0"]);
    // Two steps of the loop inside, in each of three.
    const inner = ["step_0", "step_0", "step_1", "step_1", "step_2", "step_2"];
    expect(calls((carry, xs) => lax.scan(add, carry, xs))).toEqual(inner);
  });

  test("copy no slice of a parameter, and none of what the forward pass kept, where loops are unrolled", () => {
    const layer = remat((x: Tensor, weight: Tensor) => np.sin(np.matmul(x, weight)));
    const loss = (weights: Tensor, x: Tensor) => {
      const [last] = lax.scan(
        (x: Tensor, weight: Tensor): [Tensor, null] => [layer(x, weight), null],
        x,
        weights,
      );
      return np.sum(last);
    };
    const { program } = traceFlat(
      (args) => [grad(loss)(at(args, 0), at(args, 1))],
      [tensorType("float32", [3, 4, 4]), tensorType("float32", [2, 4])],
    );
    const { text } = lowerToStableHlo(program, {
      mesh: { axes: [] },
      unrolling: { minBytes: 1, maxEqns: 100 },
    });
    const lines = (op: string) => text.split("\n").filter((line) => line.includes(`stablehlo.${op} `));
    const barriers = lines("optimization_barrier");
    // One of all parameters and one of all gradients, none of single ones.
    expect(barriers.filter((line) => line.includes("tensor<3x4x4xf32>"))).toHaveLength(2);
    expect(barriers.filter((line) => line.includes("tensor<4x4xf32>"))).toEqual([]);
    // Weights are cut out of their stack once in a step forward and once in one back, what was kept is read as it is.
    expect(lines("slice")).toEqual([]);
    expect(lines("dynamic_slice").map((line) => line.replace(/.*: \((.*?),.*/, "$1"))).toEqual([
      "tensor<3x4x4xf32>",
      "tensor<3x4x4xf32>",
    ]);
  });

  test("are refused where they call JavaScript, with what to do", () => {
    const { program, mesh } = at(opCases.callback, 0);
    expect(() => lowerToStableHlo(program, { mesh })).toThrow(
      /\[xla\] twice calls JavaScript.*return the value.*run this function on the threads engine/,
    );
  });

  test("have attention in one piece for devices that can, in the words of XLA", () => {
    const query = tensorType("bfloat16", [2, 128, 4, 64]);
    const key = tensorType("bfloat16", [2, 128, 2, 64]);
    const params = { scale: 0.125, causal: true };
    const both = buildProgram([query, key, key], (emit, q, k, v) => {
      const [mixed, sums] = emit("attention", [q, k, v], params);
      if (!mixed || !sums) return [];
      return [...emit("attentionBackward", [q, k, v, sums, mixed, mixed], params), mixed];
    });
    const { text } = lowerToStableHlo(both, { mesh: { axes: [] }, kernels: ["attention"] });
    expect(text).toBe(readFileSync(attentionFile, "utf8"));
    expect(lowerToStableHlo(both, { mesh: { axes: [] } }).text).not.toContain("custom_call");
  });

  test("have products of groups of rows in one piece for devices that can, in the words of XLA", () => {
    const [x, y] = [tensorType("bfloat16", [2, 7, 5]), tensorType("bfloat16", [2, 4, 5, 3])];
    const params = { dtype: "float32" } as const;
    const both = buildProgram([x, y, tensorType("int32", [2, 4])], (emit, rows, matrices, sizes) => [
      ...emit("raggedDot", [rows, matrices, sizes], { ...params, ragged: "rows" }),
      ...emit("raggedDot", [rows, rows, sizes], { ...params, ragged: "sums" }),
    ]);
    const { text } = lowerToStableHlo(both, { mesh: { axes: [] }, kernels: ["raggedDot"] });
    expect(text).toContain(
      "#chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2], lhs_ragged_dimensions = [1], rhs_group_dimensions = [1]>}> : (tensor<2x7x5xbf16>, tensor<2x4x5x3xbf16>, tensor<2x4xi32>) -> tensor<2x7x3xf32>",
    );
    expect(text).toContain(
      "#chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [1]>}> : (tensor<2x7x5xbf16>, tensor<2x7x5xbf16>, tensor<2x4xi32>) -> tensor<2x4x5x5xf32>",
    );
    expect(lowerToStableHlo(both, { mesh: { axes: [] } }).text).not.toContain("chlo.ragged_dot");
  });

  test.each([
    ["float32", tensorType("float32", [2, 16, 4, 8]), 16, true],
    ["heads of 12", tensorType("bfloat16", [2, 16, 4, 12]), 16, true],
    ["heads of 256", tensorType("bfloat16", [2, 16, 4, 256]), 16, true],
    ["causal with other lengths", tensorType("bfloat16", [2, 16, 4, 8]), 24, true],
    ["a single query", tensorType("float16", [2, 1, 4, 8]), 24, false],
  ])("have attention as products for %s", (_, query, keyLength, causal) => {
    const [batch = 0, , heads = 0, size = 0] = query.shape;
    const key = tensorType(query.dtype, [batch, keyLength, heads, size]);
    const program = buildProgram([query, key, key], (emit, q, k, v) =>
      emit("attention", [q, k, v], { scale: 1, causal }),
    );
    const { text } = lowerToStableHlo(program, { mesh: { axes: [] }, kernels: ["attention"] });
    expect(text).not.toContain("custom_call");
    expect(text).toContain("dot_general");
  });

  test("multiply float32 as float32, unless the product or the run asks for less", () => {
    const matrix = tensorType("float32", [2, 2]);
    const written = (fn: (x: Tensor, y: Tensor) => Tensor, precision?: Precision) => {
      const { program } = traceFlat((args) => [fn(at(args, 0), at(args, 1))], [matrix, matrix]);
      const options = { mesh: { axes: [] }, ...(precision ? { precision } : {}) };
      const { text } = lowerToStableHlo(program, options);
      return [...text.matchAll(/precision = \[(\w+), \w+\]/g)].map(([, name]) => name);
    };
    const products: readonly ((options: np.ProductOptions) => (x: Tensor, y: Tensor) => Tensor)[] = [
      (options) => (x, y) => np.matmul(x, y, options),
      (options) => (x, y) => np.einsum("ij,jk->ik", x, y, options),
      ({ precision }) =>
        (x, y) =>
          lax.dotGeneral(x, y, { lhsContract: [1], rhsContract: [0], ...(precision ? { precision } : {}) }),
    ];
    for (const product of products) {
      expect(written(product({}))).toEqual(["HIGHEST"]);
      expect(written(product({}), "high")).toEqual(["HIGH"]);
      expect(written(product({ precision: "highest" }), "high")).toEqual(["HIGHEST"]);
      expect(written(product({ precision: "default" }))).toEqual(["DEFAULT"]);
      // The way back multiplies as exactly as the way forward, also in batches.
      const squares = vmap((x: Tensor, y: Tensor) => product({ precision: "default" })(x, y).sum());
      const loss = (x: Tensor, y: Tensor) => squares(x.reshape([2, 1, 2]), y.reshape([2, 2, 1])).sum();
      expect(new Set(written((x, y) => grad(loss)(x, y)))).toEqual(new Set(["DEFAULT"]));
    }
    const wrong = () => written((x, y) => np.matmul(x, y, JSON.parse('{ "precision": "low" }')));
    expect(wrong).toThrow('precision "low" is not one of default, high, highest');
  });

  test("join the gradients of slices instead of adding padded blocks", () => {
    const halves = (x: Tensor) =>
      np
        .sin(x.get(np.s(0, 2)))
        .add(np.cos(x.get(np.s(2, 4))))
        .sum();
    const program = traceFlat(
      ([x]) => [grad(halves)(x ?? np.zeros([4]))],
      [tensorType("float32", [4])],
    ).program;
    const { text } = lowerToStableHlo(program, { mesh: { axes: [] } });
    expect(text).toContain("stablehlo.concatenate");
    expect(text.match(/return %\w+/)?.[0]).toBe(
      `return ${text.match(/(%\w+) = stablehlo.concatenate/)?.[1]}`,
    );
  });

  test("lead from a line back to the equation", () => {
    const type = tensorType("float32", [2]);
    const program = buildProgram([type], (emit, x) => {
      const [y] = emit("exp", [x], {});
      return y ? emit("mul", [y, newLiteral(2, "float32")], {}) : [];
    });
    const { text, origins } = lowerToStableHlo(program, { mesh: { axes: [] } });
    const ops = text.split("\n").map((line, i) => [line.trim().split(" ")[2], origins[i]?.op]);
    expect(ops.filter(([, op]) => op !== undefined)).toEqual([
      ["stablehlo.exponential", "exp"],
      ["stablehlo.constant", "mul"],
      ["stablehlo.multiply", "mul"],
    ]);
  });

  test("let a donated input's memory be taken by the first free result of its type", () => {
    const [small, large] = [tensorType("float32", [2]), tensorType("float32", [3])];
    const swap = buildProgram([small, large, small], (_emit, x, y, z) => [z, x, y]);
    const { text } = lowerToStableHlo(swap, { mesh: { axes: [] }, donated: [true, true, false] });
    expect(at(text.split("\n"), 1)).toBe(
      "  func.func public @main(%0: tensor<2xf32> {tf.aliasing_output = 0 : i32}, " +
        "%1: tensor<3xf32> {tf.aliasing_output = 2 : i32}, %2: tensor<2xf32>) -> " +
        "(tensor<2xf32>, tensor<2xf32>, tensor<3xf32>) {",
    );
  });

  test("refuse axes that the mesh does not have, which XLA would compile", () => {
    const type = tensorType("float32", [2]);
    const axes = [{ name: "x", size: 2 }];
    const sum = buildProgram([type], (emit, x) => emit("psum", [x], { axes }));
    for (const mesh of [{ axes: [] }, { axes: [{ name: "x", size: 4 }] }]) {
      expect(() => lowerToStableHlo(sum, { mesh })).toThrow(AxisError);
    }
  });

  test("write numbers so that they are read back to the bit", () => {
    const values = [0.1, -0, 1e-7, 3e38, Number.POSITIVE_INFINITY, Number.NaN, 5];
    const program = buildProgram([], () => values.map((value) => newLiteral(value, "float32")));
    const { text } = lowerToStableHlo(program, { mesh: { axes: [] } });
    const written = [...text.matchAll(/dense<(.*?)>/g)].map(([, number]) => number);
    expect(written).toEqual([
      "0.10000000149011612",
      "-0.0",
      "1.0000000116860974e-7",
      "3.0000000054977558e+38",
      "0x7F800000",
      "0x7FC00000",
      "5.0",
    ]);
  });
});
