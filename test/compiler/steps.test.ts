import { lax, makeProgram, np, simplify, type Tensor, valueAndGrad } from "shardwise";
import { describe, expect, test } from "vitest";
import { compileProgram } from "../../src/compiler/compile.js";
import type { CompiledProgram, Step } from "../../src/compiler/steps.js";
import { makeEqn, newVar, type Program } from "../../src/ir/program.js";
import { tensorType } from "../../src/ir/shape.js";
import { findDifference, randomInputs } from "./differential.js";

const mesh = { axes: [] };

function compile(
  fn: (...args: Tensor[]) => unknown,
  args: readonly Tensor[],
  donated = false,
): CompiledProgram {
  const program = simplify(makeProgram(fn)(...args));
  expect(findDifference(program, randomInputs(program, mesh, 1), { mesh })).toBeUndefined();
  return compileProgram(program, { mesh, donated: program.inputs.map(() => donated) });
}

const kinds = (steps: readonly Step[]) => steps.map((step) => step.op);

function softmax(x: Tensor): Tensor {
  const weights = np.exp(x.sub(np.max(x, -1, { keepdims: true })));
  return weights.div(np.sum(weights, -1, { keepdims: true }));
}

function layerNorm(x: Tensor, scale: Tensor, bias: Tensor): Tensor {
  const centred = x.sub(np.mean(x, -1, { keepdims: true }));
  const variance = np.mean(centred.mul(centred), -1, { keepdims: true });
  return centred
    .mul(lax.rsqrt(variance.add(1e-5)))
    .mul(scale)
    .add(bias);
}

describe("fusion", () => {
  test("a softmax is one kernel that keeps nothing but its scratch row", () => {
    const compiled = compile(softmax, [np.zeros([6, 40])]);
    expect(kinds(compiled.steps)).toEqual(["kernel"]);
    expect(compiled.arenaBytes).toBeLessThanOrEqual(192);
  });

  test("a layer norm and all its gradients are one kernel", () => {
    const loss = (x: Tensor, scale: Tensor, bias: Tensor, weight: Tensor) =>
      np.sum(layerNorm(x, scale, bias).mul(weight));
    const gradients = valueAndGrad(loss, { argnums: [0, 1, 2] });
    const args = [np.ones([256, 32]), np.ones([32]), np.ones([32]), np.ones([256, 32])];
    const compiled = compile((...list) => gradients(...(list as [Tensor, Tensor, Tensor, Tensor]))[1], args);
    expect(kinds(compiled.steps)).toEqual(["kernel"]);
  });

  test("an Adam update is one kernel that writes over donated inputs", () => {
    const update = (p: Tensor, m: Tensor, v: Tensor, g: Tensor, rate: Tensor) => {
      const mean = m.mul(0.9).add(g.mul(0.1));
      const square = v.mul(0.95).add(g.mul(g).mul(0.05));
      return [p.sub(mean.div(np.sqrt(square).add(1e-8)).mul(rate)), mean, square];
    };
    const args = [np.ones([50]), np.ones([50]), np.ones([50]), np.ones([50]), np.array(0.1)];
    const compiled = compile(
      (...list) => update(...(list as [Tensor, Tensor, Tensor, Tensor, Tensor])),
      args,
      true,
    );
    expect(kinds(compiled.steps)).toEqual(["kernel"]);
    expect(compiled.outputs.filter((output) => output.inputIndex === undefined)).toEqual([]);
  });

  test("a causal mask is never written to memory", () => {
    const masked = (x: Tensor) => {
      const [n = 0] = x.shape;
      const mask = np.greaterEqual(np.expandDims(np.arange(n), 1), np.expandDims(np.arange(n), 0));
      return softmax(np.where(mask, x, -1e30));
    };
    const compiled = compile(masked, [np.zeros([24, 24])]);
    expect(kinds(compiled.steps)).toEqual(["kernel"]);
    expect(compiled.arenaBytes).toBeLessThanOrEqual(192);
  });
});

