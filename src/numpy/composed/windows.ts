/** Windows by which signals are multiplied before they are transformed. */
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { range } from "../../ir/shape.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { array } from "../arrays/creation.js";
import { divide, multiply } from "../elementwise/arithmetic.js";
import { i0 } from "../elementwise/elementwise.js";

/** A window of `n` points that are found by their place from −1 to 1; 0 is that of a single one. */
function windowOf(name: string, valueAt: (place: number) => number): (n: number) => Tensor {
  return (n) => array(placesOf(n, name).map(valueAt), "float32");
}

function placesOf(n: number, caller: string): number[] {
  if (!(Number.isInteger(n) && n >= 0)) {
    throw new ValueError(
      `[${caller}] the number of points must be an integer of at least 0, got ${describe(n)}`,
    );
  }
  return range(n).map((i) => (n === 1 ? 0 : (2 * i) / (n - 1) - 1));
}

/** A sum of cosines, whose factors are those of 1, cos x, cos 2x, … over one period. */
function cosines(...factors: readonly number[]): (place: number) => number {
  return (place) =>
    factors.reduce((total, factor, k) => total + factor * Math.cos(k * Math.PI * (place + 1)), 0);
}

/**
 * Hann's window.
 *
 * @example
 * ```ts
 * np.hanning(5); // [0, 0.5, 1, 0.5, 0]
 * ```
 */
export const hanning = windowOf("hanning", cosines(0.5, -0.5));
/**
 * Hamming's window.
 *
 * @example
 * ```ts
 * np.hamming(5); // [0.08, 0.54, 1, 0.54, 0.08]
 * ```
 */
export const hamming = windowOf("hamming", cosines(0.54, -0.46));
/**
 * Blackman's window.
 *
 * @example
 * ```ts
 * np.blackman(5); // [-1.388e-17, 0.34, 1, 0.34, -1.388e-17]
 * ```
 */
export const blackman = windowOf("blackman", cosines(0.42, -0.5, 0.08));
/**
 * Bartlett's window, a triangle.
 *
 * @example
 * ```ts
 * np.bartlett(5); // [0, 0.5, 1, 0.5, 0]
 * ```
 */
export const bartlett = windowOf("bartlett", (place) => 1 - Math.abs(place));

/**
 * Kaiser's window of `n` points.
 *
 * @param beta how fast it falls: 0 gives ones, 5 is close to {@link hamming}, 6 to {@link hanning}, 8.6 to {@link blackman}
 *
 * @example
 * ```ts
 * np.kaiser(5, 14); // [0.000007727, 0.1649, 1, 0.1649, 0.000007727]
 * ```
 */
export function kaiser(n: number, beta: TensorLike): Tensor {
  const heights = placesOf(n, "kaiser").map((place) => Math.sqrt(Math.max(0, 1 - place * place)));
  return divide(i0(multiply(array(heights, "float32"), beta)), i0(beta));
}
