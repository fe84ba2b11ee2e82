/** Linear equations solved by products alone, for functions whose matrix is too large to write down. */

import { describe } from "../../ir/describe.js";
import { isComplex } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import { customLinearSolve } from "../../lax/implicit.js";
import * as np from "../../numpy/index.js";
import { needTensor } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";

/** A linear function of trees, or the matrix of one. */
export type LinearOperator<T> = Tensor | ((x: T) => T);

const solverOptions = schema({
  /** Where to begin; zeros by default. */
  x0: optional<unknown>("any"),
  /** How small the norm of what is left over must be, relative to that of b; 1e-5 by default. */
  tol: 1e-5,
  /** How small it must be absolutely; 0 by default. */
  atol: 0,
  /** The most steps; ten times the number of unknowns by default. */
  maxiter: optional("integer"),
  /** An approximate inverse of the function, with which it is solved in fewer steps. */
  M: optional<unknown>("any"),
});

/** Options of {@link cg} and {@link bicgstab}. */
export interface IterativeSolverOptions<T> extends Omit<OptionsOf<typeof solverOptions>, "x0" | "M"> {
  /** Where to begin; zeros by default. */
  readonly x0?: T;
  /** An approximate inverse of the function, with which it is solved in fewer steps. */
  readonly M?: LinearOperator<T>;
}

const mapped = <T>(fn: (x: Tensor, ...others: Tensor[]) => Tensor, first: T, ...others: T[]): T =>
  tree.map(fn, first, ...others) as T;
const added = <T>(x: T, size: Tensor, y: T): T => mapped((a, b) => np.add(a, np.multiply(b, size)), x, y);
const subtracted = <T>(x: T, y: T): T => mapped((a, b) => np.subtract(a, b), x, y);
const product = (x: unknown, y: unknown): Tensor =>
  (tree.leaves(tree.map((a: Tensor, b: Tensor) => np.vdot(a, b), x, y)) as Tensor[]).reduce((a, b) =>
    np.add(a, b),
  );
const squares = (x: unknown): Tensor => np.real(product(x, x));

/** What a solver is given: functions, where to begin, and when it is done. */
interface Equation<T> {
  readonly times: (x: T) => T;
  readonly inverse: (x: T) => T;
  readonly x0: T;
  readonly tol: number;
  readonly atol: number;
  readonly maxiter: number;
}

/** The square of the norm at which a solution is good enough. */
const enough = <T>(b: T, { tol, atol }: Equation<T>): Tensor =>
  np.maximum(np.multiply(squares(b), tol ** 2), atol ** 2);

function asFunction<T>(operator: LinearOperator<T>, what: string, caller: string): (x: T) => T {
  if (typeof operator === "function") return operator;
  needTensor(operator, what, caller);
  if (operator.ndim === 2 && at(operator.shape, 0) === at(operator.shape, 1))
    return (x) => np.matmul(operator, x as Tensor) as T;
  throw new ShapeError(
    `[${caller}] ${what} must be a function or a square matrix, got ${formatType(operator.type)}`,
  );
}

function solved<T>(
  caller: string,
  method: (b: T, equation: Equation<T>) => T,
  operator: LinearOperator<T>,
  b: T,
  options: IterativeSolverOptions<T> | undefined,
): [x: T, info: null] {
  const { tol, atol, maxiter, ...read } = solverOptions.read(options, caller);
  const leaves = tree.leaves(b);
  if (!leaves.every((leaf) => leaf instanceof Tensor)) {
    throw new ShapeError(`[${caller}] b must be a tensor or a tree of tensors, got ${describe(b)}`);
  }
  const numUnknowns = leaves.reduce((total, leaf) => total + leaf.size, 0);
  const times = asFunction(operator, "A", caller);
  const equation: Omit<Equation<T>, "times"> = {
    inverse: read.M === undefined ? (x) => x : asFunction(read.M as LinearOperator<T>, "M", caller),
    x0: (read.x0 as T | undefined) ?? mapped((x) => np.zerosLike(x), b),
    tol,
    atol,
    maxiter: maxiter ?? 10 * numUnknowns,
  };
  const solve = (fn: (x: T) => T, right: T) => method(right, { ...equation, times: fn });
  // Functions that conjugate gradients can solve are symmetric if they are real.
  const symmetric = caller === "cg" && !leaves.some((leaf) => isComplex(leaf.dtype));
  return [customLinearSolve(times, b, solve, { transposeSolve: solve, symmetric }), null];
}

