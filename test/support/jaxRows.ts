import { test } from "vitest";
import { type DType, np, type Tensor } from "../../src/index.js";
import { expectClose, HostArray, type Tolerance } from "./goldens.js";

/** An expression, what it is in TypeScript, and what JAX computes for it. */
export type Row = readonly [string, () => Tensor, DType, readonly number[], readonly number[]];

/** Floats with and without a sign. */
export const f = np.array([
  [-1.5, 0.25, 2],
  [3, -0.75, 0.5],
]);
/** Other floats of the same shape. */
export const g = np.array([
  [0.5, 2, -1],
  [1.5, -2, 0.25],
]);
/** A row of floats. */
export const v = np.array([1, -2, 0.5]);
/** Positive floats. */
export const p = np.array([
  [0.1, 1, 2.5],
  [0.75, 10, 3],
]);
/** Floats within the unit interval and its mirror image. */
export const u = np.array([-0.9, -0.25, 0, 0.5, 0.99]);
/** Integers. */
export const i = np.array(
  [
    [5, -3, 7],
    [-8, 2, 0],
  ],
  { dtype: "int32" },
);
/** A row of integers. */
export const j = np.array(new Int32Array([3, -2, 4]));
/** Unsigned integers, one beyond the signed ones. */
export const w = np.array(new Uint32Array([7, 1, 4000000000]));
/** Booleans. */
export const b = np.array([
  [true, false, true],
  [false, false, true],
]);
/** A row of booleans. */
export const c = np.array([true, true, false]);
/** Numbers that are special. */
export const n = np.array([Number.NaN, Infinity, -Infinity, -0, 1]);
/** Half-width floats. */
export const h = np.array([1.5, -2.25, 300, 0.01], { dtype: "bfloat16" });
/** Three dims. */
export const t = np.arange(24).reshape(2, 3, 4).astype("float32").div(8);
/** A square. */
export const m = np.arange(9).reshape(3, 3).astype("float32");

/** Tests for every row that the expression has the type, the shape and the values that it has in JAX. */
export function testRows(rows: readonly Row[], tolerance?: Tolerance): void {
  test.each(rows)("%s is what JAX computes", async (_, compute, dtype, shape, values) => {
    await expectClose(compute(), HostArray.of(dtype, shape, values), tolerance);
  });
}
