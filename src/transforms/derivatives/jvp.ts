import { need } from "../../ir/arguments.js";
import { isFloat } from "../../ir/dtype.js";
import { GradientError } from "../../ir/errors.js";
import type { Program } from "../../ir/program.js";
import { at, formatType, sameType } from "../../ir/shape.js";
import { callProgram } from "../../trace/builder.js";
import type { ExecutionTarget } from "../../trace/executionTarget.js";
import { toKeep, toPushForward } from "../../trace/order.js";
import type { Tensor } from "../../trace/tensor.js";
import { type FlatArgs, flattenArgs, flattenCall, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { likeItsValue } from "../control/varyingTypes.js";
import { sliceOf } from "../rewrite/deadCode.js";
import { simplify } from "../rewrite/simplify.js";
import { pick } from "../rewrite/split.js";
import { jvpProgram } from "./pushForward.js";

/** A function traced at a point, ready to be differentiated there. */
interface Traced {
  readonly program: Program;
  readonly captures: readonly Tensor[];
  readonly flat: FlatArgs;
  readonly outStructure: tree.Structure;
  readonly target: ExecutionTarget | undefined;
  /** Which inputs change. */
  readonly active: readonly boolean[];
}

function traceAt<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  primals: readonly unknown[],
  caller: string,
): Traced {
  const flat = flattenCall(primals, undefined, caller);
  const types = flat.tensors.map(({ type }) => type);
  const { program, captures, outStructure, target } = toPushForward(() =>
    traceTree(fn, flat.structure, types, caller),
  );
  const active = [...captures.map(() => false), ...types.map(({ dtype }) => isFloat(dtype))];
  return { program, captures, flat, outStructure, target, active };
}

/** The tangents of the inputs that change, checked against their values. */
function changesOf(
  { flat, captures, active }: Traced,
  tangents: readonly unknown[],
  caller: string,
): Tensor[] {
  const given = flattenArgs(tangents, caller);
  tree.checkSameStructure(flat.structure, given.structure, caller, "the primals", "the tangents");
  const changing = active.slice(captures.length);
  given.tensors.forEach(({ type }, i) => {
    const want = at(flat.tensors, i).type;
    if (!changing[i] || sameType(type, want)) return;
    throw new GradientError(
      `[${caller}] tangent ${at(flat.paths, i)} is ${formatType(type)} but the value is ${formatType(want)}`,
    );
  });
  const changes = given.tensors.map((tangent, i) => likeItsValue(tangent, at(flat.tensors, i).type));
  return pick(changes, changing);
}

/**
 * The derivative of a function in a direction: `[f(x), f'(x) · v]`, in one pass with the function itself, so that it
 * goes through loops of any length.
 *
 * @example
 * ```ts
 * jvp((x: Tensor) => np.square(x), [np.array(3)], [np.array(1)]); // [9, 6]
 * ```
 */
export function jvp<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  primals: readonly [...A],
  tangents: readonly [...A],
): [R, R] {
  need("function", fn, "fn", "jvp");
  need("list", primals, "primals", "jvp");
  need("list", tangents, "tangents", "jvp");
  const traced = traceAt(fn, primals, "jvp");
  const changes = changesOf(traced, tangents, "jvp");
  const { program, captures, flat, active, outStructure, target } = traced;
  const pushed = simplify(jvpProgram(program, active));
  const results = callProgram(pushed, [...captures, ...flat.tensors, ...changes], target);
  const numOuts = program.outputs.length;
  return [
    tree.unflatten<R>(outStructure, results.slice(0, numOuts)),
    tree.unflatten<R>(outStructure, results.slice(numOuts)),
  ];
}

/**
 * The value of a function and its derivative at that point as a linear function of directions.
 *
 * @example
 * ```ts
 * const [y, push] = linearize((x: Tensor) => np.square(x), [np.array([1, 2])]);
 * push(np.array([1, 0])); // [2, 0]
 * ```
 */
export function linearize<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  primals: readonly [...A],
): [value: R, push: (...tangents: A) => R] {
  need("function", fn, "fn", "linearize");
  need("list", primals, "primals", "linearize");
  const traced = toKeep(() => traceAt(fn, primals, "linearize"));
  const { program, captures, flat, active, outStructure, target } = traced;
  const inputs = [...captures, ...flat.tensors];
  const value = tree.unflatten<R>(outStructure, callProgram(program, inputs, target));
  let pushed: Program | undefined;
  const push = (...tangents: A): R => {
    if (!pushed) {
      // Computing the value has already run the host callbacks.
      const whole = jvpProgram(sliceOf(program), active);
      pushed = simplify({ ...whole, outputs: whole.outputs.slice(program.outputs.length) });
    }
    const changes = changesOf(traced, tangents, "linearize");
    return tree.unflatten<R>(outStructure, callProgram(pushed, [...inputs, ...changes], target));
  };
  return [value, push];
}
