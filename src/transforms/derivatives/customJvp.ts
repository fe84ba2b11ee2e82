import { need } from "../../ir/arguments.js";
import { TreeError } from "../../ir/errors.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { customVjp } from "./customVjp.js";
import { vjpHere } from "./grad.js";

/**
 * The derivative of a function along tangents: from arguments and their tangents to the result and its tangent,
 * which must be linear in the tangents.
 */
export type JvpRule<A extends readonly unknown[], R> = (
  primals: readonly [...A],
  tangents: readonly [...A],
) => readonly [result: R, tangent: R];

/**
 * A function with a custom forward derivative. In reverse mode the rule is transposed, so that it serves `grad` as well
 * as `jvp`.
 *
 * @example
 * ```ts
 * const sin = customJvp((x: Tensor) => np.sin(x), ([x], [t]) => [np.sin(x), np.cos(x).mul(t)]);
 * jvp(sin, [np.array(0)], [np.array(1)]); // [0, 1]
 * ```
 */
export function customJvp<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  rule: JvpRule<A, R>,
): (...args: A) => R {
  need("function", fn, "fn", "customJvp");
  need("function", rule, "rule", "customJvp");
  const ruled = (primals: A, tangents: A): readonly [R, R] => {
    const pair = rule(primals, tangents);
    const isPair: boolean = Array.isArray(pair) && pair.length === 2;
    if (!isPair) throw new TreeError("[customJvp] the rule must return [result, tangent of the result]");
    return pair;
  };
  return customVjp(fn, {
    // The rule's result: it may have derivatives that the function itself has not.
    forward: (...args: A) => [ruled(args, zerosLike(args))[0], args] as const,
    backward: (args: A, cotangent: R) => {
      const [, pullback] = vjpHere((...tangents: A) => ruled(args, tangents)[1], zerosLike(args));
      return pullback(cotangent) as { readonly [I in keyof A]: A[I] };
    },
  });
}

/** Tangents of zeros; leaves that are not tensors have no tangent and stay unchanged. */
const zerosLike = <A>(args: A): A =>
  tree.map((leaf: unknown) => (leaf instanceof Tensor ? ops.zeros(leaf.type) : leaf), args) as A;
