/** Distributions as tables of functions of a standard variable; location and scale are handled here, once. */

import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { is, pick, type Tensors, withFloats } from "../operands.js";

/** A function of a standard variable, or of a share of it, and of the parameters of a distribution. */
type Standard<P extends readonly TensorLike[]> = (z: Tensor, ...params: Tensors<P>) => Tensor;

/** A function of a value and of parameters. */
type Method<A extends readonly unknown[]> = (x: TensorLike, ...params: A) => Tensor;

/** A distribution with a location and a scale, 0 and 1 by default. */
export type Continuous<P extends readonly TensorLike[], K extends string> = {
  readonly [N in K | "pdf"]: Method<[...P, loc?: TensorLike, scale?: TensorLike]>;
};

/** A distribution of counts with a location, 0 by default. */
export type Discrete<P extends readonly TensorLike[], K extends string> = {
  readonly [N in K | "pmf"]: Method<[...P, loc?: TensorLike]>;
};

/** A distribution without location and scale. */
export type Fixed<P extends readonly TensorLike[], K extends string> = {
  readonly [N in K]: Method<P>;
};

type AnyMethod = Method<TensorLike[]>;

/** A method for each entry of a table. */
function methodsOf<P extends readonly TensorLike[], K extends string>(
  name: string,
  table: Readonly<Record<K, Standard<P>>>,
  method: (compute: (...args: Tensor[]) => Tensor, which: string, caller: string) => AnyMethod,
): Readonly<Record<K, AnyMethod>> {
  const rows = Object.entries<Standard<P>>(table).map(([which, compute]) => [
    which,
    method(compute as (...args: Tensor[]) => Tensor, which, `scipy.stats.${name}.${which}`),
  ]);
  return Object.fromEntries(rows);
}

/** A density from its logarithm. */
const densityOf =
  <P extends readonly TensorLike[]>(log: Standard<P>): Standard<P> =>
  (z, ...params) =>
    ops.exp(log(z, ...params));

/**
 * A distribution with location and scale, made of its functions for location 0 and scale 1.
 *
 * @param count the number of its other parameters
 */
export function continuous<P extends readonly TensorLike[], K extends string>(
  name: string,
  count: P["length"],
  table: Readonly<Record<K | "logpdf", Standard<P>>>,
): Continuous<P, K | "logpdf"> {
  const rows = { ...table, pdf: table.logpdf };
  const methods = methodsOf(name, rows, (compute, which, caller) => (x, ...given) => {
    const [loc = 0, scale = 1] = given.slice(count);
    return withFloats([x, loc, scale, ...given.slice(0, count)], caller, (y, center, width, ...params) => {
      if (which === "ppf" || which === "isf") return ops.add(ops.mul(compute(y, ...params), width), center);
      const value = compute(ops.div(ops.sub(y, center), width), ...params);
      if (which !== "logpdf" && which !== "pdf") return value;
      // Where the density is 0, the scale does not change it.
      const log = ops.sub(value, pick(is(value, "eq", Number.NEGATIVE_INFINITY), 0, ops.log(width)));
      return which === "pdf" ? ops.exp(log) : log;
    });
  });
  return methods as Continuous<P, K | "logpdf">;
}

/** A distribution of counts with a location, made of its functions for location 0. */
export function discrete<P extends readonly TensorLike[], K extends string>(
  name: string,
  count: P["length"],
  table: Readonly<Record<K | "logpmf", Standard<P>>>,
): Discrete<P, K | "logpmf"> {
  const rows = { ...table, pmf: densityOf(table.logpmf) };
  const methods = methodsOf(name, rows, (compute, _, caller) => (x, ...given) => {
    const [loc = 0] = given.slice(count);
    return withFloats([x, loc, ...given.slice(0, count)], caller, (k, center, ...params) =>
      compute(ops.sub(k, center), ...params),
    );
  });
  return methods as Discrete<P, K | "logpmf">;
}

/** A distribution without location and scale. */
export function fixed<P extends readonly TensorLike[], K extends string>(
  name: string,
  table: Readonly<Record<K | "logpdf", Standard<P>>>,
): Fixed<P, K | "logpdf" | "pdf"> {
  const methods = methodsOf(
    name,
    { ...table, pdf: densityOf(table.logpdf) },
    (compute, _, caller) =>
      (x, ...given) =>
        withFloats([x, ...given], caller, compute),
  );
  return methods as unknown as Fixed<P, K | "logpdf" | "pdf">;
}
