import { describe, expect, test } from "vitest";
import type { Attention } from "../../ir/ops.js";
import { makeEqn, newVar, type Program, type Var } from "../../ir/program.js";
import { at, bytesOf, tensorType } from "../../ir/shape.js";
import {
  type AttentionKernel,
  attentionScratchBytes,
  nativeAttention,
} from "../attention/attentionKernel.js";
import { lowerProgram } from "../compile.js";
import type { LibraryPlan } from "../kernel/kernelLibrary.js";
import { attentionAs } from "./lowerAttention.js";

/** Batch, queries, keys, heads, heads of keys and features, all different. */
const [B, T, S, N, K, H] = [2, 18, 19, 8, 4, 16];
const f32 = (...shape: number[]) => newVar(tensorType("float32", shape));
const params: Attention = { scale: 0.5, causal: false };

/** The kernels of a program in the order of their steps, these, and what is noted of them. */
function lowered(program: Program, threads = 1) {
  const { steps, compilation } = lowerProgram(program, {
    mesh: { axes: [] },
    vectorBits: 512,
    attention: attentionAs(nativeAttention),
    threads,
  });
  const plans: LibraryPlan[] = [];
  compilation.library.module("i32", (plan) => {
    plans.push(plan);
    return new Uint8Array();
  });
  const kernels = steps.flatMap((step) =>
    step.op === "kernel" ? [{ step, plan: at(plans, step.kernel) }] : [],
  );
  const notes = compilation.infos.map(({ ops, flops, bytes }) => [ops.join(" "), flops, bytes]);
  return { kernels, notes };
}

/** An attention whose queries are a view of the program's first input, which the equation makes. */
function attention(
  options: Attention,
  given: Var = f32(B, T, N, H),
  view?: (query: Var) => Program["eqns"][number],
) {
  const [key, value] = [f32(B, S, K, H), f32(B, S, K, H)];
  const [mixed, logSums] = [f32(B, T, N, H), f32(B, N, T)];
  const query = view ? f32(B, T, N, H) : given;
  const eqns = [
    ...(view ? [view(query)] : []),
    makeEqn("attention", [query, key, value], [mixed, logSums], options),
  ];
  return { inputs: [given, key, value], eqns, outputs: [mixed, logSums] };
}

function onlyPlan(program: Program): AttentionKernel {
  const { kernels } = lowered(program);
  const { plan } = at(kernels, kernels.length - 1);
  if (!("kind" in plan)) throw new Error("the last kernel is no attention");
  return plan;
}

const queryStrides = { batch: 4 * T * N * H, row: 4 * N * H, head: 4 * H };
const keyStrides = { batch: 4 * S * K * H, row: 4 * K * H, head: 4 * H };

