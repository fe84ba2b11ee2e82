import { expect, test } from "vitest";
import type { DType } from "../../../ir/dtype.js";
import { planLoops } from "../../kernel/loopPlan.js";
import { planKernel } from "../../kernel/phases.js";
import type { KernelSpec } from "../../kernel/spec.js";
import { BASELINE_FEATURES } from "../../wasm/features.js";
import { bytesAhead } from "./x64Prefetch.js";
import { vectorTarget } from "./x64Renderer.js";

/** The sums of the products of a matrix's rows with one row: a product of a row and a matrix. */
function sums(rows: number, length: number, dtype: DType): KernelSpec {
  return {
    dims: [rows, length],
    numRows: 1,
    args: [dtype, "float32", "float32"],
    nodes: [
      { kind: "load", dtype, access: { arg: 0, strides: [length, 1] } },
      { kind: "load", dtype: "float32", access: { arg: 1, strides: [0, 1] } },
      {
        kind: "op",
        dtype: "float32",
        call: { op: "mul", from: "float32", to: "float32" },
        args: [0, 1],
        result: 0,
      },
      { kind: "reduce", dtype: "float32", combine: "sum", arg: 2 },
    ],
    stores: [{ node: 3, access: { arg: 2, strides: [1, 0] } }],
    fills: [],
  };
}

/** The distance for each argument that is prefetched. */
function distances(spec: KernelSpec): (readonly [arg: number, bytes: number])[] {
  const plan = planLoops(planKernel(spec, BASELINE_FEATURES), false, vectorTarget(512));
  return [...bytesAhead(plan)].map(([{ arg }, bytes]) => [arg, bytes]);
}

test("what the next row reads of a large matrix is prefetched, and nothing of a row that stays in the cache", () => {
  expect(distances(sums(4096, 1024, "bfloat16"))).toEqual([[0, 2048]]);
  expect(distances(sums(4096, 1024, "float32"))).toEqual([[0, 4096]]);
});

test("short rows are prefetched several rows ahead, since one would come too late", () => {
  expect(distances(sums(8192, 176, "bfloat16"))).toEqual([[0, 1024]]);
});

test("nothing is prefetched of a matrix that the cache holds, or by a kernel that writes as much as it reads", () => {
  expect(distances(sums(64, 1024, "float32"))).toEqual([]);
  const { nodes, ...rest } = sums(4096, 1024, "float32");
  const stores = [{ node: 2, access: { arg: 2, strides: [1024, 1] } }];
  expect(distances({ ...rest, nodes: nodes.slice(0, 3), stores })).toEqual([]);
});
