import { type DType, isFloat } from "../../../src/ir/dtype.js";
import { type Shape, sameNumbers } from "../../../src/ir/shape.js";
import { shardingOf } from "../../../src/spmd/mesh/sharding.js";
import { processAllGather } from "../../../src/spmd/run/processInfo.js";
import { Tensor, type TensorData } from "../../../src/trace/tensor.js";
import { flattenWithPath } from "../../../src/trace/tree.js";
import { unitOfLastPlace } from "../../support/floatBits.js";
import { HostArray } from "./cases.js";

/** A result that is not what it should be. */
export class Mismatch extends Error {
  /** The largest difference of an element; infinite when the arrays cannot be compared. */
  readonly difference: number;

  constructor(message: string, difference = Number.POSITIVE_INFINITY) {
    super(message);
    this.difference = difference;
  }
}

/** How far a result may be off: an element passes when any of the bounds holds. */
export interface Tolerance {
  /** Relative to the expected value. */
  readonly rtol?: number;
  readonly atol?: number;
  /** In units of the last place of the expected value, in the expected data type or in `ulpType`. */
  readonly ulps?: number;
  /** The type the values went through, where that is shorter than the one they are in. */
  readonly ulpType?: DType;
}

/** The agreement expected with the reference values. */
export const agreement = {
  exact: {},
  /** Values in float32. */
  value: { rtol: 1e-5, atol: 1e-6 },
  /** Gradients in float32. */
  gradient: { rtol: 1e-4, atol: 1e-5 },
  /** Anything in bfloat16 or float16. */
  half: { ulps: 1 },
} as const satisfies Record<string, Tolerance>;

/** What comparisons accept as an array. */
export type Comparable = Tensor | HostArray | number | readonly number[];

/**
 * Fails unless the arrays agree in shape, data type and values; the message shows where they differ most.
 * Plain numbers are compared by their values only.
 *
 * @param tolerance integers and booleans agree exactly, bfloat16 and float16 within a unit of the last place,
 * other floats like {@link agreement}.value, by default
 */
export async function expectClose(
  actual: Comparable,
  expected: Comparable,
  tolerance?: Tolerance,
  what = "the result",
): Promise<void> {
  const [got, want] = [await download(actual), await download(expected)];
  if (got.array && want.array) {
    if (!sameNumbers(got.array.shape, want.array.shape)) {
      throw new Mismatch(`${what} has shape [${got.array.shape}], expected [${want.array.shape}]`);
    }
    if (got.array.dtype !== want.array.dtype) {
      throw new Mismatch(`${what} is ${got.array.dtype}, expected ${want.array.dtype}`);
    }
  }
  if (got.values.length !== want.values.length) {
    throw new Mismatch(`${what} has ${got.values.length} elements, expected ${want.values.length}`);
  }
  const dtype = want.array?.dtype ?? got.array?.dtype ?? "float32";
  const shape = got.array?.shape ?? want.array?.shape ?? [got.values.length];
  compareValues(got.values, want.values, { dtype, shape, what, tolerance: tolerance ?? usual(dtype) });
}

/** {@link expectClose} for every leaf of two trees, which must have the same leaves. */
export async function expectTreeClose(
  actual: unknown,
  expected: unknown,
  tolerance?: Tolerance,
): Promise<void> {
  const got = flattenWithPath(actual);
  const want = flattenWithPath(expected);
  const paths = (entries: readonly { path: string }[]) => entries.map(({ path }) => path).join(", ");
  if (paths(got) !== paths(want)) {
    throw new Mismatch(`the result has the leaves ${paths(got)}, expected ${paths(want)}`);
  }
  for (const [i, { path, leaf }] of got.entries()) {
    await expectClose(comparable(leaf, path), comparable(want[i]?.leaf, path), tolerance, `leaf ${path}`);
  }
}

function comparable(leaf: unknown, path: string): Comparable {
  if (leaf instanceof Tensor || leaf instanceof HostArray || typeof leaf === "number") return leaf;
  throw new Mismatch(`leaf ${path} is no array`);
}

async function download(
  value: Comparable,
): Promise<{ values: ArrayLike<number>; array?: { dtype: DType; shape: Shape } }> {
  if (typeof value === "number") return { values: [value] };
  if (value instanceof Tensor) return { values: await wholeOf(value), array: value.type };
  if (value instanceof HostArray) return { values: value.values, array: value };
  return { values: value };
}

function usual(dtype: DType): Tolerance {
  if (!isFloat(dtype)) return agreement.exact;
  return dtype === "bfloat16" || dtype === "float16" ? agreement.half : agreement.value;
}

interface Comparison {
  readonly dtype: DType;
  readonly shape: Shape;
  readonly what: string;
  readonly tolerance: Tolerance;
}

function compareValues(got: ArrayLike<number>, want: ArrayLike<number>, comparison: Comparison): void {
  const { dtype, shape, what, tolerance } = comparison;
  let wrong = 0;
  let worst = { excess: 0, index: -1 };
  for (let i = 0; i < want.length; i++) {
    const [a, b] = [got[i] ?? Number.NaN, want[i] ?? Number.NaN];
    if (a === b || (Number.isNaN(a) && Number.isNaN(b))) continue;
    const difference = Math.abs(a - b);
    const bound = boundOf(b, tolerance, dtype);
    if (difference <= bound) continue;
    wrong++;
    const excess = Number.isNaN(difference) || bound === 0 ? Number.POSITIVE_INFINITY : difference / bound;
    if (worst.index < 0 || excess > worst.excess) worst = { excess, index: i };
  }
  if (wrong === 0) return;
  const { index, excess } = worst;
  const [a, b] = [got[index] ?? Number.NaN, want[index] ?? Number.NaN];
  const bounds = Object.entries(tolerance).map(([name, bound]) => `${name} ${bound}`);
  throw new Mismatch(
    `${what}: ${wrong} of ${want.length} elements differ (${bounds.join(" or ") || "exactly"}); most at ` +
      `[${indices(index, shape)}]: got ${a}, expected ${b}, difference ${Math.abs(a - b)}` +
      (Number.isFinite(excess) ? `, ${excess.toPrecision(3)} times the bound` : ""),
    Math.abs(a - b),
  );
}

function boundOf(
  expected: number,
  { rtol = 0, atol = 0, ulps = 0, ulpType }: Tolerance,
  dtype: DType,
): number {
  if (!Number.isFinite(expected)) return 0;
  return Math.max(
    rtol * Math.abs(expected),
    atol,
    ulps === 0 ? 0 : ulps * unitOfLastPlace(expected, ulpType ?? dtype),
  );
}

function indices(index: number, shape: Shape): number[] {
  const result: number[] = [];
  let rest = index;
  for (const n of [...shape].reverse()) {
    result.unshift(rest % n);
    rest = Math.floor(rest / n);
  }
  return result;
}

/** The elements of a tensor, also of one that is spread over processes; all of them compare the same tensors. */
export async function wholeOf(tensor: Tensor): Promise<TensorData> {
  const isHere = shardingOf(tensor)?.isFullyAddressable ?? true;
  return (isHere ? tensor : await processAllGather(tensor)).data();
}
