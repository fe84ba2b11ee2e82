/** Squared gradients of matrices kept as one row and one column: the memory of Adafactor. */

import type { OptionsOf } from "../../ir/schema.js";
import type { Shape } from "../../ir/shape.js";
import { zeros } from "../../numpy/arrays/creation.js";
import { expandDims } from "../../numpy/arrays/shaping.js";
import { add, divide, multiply, power, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype } from "../../numpy/elementwise/elementwise.js";
import { squaredSize } from "../../numpy/operands.js";
import { mean, sum } from "../../numpy/reductions/reductions.js";
import type { Tensor } from "../../trace/tensor.js";
import { zeroCount, zerosOf } from "./moments.js";
import { factoredRmsOptions } from "./options.js";
import type { CountState } from "./scaling.js";
import {
  mapTensors,
  requireParams,
  type TypedTransformation,
  typedTransformation,
} from "./transformation.js";

/** Options of {@link scaleByFactoredRms}. */
export interface FactoredRmsOptions extends OptionsOf<typeof factoredRmsOptions> {}

/** The running means of squared gradients: rows and columns of large parameters, `v` of the others. */
export interface FactoredState extends CountState {
  readonly vRow: unknown;
  readonly vCol: unknown;
  readonly v: unknown;
}

/** The two largest dims, the second largest first, of a parameter that is kept as a row and a column. */
function factoredDims(shape: Shape, least: number): readonly [number, number] | undefined {
  const bySize = shape.map((_, dim) => dim).sort((a, b) => (shape[a] ?? 0) - (shape[b] ?? 0));
  const [small, large] = bySize.slice(-2);
  if (small === undefined || large === undefined || (shape[small] ?? 0) < least) return undefined;
  return [small, large];
}

/**
 * Divides gradients by the root of a running mean of their squares, of which only factors are kept.
 *
 * @example
 * ```ts
 * const step = optim.scaleByFactoredRms();
 * const params = { w: np.array([1, 2]) };
 * step.update({ w: np.array([2, -4]) }, step.init(params), params)[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleByFactoredRms(options?: FactoredRmsOptions): TypedTransformation<FactoredState> {
  const { factored, decayRate, decayOffset, minDimSizeToFactor, eps } = factoredRmsOptions.read(
    options,
    "scaleByFactoredRms",
  );
  const dimsOf = (x: Tensor) => (factored ? factoredDims(x.shape, minDimSizeToFactor) : undefined);
  const unused = (x: Tensor) => zeros([1], x.dtype);
  return typedTransformation<FactoredState>(
    "scaleByFactoredRms",
    { vRow: "tree", vCol: "tree", v: "tree", count: "tensor" },
    {
      init: (params) => ({
        count: zeroCount(),
        vRow: mapTensors((p) => without(p, dimsOf(p)?.[1]), params),
        vCol: mapTensors((p) => without(p, dimsOf(p)?.[0]), params),
        v: mapTensors((p) => (dimsOf(p) ? unused(p) : p), zerosOf(params)),
      }),
      update: <T>(grads: T, state: FactoredState, params?: T): [T, FactoredState] => {
        const given = requireParams(params, "scaleByFactoredRms");
        const steps = astype(state.count, "float32").add(1 - decayOffset);
        const decay = subtract(1, power(steps, -decayRate));
        const follow = (old: Tensor, squares: Tensor, p: Tensor) =>
          astype(add(multiply(old, decay), multiply(squares, subtract(1, decay))), p.dtype);
        const squaresOf = (g: Tensor) => add(squaredSize(g), eps);
        const along = (which: 0 | 1) => (g: Tensor, p: Tensor, old: Tensor) => {
          const dim = dimsOf(p)?.[which];
          return dim === undefined ? old : follow(old, mean(squaresOf(g), dim), p);
        };
        const vRow = mapTensors(along(1), grads, given, state.vRow);
        const vCol = mapTensors(along(0), grads, given, state.vCol);
        const v = mapTensors(
          (g, p, old) => (dimsOf(p) ? old : follow(old, squaresOf(g), p)),
          grads,
          given,
          state.v,
        );
        const updates = mapTensors(
          (g, p, row, col, all) => {
            const dims = dimsOf(p);
            return dims ? overFactors(g, dims, row, col) : multiply(g, power(all, -0.5));
          },
          grads,
          given,
          vRow,
          vCol,
          v,
        );
        return [updates, { count: state.count.add(1), vRow, vCol, v }];
      },
    },
  );
}

/** Zeros in the shape of a parameter without a dim; one zero where nothing is kept. */
function without(p: Tensor, dim: number | undefined): Tensor {
  return dim === undefined ? zeros([1], p.dtype) : sum(zeros(p.shape, p.dtype), dim);
}

function overFactors(g: Tensor, [small, large]: readonly [number, number], row: Tensor, col: Tensor): Tensor {
  const smallOfRow = small > large ? small - 1 : small;
  const rowFactor = power(divide(row, mean(row, smallOfRow, { keepdims: true })), -0.5);
  const colFactor = power(col, -0.5);
  return multiply(multiply(g, expandDims(rowFactor, large)), expandDims(colFactor, small));
}