describe("matrix products", () => {
  test("attention takes its operands as they lie and writes its result as it is read", () => {
    const attend = (q: Tensor, k: Tensor, v: Tensor) => {
      const scores = np.einsum("bqhd,bkhd->bhqk", q, k);
      return np.einsum("bhqk,bkhd->bqhd", softmax(scores), v).reshape([2, 6, 12]);
    };
    const args = [np.zeros([2, 6, 3, 4]), np.zeros([2, 6, 3, 4]), np.zeros([2, 6, 3, 4])];
    const compiled = compile((...list) => attend(...(list as [Tensor, Tensor, Tensor])), args);
    expect(kinds(compiled.steps)).toEqual(["gemm", "kernel", "gemm"]);
  });

  test("transposed operands become flags", () => {
    const compiled = compile(
      (x, y) => np.matmul(np.transpose(x as Tensor), np.transpose(y as Tensor)),
      [np.zeros([5, 3]), np.zeros([4, 5])],
    );
    expect(compiled.steps).toMatchObject([
      { op: "gemm", m: 3, n: 4, k: 5, transposeA: true, transposeB: true },
    ]);
  });

  test("bfloat16 are multiplied as they lie where somebody takes them, else as float32", () => {
    const [left, right] = [np.zeros([7, 3, 5], "bfloat16"), np.zeros([7, 5, 4], "bfloat16")];
    const program = simplify(makeProgram((x: Tensor, y: Tensor) => np.matmul(x, y))(left, right));
    const steps = (bfloat16Products: boolean) => {
      const options = { mesh, bfloat16Products };
      expect(findDifference(program, randomInputs(program, mesh, 1), options)).toBeUndefined();
      return compileProgram(program, options).steps;
    };
    expect(steps(true)).toMatchObject([
      { op: "gemm", dtype: "bfloat16", batch: [{ count: 7, strideA: 30, strideB: 40, strideC: 48 }] },
      { op: "kernel" },
    ]);
    expect(kinds(steps(false)).filter((op) => op === "kernel").length).toBeGreaterThan(1);
    expect(steps(false)).toContainEqual(expect.objectContaining({ op: "gemm", dtype: "float32" }));
  });
});

describe("loops", () => {
  test("a buffer that a scan updates piece by piece is never copied inside it", () => {
    const fill = (start: Tensor, xs: Tensor) => {
      const [filled] = lax.scan(
        ([buffer, i]: readonly [Tensor, Tensor], x: Tensor) => {
          const next = lax.dynamicUpdateSliceInDim(buffer, np.expandDims(x.mul(2), 0), i, 0);
          return [[next, i.add(1)] as const, null];
        },
        [start, np.array(0, "int32")] as const,
        xs,
      );
      return filled[0];
    };
    const compiled = compile((a, b) => fill(a as Tensor, b as Tensor), [np.zeros([7, 5]), np.ones([7, 5])]);
    const loop = compiled.steps.find((step) => step.op === "loop");
    const whole = 7 * 5 * 4;
    expect(loop?.body.filter((step) => step.op === "copy" && step.bytes >= whole)).toEqual([]);
  });
});

describe("collectives", () => {
  const axis = { name: "ring", size: 2 };

  test("a block travels while the matrix product before it is used runs", () => {
    const f32 = (...shape: number[]) => tensorType("float32", shape);
    const [x, w] = [newVar(f32(64, 64)), newVar(f32(64, 64))];
    const [moved, own, other, sum] = [0, 1, 2, 3].map(() => newVar(f32(64, 64)));
    if (!moved || !own || !other || !sum) throw new Error("four values");
    const dot = { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [], dtype: "float32" } as const;
    const permutation = [
      [0, 1],
      [1, 0],
    ] as const;
    const program: Program = {
      inputs: [x, w],
      eqns: [
        makeEqn("ppermute", [x], [moved], { axes: [axis], permutation }),
        makeEqn("dotGeneral", [x, w], [own], dot),
        makeEqn("dotGeneral", [moved, w], [other], dot),
        makeEqn("add", [own, other], [sum], {}),
      ],
      outputs: [sum],
    };
    const ring = { axes: [axis] };
    expect(findDifference(program, randomInputs(program, ring, 3), { mesh: ring })).toBeUndefined();
    const compiled = compileProgram(program, { mesh: ring });
    expect(kinds(compiled.steps)).toEqual(["start", "gemm", "done", "gemm"]);
  });

  test("an all-reduce of a value that nobody else reads works in place", () => {
    const [x, y, z] = [0, 1, 2].map(() => newVar(tensorType("float32", [100])));
    if (!x || !y || !z) throw new Error("three values");
    const program: Program = {
      inputs: [x],
      eqns: [makeEqn("exp", [x], [y], {}), makeEqn("psum", [y], [z], { axes: [axis] })],
      outputs: [z],
    };
    const compiled = compileProgram(program, { mesh: { axes: [axis] } });
    const [collective] = compiled.collectives;
    expect(collective?.source).toEqual(collective?.target);
    expect(compiled.arenaBytes).toBe(0);
  });
});