describe("attention as one kernel", () => {
  test("writes the cotangents of slices of a tensor to where they lie in its cotangent", () => {
    const wide = () => f32(B, T, N, H);
    const ins = [wide(), wide(), wide(), f32(B, N, T), wide(), wide()];
    const [query, key, value, joined] = [wide(), wide(), wide(), f32(B, T, 3 * N, H)];
    const eqns = [
      makeEqn("attentionBackward", ins, [query, key, value], params),
      makeEqn("concatenate", [query, key, value], [joined], { dim: 2 }),
    ];
    const program = { inputs: ins, eqns, outputs: [joined] };
    const { kernels } = lowered(program);
    expect(kernels).toHaveLength(1);
    const { step } = at(kernels, 0);
    const offsets = step.args.slice(6, 9).map(({ offset }) => offset);
    expect(offsets).toEqual([0, 4 * N * H, 8 * N * H]);
    const strides = { batch: 4 * T * 3 * N * H, row: 4 * 3 * N * H, head: 4 * H };
    expect(onlyPlan(program).strides).toMatchObject({
      queryCotangent: strides,
      keyCotangent: strides,
      valueCotangent: strides,
    });
  });

  test("of bfloat16 is computed in float32 and rounded once", () => {
    const b16 = (...shape: number[]) => newVar(tensorType("bfloat16", shape));
    const [query, key, value] = [b16(B, T, N, H), b16(B, S, K, H), b16(B, S, K, H)];
    const [mixed, logSums] = [b16(B, T, N, H), f32(B, N, T)];
    const eqns = [makeEqn("attention", [query, key, value], [mixed, logSums], params)];
    const { notes } = lowered({ inputs: [query, key, value], eqns, outputs: [mixed, logSums] });
    expect(notes.map(([ops]) => ops)).toEqual(["convert", "convert", "convert", "attention", "convert"]);
  });

  test("has the sizes of its operands, and takes them as they lie", () => {
    expect(onlyPlan(attention(params))).toEqual({
      ...{ kind: "attention", batch: B, length: T, heads: N, keyLength: S, keyHeads: K, headSize: H },
      ...{ scale: 0.5, before: -1, ahead: -1, args: ["query", "key", "value", "mixed", "logSums"] },
      strides: { query: queryStrides, key: keyStrides, value: keyStrides, mixed: queryStrides },
      tile: { lanes: 16, rows: 14, columns: 32 },
    });
  });

  test.each<[options: Partial<Attention>, before: number, ahead: number]>([
    [{ causal: true }, -1, 0],
    [{ causal: true, window: [1, -1] }, 1, 0],
    [{ window: [2, 1] }, 2, 1],
    [{ window: [0, 0] }, 0, 0],
    [{ window: [-1, 18] }, -1, 18],
    // No key is that far from a query.
    [{ window: [18, 19] }, -1, -1],
    [{ window: [100, 100] }, -1, -1],
  ])("sees with %j from %i keys before a query to %i keys behind it", (options, before, ahead) => {
    expect(onlyPlan(attention({ ...params, ...options }))).toMatchObject({ before, ahead });
  });

  test("takes queries whose heads lie before their positions as they are", () => {
    const turned = (query: Var) => makeEqn("transpose", [given], [query], { permutation: [0, 2, 1, 3] });
    const given = f32(B, N, T, H);
    const program = attention(params, given, turned);
    expect(lowered(program).kernels).toHaveLength(1);
    const strides = { batch: 4 * N * T * H, row: 4 * H, head: 4 * T * H };
    expect(onlyPlan(program).strides.query).toEqual(strides);
  });

  test("copies queries whose features are apart, and queries that lie backwards", () => {
    const apart = f32(B, T, H, N);
    const behind = f32(B, T, N, H);
    const programs = [
      attention(params, apart, (query) =>
        makeEqn("transpose", [apart], [query], { permutation: [0, 1, 3, 2] }),
      ),
      ...[0, 1, 2].map((dim) =>
        attention(params, behind, (query) => makeEqn("reverse", [behind], [query], { dims: [dim] })),
      ),
    ];
    for (const program of programs) {
      expect(lowered(program).kernels.length, JSON.stringify(program.eqns[0]?.params)).toBe(2);
      expect(onlyPlan(program).strides.query).toEqual(queryStrides);
    }
  });

  test.each([
    [2 ** 22 - 1, 1],
    [2 ** 22, 2],
  ])("of the first rows of %i steps over the others if an instruction can", (length, numKernels) => {
    const given = f32(B, length, N, H);
    const limits = [B, T, N, H];
    const first = (query: Var) =>
      makeEqn("slice", [given], [query], { starts: [0, 0, 0, 0], limits, strides: [1, 1, 1, 1] });
    expect(lowered(attention(params, given, first)).kernels).toHaveLength(numKernels);
  });

  test("takes queries that are the same for all of the batch as they are", () => {
    const given = f32(T, N, H);
    const shape = [B, T, N, H];
    const repeated = (query: Var) => makeEqn("broadcastInDim", [given], [query], { shape, dims: [1, 2, 3] });
    const program = attention(params, given, repeated);
    expect(lowered(program).kernels).toHaveLength(1);
    expect(onlyPlan(program).strides.query).toEqual({ ...queryStrides, batch: 0 });
  });

  test("reads its operands, writes its results, and has scratch memory for every thread", () => {
    const program = attention(params);
    for (const threads of [1, 3]) {
      const { kernels, notes } = lowered(program, threads);
      const [{ step }] = [at(kernels, 0)];
      const { buffer, offset } = at(step.args, 5);
      expect([step.args.length, step.reads, step.writes]).toEqual([6, [0, 1, 2, 5], [3, 4, 5]]);
      expect(step.rows).toBe(B * N);
      expect([buffer.kind.kind, buffer.bytes, offset]).toEqual([
        ...["temporary", threads * attentionScratchBytes(onlyPlan(program)), 0],
      ]);
      const bytes = [...program.inputs, ...program.outputs].reduce((sum, { type }) => sum + bytesOf(type), 0);
      expect(notes).toEqual([["attention", 2 * 2 * B * N * T * S * H, bytes]]);
    }
  });

  test.each([false, true])("has cotangents, those of log-sums if there are any: %s", (hasSums) => {
    const [query, key, value, logSums] = [f32(B, T, N, H), f32(B, S, K, H), f32(B, S, K, H), f32(B, N, T)];
    const more = hasSums ? [f32(B, N, T)] : [];
    const inputs = [query, key, value, logSums, f32(B, T, N, H), f32(B, T, N, H), ...more];
    const outputs = [f32(B, T, N, H), f32(B, S, K, H), f32(B, S, K, H)];
    const options = { ...params, ...(hasSums && { extras: ["logSumsCotangent"] as const }) };
    const eqns = [makeEqn("attentionBackward", inputs, outputs, options)];
    const program = { inputs, eqns, outputs };
    const { kernels, notes } = lowered(program);
    expect(onlyPlan(program).args).toEqual([
      ...["query", "key", "value", "logSums", "mixedCotangent", "mixed"],
      ...(hasSums ? ["logSumsCotangent"] : []),
      ...["queryCotangent", "keyCotangent", "valueCotangent"],
    ]);
    expect(onlyPlan(program).strides).toMatchObject({
      queryCotangent: queryStrides,
      keyCotangent: keyStrides,
    });
    const first = inputs.length;
    expect(at(kernels, 0).step).toMatchObject({
      reads: [...inputs.keys(), first + 3],
      writes: [first, first + 1, first + 2, first + 3],
    });
    const bytes = [...inputs, ...outputs].reduce((sum, { type }) => sum + bytesOf(type), 0);
    expect(notes).toEqual([["attentionBackward", 5 * 2 * B * N * T * S * H, bytes]]);
  });
});
