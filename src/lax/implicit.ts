/** Solutions of equations, whose derivatives are those of the equation and not of the steps that found them. */
import { need } from "../ir/arguments.js";
import { ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, typesOf } from "../ir/shape.js";
import { callProgram } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import { currentOrder } from "../trace/order.js";
import type { Tensor } from "../trace/tensor.js";
import { flattenArgs, type TracedTree, traceTree } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { shareCaptures } from "../transforms/control/closure.js";
import { customVjp } from "../transforms/derivatives/customVjp.js";
import { vjp, vjpHere } from "../transforms/derivatives/grad.js";
import { jvp } from "../transforms/derivatives/jvp.js";

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
  if (currentOrder() === 0) return solve(matvec, b);
  const right = flattenArgs([b], caller);
  const solving = traceTree((y: T) => solve(matvec, y), right.structure, typesOf(right.tensors), caller);
  const solution = listOf(solving.outStructure);
  const types = typesOf(solving.program.outputs);
  const product = traceTree(matvec, solution, types, caller);
  const own = [product, solving];
  const backwards = (transposeSolve ?? (symmetric ? solve : undefined)) as LinearSolver<T> | undefined;
  if (!backwards) {
    const { values, fns } = closed<T>(own, caller);
    return solver<T>(equationOf(fns, 0), undefined)(values, b);
  }
  // A linear function has the same transpose everywhere.
  const anywhere = tree.unflatten<[T]>(solution, types.map(ops.zeros));
  const transposed = symmetric ? matvec : (y: T): T => vjp((x: T) => matvec(x), anywhere)[1](y)[0];
  const solvingBack = traceTree((ct: T) => backwards(transposed, ct), solution, types, caller);
  const back = listOf(solvingBack.outStructure);
  const productBack = traceTree(transposed, back, typesOf(solvingBack.program.outputs), caller);
  const { values, fns } = closed<T>([...own, productBack, solvingBack], caller);
  return solver(equationOf(fns, 0), equationOf(fns, 2))(values, b);
}

/** A linear equation, of which functions get what they capture as their first argument. */
interface Equation<T> {
  readonly matvec: Closed<T>;
  readonly solve: Closed<T>;
}

const equationOf = <T>(fns: readonly Closed<T>[], first: number): Equation<T> => ({
  matvec: at(fns, first),
  solve: at(fns, first + 1),
});

/** Solves a linear equation; the way back solves the transposed one, whose way back solves this one again. */
function solver<T>(own: Equation<T>, transposed: Equation<T> | undefined): Closed<T> {
  const solved: Closed<T> = customVjp((values: Captured, b: T) => own.solve(values, b), {
    forward: (values: Captured, b: T) => {
      const x = solved(values, b);
      return [x, [values, x]] as const;
    },
    backward: ([values, x]: readonly [Captured, T], ct: T) => {
      if (!transposed) {
        throw new ValueError(
          "[lax.customLinearSolve] has no derivative without transposeSolve: give it, or symmetric: true",
        );
      }
      const y = solver(transposed, own)(values, ct);
      const [, pull] = vjpHere((captured: Captured) => own.matvec(captured, x), [values]);
      return [pull(negated(y))[0], y];
    },
  });
  return solved;
}

const negated = <T>(x: T): T => tree.map((leaf: Tensor) => ops.neg(leaf), x) as T;

const listOf = (...children: tree.Structure[]): tree.Structure => ({ kind: "array", children });

type Captured = readonly Tensor[];

/** A function of trees whose captures are its first argument, so that rules of derivatives see them. */
type Closed<T> = (captured: Captured, ...args: T[]) => T;

/** Traced functions, and everything that any of them captures. */
function closed<T>(traced: readonly TracedTree[], caller: string): { values: Captured; fns: Closed<T>[] } {
  const { captures, programs, target } = shareCaptures(traced);
  const fns = traced.map(
    ({ outStructure }, i): Closed<T> =>
      (captured, ...args) => {
        const ins = [...captured, ...flattenArgs(args, caller).tensors];
        return tree.unflatten<T>(outStructure, callProgram(at(programs, i), ins, target));
      },
  );
  return { values: captures, fns };
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
  if (currentOrder() === 0) return solve(f, initialGuess);
  const guess = flattenArgs([initialGuess], caller);
  const solving = traceTree((x: T) => solve(f, x), guess.structure, typesOf(guess.tensors), caller);
  const { outStructure } = solving;
  const types = typesOf(solving.program.outputs);
  const equation = traceTree(f, listOf(outStructure), types, caller);
  tree.checkSameStructure(outStructure, equation.outStructure, caller, "the root", "the value of f");
  const solvingTangents = traceTree(
    (x: T, y: T) => tangentSolve((v: T) => jvp((z: T) => f(z), [x], [v])[1], y),
    listOf(outStructure, outStructure),
    [...types, ...typesOf(equation.program.outputs)],
    caller,
  );
  const { values, fns } = closed<T>([solving, equation, solvingTangents], caller);
  return rootOf(at(fns, 0), at(fns, 1), at(fns, 2))(values, initialGuess);
}

/** The root with the rule of the implicit function theorem, in which the root is such a root again. */
function rootOf<T>(solve: Closed<T>, f: Closed<T>, tangentSolve: Closed<T>): Closed<T> {
  const root: Closed<T> = customVjp((values: Captured, guess: T) => solve(values, guess), {
    forward: (values: Captured, guess: T) => {
      const x = root(values, guess);
      return [x, [values, x]] as const;
    },
    backward: ([values, x]: readonly [Captured, T], ct: T) => {
      const [rest, pull] = vjpHere((captured: Captured) => f(captured, x), [values]);
      const [, pullTangent] = vjpHere((y: T) => tangentSolve(values, x, y), [rest]);
      return [pull(negated(pullTangent(ct)[0]))[0], null];
    },
  });
  return root;
}