function conjugateGradients<T>(b: T, equation: Equation<T>): T {
  const { times, inverse, x0, maxiter } = equation;
  const least = enough(b, equation);
  const rest = subtracted(b, times(x0));
  const direction = inverse(rest);
  const size = np.real(product(rest, direction));
  const [x] = whileLoop(
    ([, r, , , k]) => np.logicalAnd(squares(r).gt(least), k.lt(maxiter)),
    ([x, r, p, gamma, k]): [T, T, T, Tensor, Tensor] => {
      const image = times(p);
      const step = np.divide(gamma, np.real(product(p, image)));
      const next = added(r, np.negative(step), image);
      const better = inverse(next);
      const after = np.real(product(next, better));
      return [added(x, step, p), next, added(better, np.divide(after, gamma), p), after, k.add(1)];
    },
    [x0, rest, direction, size, np.zeros([], "int32")] as [T, T, T, Tensor, Tensor],
  );
  return x;
}

/**
 * Solves `A(x) = b` by conjugate gradients, for a symmetric positive definite function or matrix. It has derivatives by b
 * and by what A closes over.
 *
 * @returns the solution, and `null` as JAX does
 *
 * @example
 * ```ts
 * const A = np.array([[4, 1], [1, 3]]);
 * scipy.sparse.linalg.cg(A, np.array([1, 2]))[0]; // [0.09091, 0.6364]
 * ```
 */
export function cg<T>(A: LinearOperator<T>, b: T, options?: IterativeSolverOptions<T>): [x: T, info: null] {
  return solved("cg", conjugateGradients, A, b, options);
}

/** What a step of the stabilised method knows. */
interface Biconjugate<T> {
  readonly x: T;
  readonly r: T;
  readonly p: T;
  readonly q: T;
  readonly alpha: Tensor;
  readonly omega: Tensor;
  readonly rho: Tensor;
  readonly k: Tensor;
}

function stabilised<T>(b: T, equation: Equation<T>): T {
  const { times, inverse, x0, maxiter } = equation;
  const least = enough(b, equation);
  const shadow = subtracted(b, times(x0));
  const one = np.onesLike(product(shadow, shadow));
  const start: Biconjugate<T> = {
    x: x0,
    r: shadow,
    p: shadow,
    q: shadow,
    alpha: one,
    omega: one,
    rho: one,
    k: np.zeros([], "int32"),
  };
  const { x } = whileLoop(
    ({ r, k }) => np.logicalAnd(squares(r).gt(least), np.logicalAnd(k.lt(maxiter), k.ge(0))),
    (old): Biconjugate<T> => {
      const rho = product(shadow, old.r);
      const beta = np.multiply(np.divide(rho, old.rho), np.divide(old.alpha, old.omega));
      const p = added(old.r, beta, added(old.p, np.negative(old.omega), old.q));
      const first = inverse(p);
      const q = times(first);
      const alpha = np.divide(rho, product(shadow, q));
      const s = added(old.r, np.negative(alpha), q);
      const isDone = squares(s).lt(least);
      const second = inverse(s);
      const t = times(second);
      const omega = np.divide(product(t, s), product(t, t));
      const half = added(old.x, alpha, first);
      const choose = (x: T, y: T) => mapped((a, c) => np.where(isDone, a, c), x, y);
      // A breakdown ends the loop.
      const isBroken = np.logicalOr(rho.eq(0), np.logicalOr(omega.eq(0), alpha.eq(0)));
      return {
        x: choose(half, added(half, omega, second)),
        r: choose(s, added(s, np.negative(omega), t)),
        p,
        q,
        alpha,
        omega,
        rho,
        k: np.where(isBroken, np.array(-10, "int32"), old.k.add(1)),
      };
    },
    start,
  );
  return x;
}

/**
 * Solves `A(x) = b` by the stabilised method of biconjugate gradients, for any regular function or matrix. It has
 * derivatives by b and by what A closes over.
 *
 * @returns the solution, and `null` as JAX does
 *
 * @example
 * ```ts
 * const A = np.array([[4, 1], [0, 3]]);
 * scipy.sparse.linalg.bicgstab(A, np.array([1, 2]))[0]; // [0.08333, 0.6667]
 * ```
 */
export function bicgstab<T>(
  A: LinearOperator<T>,
  b: T,
  options?: IterativeSolverOptions<T>,
): [x: T, info: null] {
  return solved("bicgstab", stabilised, A, b, options);
}
