import { expect, test } from "vitest";
import { runKernel } from "../../../test/support/kernelRuns.js";
import { at } from "../../ir/shape.js";
import {
  type AttentionKernel,
  attentionScratchBytes,
  nativeAttention,
} from "../attention/attentionKernel.js";
import { BASELINE_FEATURES } from "../wasm/features.js";
import { KernelLibrary, kernelImports } from "./kernelLibrary.js";
import type { KernelSpec } from "./spec.js";

const signs = (value: number): KernelSpec => ({
  dims: [5],
  numRows: 0,
  args: ["float64", "float64"],
  nodes: [
    { kind: "load", dtype: "float64", access: { arg: 0, strides: [1] } },
    {
      kind: "op",
      dtype: "float64",
      call: { op: "sign", from: "float64", to: "float64" },
      args: [0],
      result: 0,
    },
    { kind: "literal", dtype: "float64", value },
    {
      kind: "op",
      dtype: "float64",
      call: { op: "mul", from: "float64", to: "float64" },
      args: [1, 2],
      result: 0,
    },
  ],
  stores: [{ node: 3, access: { arg: 1, strides: [1] } }],
  fills: [],
});

test("equal kernels are one, and kernels that differ by the sign of a zero are two", () => {
  const library = new KernelLibrary(BASELINE_FEATURES);
  expect([signs(0), signs(0), signs(-0), signs(1)].map((spec) => library.add(spec).index)).toEqual([
    0, 0, 1, 2,
  ]);
});

test("programs share the plans of equal kernels, unless they are for other threads or other WebAssembly", () => {
  const planned = (features = BASELINE_FEATURES, parts = 1) =>
    new KernelLibrary(features, parts).add(signs(0.25)).plan;
  expect(planned()).toBe(planned());
  expect(planned({ fma: true })).not.toBe(planned());
  expect(planned(BASELINE_FEATURES, 2)).not.toBe(planned());
});

test("a kernel is divided only among threads that there are", () => {
  const large = { ...signs(1), dims: [1 << 16] };
  expect(new KernelLibrary(BASELINE_FEATURES).add(large).rows).toBeUndefined();
  expect(new KernelLibrary(BASELINE_FEATURES, 2).add(large).rows).toBe(8);
});

test("machine code is written for kernels that are divided, and for others", () => {
  const library = new KernelLibrary(BASELINE_FEATURES, 2);
  for (const dims of [[1 << 16], [5]]) library.add({ ...signs(1), dims });
  const divided: boolean[] = [];
  library.module("i32", (_plan, isDivided) => {
    divided.push(isDivided);
    return undefined;
  });
  expect(divided).toEqual([true, false]);
});

test("an attention is one kernel however often it occurs, with scratch memory for every thread", () => {
  const plan: AttentionKernel = {
    ...{ kind: "attention", batch: 2, length: 300, heads: 3, keyLength: 40, keyHeads: 3, headSize: 16 },
    ...{ scale: 1, before: -1, ahead: -1, args: ["query", "key", "value", "mixed", "logSums"], strides: {} },
    tile: { lanes: 16, rows: 14, columns: 32 },
  };
  const library = new KernelLibrary(BASELINE_FEATURES, 3, nativeAttention);
  library.add(signs(1));
  const added = [plan, { ...plan, ahead: 0 }, { ...plan }].map((one) => library.addAttention(one));
  expect(added.map(({ index }) => index)).toEqual([1, 2, 1]);
  expect(library.size).toBe(3);
  expect(added[0]).toMatchObject({ rows: 12, spillBytes: [3 * attentionScratchBytes(plan)] });
  // Code is kept by the plan, so that equal plans have to be the same object.
  expect(new KernelLibrary(BASELINE_FEATURES, 1, nativeAttention).addAttention({ ...plan }).plan).toBe(
    added[0]?.plan,
  );
});

test("a module takes any shared memory, even one that has no page yet", () => {
  const library = new KernelLibrary(BASELINE_FEATURES);
  library.add(signs(1));
  const module = new WebAssembly.Module(library.module().bytes as Uint8Array<ArrayBuffer>);
  const memory = new WebAssembly.Memory({ initial: 0, maximum: 65536, shared: true });
  expect(Object.keys(new WebAssembly.Instance(module, kernelImports(memory)).exports)).toEqual(["k0"]);
});

test("an operand that stays where it is while rows go by costs no instructions for its address", () => {
  const bytes = (dims: [number, number], stride: number) => {
    const library = new KernelLibrary(BASELINE_FEATURES);
    const load = { kind: "load", dtype: "float64", access: { arg: 0, strides: [stride, 1] } } as const;
    const store = { node: 3, access: { arg: 1, strides: [8, 1] } };
    library.add({ ...signs(1), dims, nodes: [load, ...signs(1).nodes.slice(1)], stores: [store] });
    return library.module().bytes.length;
  };
  expect(bytes([4, 7], 0)).toBeLessThan(bytes([4, 7], 7));
});

test("signs of float64 are exactly one, whatever the last bits of the number", () => {
  const values = [0.3, -0.3, 1 + Number.EPSILON, Number.MIN_VALUE, -Number.MAX_VALUE];
  const memory = [values, values.map(() => 7)].map((list) => ({
    dtype: "float64" as const,
    origin: 0,
    values: list,
  }));
  expect(at(runKernel(signs(1), memory), 1).values).toEqual([1, -1, 1, 1, -1]);
});
