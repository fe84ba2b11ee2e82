import { describe, expect, test } from "vitest";
import { printKernel, printPhases, text } from "../../../test/support/compilerText.js";
import { randomKernels, randomRowKernel } from "../../../test/support/kernelRuns.js";
import { at, range } from "../../ir/shape.js";
import { BASELINE_FEATURES } from "../wasm/features.js";
import { canonical } from "./canonical.js";
import { markBelowZero } from "./markBelowZero.js";
import { innerNodes, type KernelPlan, planKernel } from "./phases.js";
import type { Section } from "./section.js";
import type { KernelNode, KernelSpec } from "./spec.js";

const op = (name: "sub" | "exp" | "mul" | "neg" | "floor", ...args: number[]): KernelNode => {
  return {
    kind: "op",
    dtype: "float32",
    call: { op: name, from: "float32", to: "float32" },
    args,
    result: 0,
  };
};
const x: KernelNode = { kind: "load", dtype: "float32", access: { arg: 0, strides: [8, 1] } };
const reduce = (combine: "max" | "sum", arg: number): KernelNode => ({
  kind: "reduce",
  dtype: "float32",
  combine,
  arg,
});
const rows = (nodes: readonly KernelNode[], node: number): KernelSpec => ({
  dims: [4, 8],
  numRows: 1,
  args: ["float32", "float32"],
  nodes,
  stores: [{ node, access: { arg: 1, strides: [8, 1] } }],
  fills: [],
});

describe("how a kernel is divided into runs", () => {
  test("a value that is looked up by an index counts as expensive sooner than one that is read in order", () => {
    const index = { access: { arg: 2, strides: [8, 1] }, stride: 1, limit: 8 };
    const looked: KernelNode = { kind: "load", dtype: "float32", access: { arg: 0, strides: [0, 0] }, index };
    const spills = (first: KernelNode) =>
      planKernel(
        rows([first, op("neg", 0), op("floor", 1), reduce("max", 2), op("sub", 2, 3)], 4),
        BASELINE_FEATURES,
      ).spills;
    expect(spills(looked)).toEqual([2]);
    expect(spills(x)).toEqual([]);
  });

  test("a row leaves behind what is read later, and not what it only needs itself", () => {
    const own: KernelNode = { kind: "load", dtype: "float32", access: { arg: 0, strides: [1, 0] } };
    const plan = planKernel(rows([own, op("neg", 0), x, op("mul", 1, 2)], 3), BASELINE_FEATURES);
    expect(plan.phases.map(({ row }) => row.outputs)).toEqual([[{ kind: "keep", node: 1 }]]);
  });

  test("a softmax runs three times through a row, and keeps its exponentials", () => {
    const spec = rows(
      [x, reduce("max", 0), op("sub", 0, 1), op("exp", 2), reduce("sum", 3), op("mul", 3, 4)],
      5,
    );
    expect(printKernel(spec)).toBe(text`
      loops [4 | 8]
      v0 = f32 a[8 1]
      v1 = f32 max of v0 over the row
      v2 = f32 sub v0 v1
      v3 = f32 exp v2
      v4 = f32 sum of v3 over the row
      v5 = f32 mul v3 v4
      b[8 1] = v5`);
    const plan = planKernel(spec, BASELINE_FEATURES);
    expect(printPhases(plan)).toBe(text`
      run 0: v0 → reduce v1
      run 1: v0, row v1 → reduce v4, spill v3
      run 2: kept v3, row v4 → b[8 1] = v5`);
    expect(plan.spills).toEqual([3]);
  });

  test("what is cheap is computed again instead of being kept", () => {
    const spec = rows([x, op("neg", 0), reduce("sum", 1), op("mul", 1, 2)], 3);
    expect(printPhases(planKernel(spec, BASELINE_FEATURES))).toBe(text`
      run 0: v0 → reduce v2
      run 1: v0, row v2 → b[8 1] = v3`);
  });

  test("six instructions are worth being kept, five are computed again", () => {
    const steps = (count: number) => range(count).map((i) => op(i % 2 === 0 ? "floor" : "neg", i));
    const plans = [4, 5].map((count) => {
      const nodes = [x, ...steps(count), reduce("sum", count), op("mul", count, count + 1)];
      return planKernel(rows(nodes, count + 2), BASELINE_FEATURES);
    });
    expect(plans.map(({ spills }) => spills)).toEqual([[], [5]]);
    expect(plans.map(({ phases }) => phases.length)).toEqual([2, 2]);
  });

  test("what belongs to the row is computed once, before the run that needs it", () => {
    const spec = rows([x, reduce("max", 0), op("exp", 1), op("mul", 0, 2)], 3);
    expect(printPhases(planKernel(spec, BASELINE_FEATURES))).toBe(text`
      run 0: v0 → reduce v1
      row 1: row v1 → keep v2
      run 1: v0, row v2 → b[8 1] = v3`);
  });
});

/** What is wrong with the sections of a kernel, run through in their order. */
function problems(plan: KernelPlan): string[] {
  const { nodes, stores } = plan.spec;
  const inner = innerNodes(plan.spec);
  const found: string[] = [];
  const known = new Set<number>();
  const kept = new Set<number>();
  const done: string[] = [];
  const run = (section: Section, isRow: boolean): void => {
    for (const node of section.uniforms)
      if (!known.has(node)) found.push(`v${node} is read before it is known`);
    for (const { kind, node } of section.inputs) {
      if (kind === "spill" && !kept.has(node)) found.push(`v${node} is read before it is kept`);
      if (isRow && at(inner, node)) found.push(`v${node} is no value of the row`);
    }
    for (const output of section.outputs) {
      if (output.kind === "store") done.push(`store ${stores.indexOf(output.store)}`);
      else {
        done.push(`${output.kind} ${output.node}`);
        (output.kind === "spill" ? kept : known).add(output.node);
      }
    }
  };
  for (const { row, inner: body } of plan.phases) {
    run(row, true);
    run(body, false);
  }
  run(plan.last, true);
  const reduces = range(nodes.length).filter((i) => at(nodes, i).kind === "reduce");
  const due = [...stores.keys()].map((i) => `store ${i}`).concat(reduces.map((i) => `reduce ${i}`));
  for (const what of due) if (!done.includes(what)) found.push(`${what} is missing`);
  for (const [i, what] of done.entries()) if (done.indexOf(what) !== i) found.push(`${what} happens twice`);
  return found;
}

describe("random kernels, divided into runs", () => {
  const plans = [...randomKernels(80, 2000), ...range(200).map(randomRowKernel)]
    .filter((spec) => spec.dims.every((n) => n > 0))
    .map((spec) => planKernel(markBelowZero(canonical(spec)), BASELINE_FEATURES));

  test("know every value before they read it, and do every store and reduction once", () => {
    for (const plan of plans)
      expect(problems(plan), `${printKernel(plan.spec)}\n${printPhases(plan)}`).toEqual([]);
  });

  test("are of all kinds: with several runs, kept values and code of rows", () => {
    expect(plans.filter((plan) => plan.phases.length > 1).length).toBeGreaterThan(10);
    expect(plans.filter((plan) => plan.spills.length > 0).length).toBeGreaterThan(3);
    expect(
      plans.filter((plan) => plan.phases.some(({ row }) => row.outputs.length > 0)).length,
    ).toBeGreaterThan(10);
  });
});
