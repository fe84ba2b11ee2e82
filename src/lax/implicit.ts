/** Solutions of equations, whose derivatives are those of the equation and not of the steps that found them. */
import { need } from "../ir/arguments.js";
import { ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { callProgram, traceFlat } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import { flattenArgs } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { customVjp, libraryVjp } from "../transforms/derivatives/customVjp.js";
import { vjp } from "../transforms/derivatives/grad.js";
import { jvp } from "../transforms/derivatives/jvp.js";
import { stopGradient } from "./shaping.js";

/** A linear function of a tree, and a right side, to the tree that the function maps to it. */
export type LinearSolver<T> = (matvec: (x: T) => T, b: T) => T;

const linearSolveOptions = schema({
  /** Solves with the transpose of the function; needed for derivatives unless the function is symmetric. */
  transposeSolve: optional<LinearSolver<never>>("any"),
  /** Whether the function is its own transpose, so that `solve` solves with that, too. */
  symmetric: false,
});

/** Options of {@link customLinearSolve}. */
export interface CustomLinearSolveOptions<T>
  extends Omit<OptionsOf<typeof linearSolveOptions>, "transposeSolve"> {
  /** Solves with the transpose of the function; needed for derivatives unless the function is symmetric. */
  readonly transposeSolve?: LinearSolver<T>;
}

const zipped = <T>(fn: (a: Tensor, b: Tensor) => Tensor, x: T, y: T): T => tree.map(fn, x, y) as T;

/**
 * The solution x of `matvec(x) = b` for a linear function, found by `solve`. Derivatives follow from the equation: `solve`
 * may be a loop that has none.
 *
 * @example
 * ```ts
 * const half = (a: Tensor) =>
 *   lax.customLinearSolve((x: Tensor) => x.mul(a), np.array([6]), (matvec, b) => b.div(matvec(np.ones([1]))), { symmetric: true });
 * half(np.array([2])); // [3]
 * grad((a: Tensor) => np.sum(half(a)))(np.array([2])); // [-1.5]
 * ```
 */
export function customLinearSolve<T>(
  matvec: (x: T) => T,
  b: T,
  solve: LinearSolver<T>,
  options?: CustomLinearSolveOptions<T>,
): T {
  const caller = "lax.customLinearSolve";
  need("function", matvec, "matvec", caller);
  need("function", solve, "solve", caller);
  const { symmetric, transposeSolve } = linearSolveOptions.read(options as never, caller);
  const backwards = (transposeSolve ?? (symmetric ? solve : undefined)) as LinearSolver<T> | undefined;
  const found = stopGradient(solve(matvec, b));
  // Its value is not used; its derivative says how far the solution is off when b and the function change.
  const rest = zipped(ops.sub, b, matvec(found));
  const transposed = (y: T): T => vjp((x: T) => matvec(x), [found])[1](y)[0] as T;
  const missing = (): never => {
    throw new ValueError(`[${caller}] has no derivative without transposeSolve: give it, or symmetric: true`);
  };
  const none: Closed<T> = { captures: [], apply: missing };
  const back = backwards ? closed((ct: T) => backwards(transposed, ct), found) : none;
  const forth = backwards ? closed((y: T) => solve(matvec, y), found) : none;
  const moved = customVjp((_: T, x: T, __: Captured) => x, {
    forward: (_: T, x: T, values: Captured) => [x, values] as const,
    backward: (values: Captured, ct: T) => [transposable(back, forth)(ct, values), null, null],
  });
  return moved(rest, found, [back.captures, forth.captures]);
}

/** What a function and its transpose capture. */
type Captured = readonly [own: readonly Tensor[], others: readonly Tensor[]];

/** A linear function, such as a loop, whose transpose is another one that is known. */
function transposable<T>(fn: Closed<T>, transpose: Closed<T>): (x: T, captures: Captured) => T {
  return customVjp((x: T, [own]: Captured) => fn.apply(own, x), {
    forward: (x: T, captures: Captured) => [fn.apply(captures[0], x), captures] as const,
    backward: ([own, others]: Captured, ct: T) => [transposable(transpose, fn)(ct, [others, own]), null],
  });
}

/** A function whose captures are arguments. */
interface Closed<T> {
  readonly captures: readonly Tensor[];
  readonly apply: (captures: readonly Tensor[], x: T) => T;
}

/** A function whose captures are arguments, as constants: a rule may close over nothing that has a derivative. */
function closed<T>(fn: (x: T) => T, example: T): Closed<T> {
  const { structure, tensors } = flattenArgs(example, "lax.customLinearSolve");
  const types = tensors.map(({ type }) => type);
  const leaves = (x: T) => flattenArgs(x, "lax.customLinearSolve").tensors;
  const { program, captures, target } = traceFlat(
    (xs) => leaves(fn(tree.unflatten<T>(structure, xs))),
    types,
  );
  return {
    captures: captures.map((value) => ops.stopGradient(value)),
    apply: (values: readonly Tensor[], x: T): T =>
      tree.unflatten<T>(structure, callProgram(program, [...values, ...leaves(x)], target)),
  };
}

/**
 * The root of a function that `solve` finds from a first guess. Derivatives by what the function captures follow from the
 * equation `f(root) = 0`: `tangentSolve` solves `g(x) = y` for a linear function g, the derivative of f at the root.
 *
 * @example
 * ```ts
 * const squareRoot = (a: Tensor) =>
 *   lax.customRoot(
 *     (x: Tensor) => x.mul(x).sub(a),
 *     np.array(1),
 *     (f, x) => lax.foriLoop(0, 20, (_, y: Tensor) => y.sub(f(y).div(y.mul(2))), x),
 *     (g, y) => y.div(g(np.array(1))),
 *   );
 * squareRoot(np.array(9)); // 3
 * grad(squareRoot)(np.array(9)); // 0.1667
 * ```
 */
export function customRoot<T>(
  f: (x: T) => T,
  initialGuess: T,
  solve: (f: (x: T) => T, initialGuess: T) => T,
  tangentSolve: LinearSolver<T>,
): T {
  const caller = "lax.customRoot";
  need("function", f, "f", caller);
  need("function", solve, "solve", caller);
  need("function", tangentSolve, "tangentSolve", caller);
  const root = stopGradient(solve(f, initialGuess));
  const rest = f(root);
  // Zero, with the derivative of what f captures.
  const change = zipped(ops.sub, rest, stopGradient(rest));
  const slope = (x: T): T => jvp((y: T) => f(y), [root], [x])[1] as T;
  return zipped(withoutChange, root, tangentSolve(slope, change));
}

/** A root, with the derivative of what is left of it without a change: where the slope is 0, the change is 0 / 0. */
const withoutChange = /* @__PURE__ */ libraryVjp((root: Tensor, _change: Tensor) => root, {
  forward: (root: Tensor, _change: Tensor) => [root, null],
  backward: (_, ct) => [ct, ops.neg(ct)],
});
