import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { isComplex } from "../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../ir/errors.js";
import { joinAxes, varyingAlong, varyingAxes } from "../../ir/infer/varying.js";
import type { ControlRole } from "../../ir/ops.js";
import { at, formatType, sameType } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { flattenArgs, type TracedTree, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { shareCaptures } from "./closure.js";
import { checkMeetings, markInputs, markOutputs } from "./varyingTypes.js";

/**
 * One of two functions of the same operands, chosen by a scalar when the program runs: numbers other than 0 are true.
 *
 * ```ts
 * lax.cond(loss.lt(1), (x) => x.mul(2), (x) => x, x)
 * ```
 *
 * @example
 * ```ts
 * lax.cond(np.array(true), (x) => x.add(1), (x) => x.sub(1), np.array(5)); // 6
 * ```
 */
export function cond<A extends readonly unknown[], R>(
  predicate: Tensor | boolean | number,
  onTrue: (...operands: A) => R,
  onFalse: (...operands: A) => R,
  ...operands: A
): R {
  need("function", onTrue, "onTrue", "cond");
  need("function", onFalse, "onFalse", "cond");
  if (typeof predicate === "boolean" || typeof predicate === "number") {
    // NaN is true, as it is in tensors.
    return predicate || Number.isNaN(predicate) ? onTrue(...operands) : onFalse(...operands);
  }
  checkScalar(predicate, "cond", "predicate");
  return choose(ops.convert(ops.convert(predicate, "bool"), "int32"), [onFalse, onTrue], operands, "cond");
}

/**
 * One of several functions of the same operands, chosen by an int32 scalar (clamped to the valid range).
 *
 * @example
 * ```ts
 * lax.switch(1, [(x: Tensor) => x.add(1), (x: Tensor) => x.mul(10)], np.array([2])); // [20]
 * ```
 */
export function switchCase<A extends readonly unknown[], R>(
  index: Tensor | number,
  branches: readonly ((...operands: A) => R)[],
  ...operands: A
): R {
  need("list", branches, "the branches", "switchCase");
  for (const branch of branches) need("function", branch, "a branch", "switchCase");
  if (branches.length === 0) throw new ValueError("[switchCase] needs at least one branch");
  if (typeof index === "number") {
    return at(branches, Math.max(0, Math.min(branches.length - 1, Math.trunc(index))))(...operands);
  }
  checkScalar(index, "switchCase", "index");
  return choose(ops.convert(index, "int32"), branches, operands, "switchCase");
}

/** {@link switchCase} by a tensor, with a role for those who read the compiled steps. */
export function switchWithRole<A extends readonly unknown[], R>(
  role: ControlRole,
  index: Tensor,
  branches: readonly ((...operands: A) => R)[],
  ...operands: A
): R {
  return choose(ops.convert(index, "int32"), branches, operands, "switchCase", role);
}

function checkScalar(value: Tensor, caller: string, what: string): void {
  if (!(value instanceof Tensor) || value.ndim !== 0) {
    throw new ShapeError(
      `[${caller}] the ${what} must be a scalar, got ${value instanceof Tensor ? value : describe(value)}: reduce it with all() or any(), or use np.where`,
    );
  }
  if (isComplex(value.dtype)) throw new DTypeError(`[${caller}] the ${what} must be real, got ${value}`);
}

function choose<A extends readonly unknown[], R>(
  index: Tensor,
  branches: readonly ((...operands: A) => R)[],
  operands: A,
  caller: string,
  role?: ControlRole,
): R {
  const flat = flattenArgs(operands, caller);
  // Devices that choose different branches compute different results from shared operands.
  const split = varyingAxes(index.type);
  const mark = ({ type }: Tensor) => varyingAlong(type, joinAxes([varyingAxes(type), split]));
  const types = flat.tensors.map(mark);
  const traced = branches.map((branch) => traceTree(branch, flat.structure, types, caller));
  const first = at(traced, 0);
  const decider = caller === "cond" ? "predicate" : "index";
  const bodies = traced.map(({ program }) => program);
  checkMeetings(index.type, bodies, caller, decider);
  for (const [i, other] of traced.entries()) checkSameResults(first, other, i, caller);
  const { captures, programs, target } = shareCaptures(traced);
  const marked = programs.map((program) => markInputs(program, split));
  const outAxes = first.program.outputs.map((_, i) =>
    joinAxes([split, ...marked.map(({ outputs }) => varyingAxes(at(outputs, i).type))]),
  );
  const params = {
    branches: marked.map((program) => markOutputs(program, outAxes)),
    ...(role !== undefined && { role }),
  };
  const results = bind("cond", [index, ...captures, ...flat.tensors], params, target);
  return tree.unflatten<R>(first.outStructure, results);
}

function checkSameResults(first: TracedTree, other: TracedTree, branch: number, caller: string): void {
  tree.checkSameStructure(
    first.outStructure,
    other.outStructure,
    caller,
    "branch 0's result",
    `branch ${branch}'s result`,
  );
  first.program.outputs.forEach(({ type }, i) => {
    const got = at(other.program.outputs, i).type;
    if (!sameType(type, got)) {
      throw new ShapeError(
        `[${caller}] all branches must return the same types: leaf ${i} is ${formatType(type)} in branch 0 and ${formatType(got)} in branch ${branch}`,
      );
    }
  });
}
