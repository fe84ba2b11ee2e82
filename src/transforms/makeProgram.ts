import type { Program } from "../ir/program.js";
import type { TensorType } from "../ir/shape.js";
import { typesOf } from "../ir/shape.js";
import { toKeep } from "../trace/order.js";
import type { Tensor } from "../trace/tensor.js";
import { flattenArgs, traceTree } from "../trace/trace.js";
import * as tree from "../trace/tree.js";

/**
 * The program of a function of tensors.
 *
 * ```ts
 * console.log(printProgram(makeProgram((x: Tensor) => np.sin(x).mul(2))(np.zeros([3]))));
 * ```
 *
 * @returns a function of the same arguments (values are not read); tensors the function closes over come first among
 *   the program's inputs
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => x.add(1))(np.array([1, 2]));
 * program.eqns.length > 0; // true
 * ```
 */
export function makeProgram<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
): (...args: A) => Program {
  return (...args) => {
    const { tensors, structure } = flattenArgs(args, "makeProgram");
    const types = tensors.map(({ type }) => type);
    return toKeep(() => traceTree(fn, structure, types, "makeProgram")).program;
  };
}

/**
 * The types of a function's results, without computing anything.
 *
 * @returns a function of the same arguments that gives the result tree with a {@link TensorType} at every leaf
 *
 * @example
 * ```ts
 * evalShape((x: Tensor) => np.matmul(x, x))(np.ones([2, 2])).shape; // [2, 2]
 * ```
 */
export function evalShape<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
): (...args: A) => tree.MapTree<R, Tensor | number | boolean, TensorType> {
  return (...args) => {
    const { tensors, structure } = flattenArgs(args, "evalShape");
    const types = tensors.map(({ type }) => type);
    const traced = traceTree(fn, structure, types, "evalShape");
    return tree.unflatten(traced.outStructure, typesOf(traced.program.outputs));
  };
}
