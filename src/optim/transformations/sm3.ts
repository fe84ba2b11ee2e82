/** SM3: squared gradients kept as one vector for each dim of a parameter. */

import { type OptionsOf, required, schema } from "../../ir/schema.js";
import { range, type Shape } from "../../ir/shape.js";
import { zeros } from "../../numpy/arrays/creation.js";
import { reshape } from "../../numpy/arrays/shaping.js";
import { add, minimum, multiply } from "../../numpy/elementwise/arithmetic.js";
import { square } from "../../numpy/elementwise/elementwise.js";
import { greater, where } from "../../numpy/elementwise/logic.js";
import { max } from "../../numpy/reductions/reductions.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { blend, zerosOf } from "./moments.js";
import { scale } from "./scaling.js";
import { chain, type GradientTransformation, mapTensors, transformation } from "./transformation.js";

const scaleBySm3Options = schema({
  /** The decay of the mean of updates; 0.9 by default. */
  b1: 0.9,
  /** The decay of squared gradients; 1, which adds them up, by default. */
  b2: 1,
  /** Added inside of the square root; 1e-8 by default. */
  eps: 1e-8,
});

/** Options of {@link scaleBySm3}. */
export interface ScaleBySm3Options extends OptionsOf<typeof scaleBySm3Options> {}

/** The largest squared gradients along each dim, and the mean of updates. */
export interface Sm3State {
  /** For each dim a tree like the parameters; those with fewer dims have a zero there. */
  readonly mu: readonly unknown[];
  readonly nu: unknown;
}

/** Vectors and scalars are kept as they are. */
const keptShape = (shape: Shape, dim: number): Shape => {
  if (dim === 0 && shape.length < 2) return shape;
  const size = shape[dim];
  return size === undefined ? [1] : [size];
};

/**
 * Divides gradients by the root of the sum of their squares, of which only the largest along each dim is kept.
 *
 * @example
 * ```ts
 * const step = optim.scaleBySm3();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0.1, -0.1] }
 * ```
 */
export function scaleBySm3(options?: ScaleBySm3Options): GradientTransformation<Sm3State> {
  const { b1, b2, eps } = scaleBySm3Options.read(options, "scaleBySm3");
  const bound = (g: Tensor, kept: readonly Tensor[]) =>
    kept
      .slice(0, Math.max(g.ndim, 1))
      .map((v, dim) =>
        g.ndim < 2
          ? v
          : reshape(
              v,
              g.shape.map((n, d) => (d === dim ? n : 1)),
            ),
      )
      .reduce(minimum);
  const sumOf = (g: Tensor, ...kept: Tensor[]) =>
    add(multiply(square(g), b2 === 1 ? 1 : 1 - b2), multiply(bound(g, kept), b2));
  return transformation<Sm3State>(
    "scaleBySm3",
    { mu: "tree", nu: "tree" },
    {
      init: (params) => {
        const ranks = (tree.leaves(params) as Tensor[]).map((p) => p.ndim);
        return {
          mu: range(Math.max(1, ...ranks)).map((dim) =>
            mapTensors((p) => zeros(keptShape(p.shape, dim), p.dtype), params),
          ),
          nu: zerosOf(params),
        };
      },
      update: <T>(grads: T, state: Sm3State): [T, Sm3State] => {
        const sums = mapTensors(sumOf, grads, ...state.mu);
        const scaled = mapTensors(
          (g, v) => multiply(g, where(greater(v, 0), ops.rsqrt(add(v, eps)), 0)),
          grads,
          sums,
        );
        const nu = mapTensors((u, mean) => blend(u, mean, b1), scaled, state.nu);
        const mu = state.mu.map((_, dim) => mapTensors((v) => largestAlong(v, dim), sums));
        return [nu, { mu, nu }];
      },
    },
  );
}

function largestAlong(v: Tensor, dim: number): Tensor {
  if (dim === 0 && v.ndim < 2) return v;
  if (dim >= v.ndim) return zeros([1], v.dtype);
  return max(
    v,
    range(v.ndim).filter((d) => d !== dim),
  );
}

const sm3Options = schema({
  /** The step size. */
  learningRate: required("number"),
  /** The decay of the mean of updates; 0.9 by default. */
  momentum: 0.9,
});

/** Options of {@link sm3}. */
export interface Sm3Options extends OptionsOf<typeof sm3Options> {}

/**
 * SM3: Adagrad in the memory of a vector for each dim.
 *
 * @example
 * ```ts
 * const optimizer = optim.sm3({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.01, 0.01] }
 * ```
 */
export function sm3(options: Sm3Options) {
  const { learningRate, momentum } = sm3Options.read(options, "sm3");
  return chain(scaleBySm3({ b1: momentum }), scale(-learningRate));
}
