import { describe, expect, test } from "vitest";
import "../../src/index.js";
import { agreement, expectClose, expectTreeClose, type GoldenArea, goldens, HostArray } from "./goldens.js";

const counts: readonly (readonly [GoldenArea, number])[] = [
  ["random", 11],
  ["modules", 11],
  ["collectives", 35],
  ["data_parallel", 22],
  ["tensor_parallel", 69],
  ["pipeline_parallel", 9],
  ["circular_pipeline", 12],
  ["language_model", 4],
];

describe("goldens", () => {
  test.each(counts)("reads the cases of %s", (area, count) => {
    expect(goldens(area)).toHaveLength(count);
  });

  test("resolves tensors, trees, booleans and bfloat16, and keeps other values", () => {
    const [seed] = goldens("random");
    expect(seed?.host("values", "bernoulli_0.3_20").dtype).toBe("bool");
    expect(seed?.host("values", "normal_bf16_8")).toMatchObject({ dtype: "bfloat16", shape: [8] });
    expect(seed?.number("seed")).toBe(0);
    const dense = goldens("modules").find(({ name }) => name === "dense");
    expect(dense?.tree("variables")).toMatchObject({ params: { bias: { dtype: "float32" } } });
    const [psum] = goldens("collectives");
    expect(psum?.mesh).toEqual([["i", 2]]);
    expect(psum?.host("x").row(1).shape).toEqual(psum?.host("x").shape.slice(1));
  });

  test("says which value is missing or of another kind", () => {
    const [seed] = goldens("random");
    expect(() => seed?.host("values", "nothing")).toThrow("golden random/seed0: values > nothing is missing");
    expect(() => seed?.host("seed")).toThrow("seed is no array");
  });
});

describe("expectClose", () => {
  const f32 = (...values: number[]) => HostArray.of("float32", [values.length], values);

  test("passes within any of the bounds", async () => {
    await expectClose(f32(1, 2), f32(1, 2));
    await expectClose(f32(1.000009, 9e-7), f32(1, 0));
    await expectClose(f32(Number.NaN, Number.POSITIVE_INFINITY), f32(Number.NaN, Number.POSITIVE_INFINITY));
    await expectClose(f32(1, 2).toTensor(), [1, 2]);
    await expectClose(HostArray.of("bfloat16", [1], [1.0078125]), HostArray.of("bfloat16", [1], [1]));
    await expectClose(HostArray.of("float16", [1], [2 ** -24]), HostArray.of("float16", [1], [0]));
  });

  test("shows the worst element and its place", async () => {
    const got = HostArray.of("float32", [2, 2], [1, 2, 3.5, 4.1]);
    const want = HostArray.of("float32", [2, 2], [1, 2, 3, 4]);
    await expect(expectClose(got, want, agreement.gradient, "y")).rejects.toThrow(
      "y: 2 of 4 elements differ (rtol 0.0001 or atol 0.00001); most at [1,0]: got 3.5, expected 3, difference 0.5",
    );
  });

  test.each<[string, HostArray, HostArray, string]>([
    ["another shape", f32(1), HostArray.of("float32", [], [1]), "has shape [1], expected []"],
    ["another data type", f32(1), HostArray.of("int32", [1], [1]), "is float32, expected int32"],
    ["another integer", HostArray.of("int32", [1], [2]), HostArray.of("int32", [1], [1]), "exactly"],
    ["NaN", f32(Number.NaN), f32(1), "got NaN, expected 1"],
    ["a finite number", f32(3e38), f32(Number.POSITIVE_INFINITY), "expected Infinity"],
    [
      "two units in the last place of bfloat16",
      HostArray.of("bfloat16", [1], [1.015625]),
      HostArray.of("bfloat16", [1], [1]),
      "ulps 1",
    ],
  ])("refuses %s", async (_what, got, want, message) => {
    await expect(expectClose(got, want)).rejects.toThrow(message);
  });

  test("compares trees leaf by leaf", async () => {
    await expectTreeClose({ a: [f32(1)], b: f32(2) }, { b: f32(2), a: [f32(1)] });
    await expect(expectTreeClose({ a: f32(1) }, { a: f32(2) })).rejects.toThrow("leaf a: 1 of 1");
    await expect(expectTreeClose({ a: f32(1) }, { b: f32(1) })).rejects.toThrow(
      "has the leaves a, expected b",
    );
  });
});
