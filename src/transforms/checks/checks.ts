/** The checks of a program: those of the user and automatic ones. */
import { HostFunction, type HostValue } from "../../ir/callbacks.js";
import { CheckError } from "../../ir/errors.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { sizeOf, withShape } from "../../ir/shape.js";
import { HostArray } from "../../trace/hostArray.js";

/** The kinds of errors: a failed `check`, a NaN result, a division by zero, an index out of range. */
export type ErrorCategory = "user" | "nan" | "division" | "index";

/** Makes the message of an error from the values kept for it. */
export type Describe = (values: readonly HostArray[]) => string;

const descriptions = new WeakMap<HostFunction, Describe>();

/**
 * The host callback behind a check: its first operand says whether the condition holds, for every element of a batch if
 * there is one; the others are values for the message, with the dims of the batch first.
 */
export function newCheck(describe: Describe): HostFunction {
  const fn = new HostFunction("check", ([holds, ...values]) => {
    const failed = holds ? holds.data.lastIndexOf(0) : -1;
    if (!holds || failed < 0) return [];
    const numBatchDims = holds.type.shape.length;
    throw new CheckError(describe(values.map((value) => elementAt(value, numBatchDims, failed))));
  });
  descriptions.set(fn, describe);
  return fn;
}

/** How a check makes its message; undefined for other host callbacks. */
export function descriptionOf(fn: HostFunction): Describe | undefined {
  return descriptions.get(fn);
}

/** One element of a batch that has `numBatchDims` dims. */
export function elementAt({ type, data }: HostValue, numBatchDims: number, index: number): HostArray {
  const shape = type.shape.slice(numBatchDims);
  const size = sizeOf(shape);
  return new HostArray(withShape(type, shape), data.slice(index * size, (index + 1) * size));
}

/** Where the first check of a program was written, if it has one. */
function findCheck(program: Program): string | undefined {
  let found: string | undefined;
  forEachEqn(program, (eqn) => {
    if (eqn.op === "callback" && eqn.params.kind === "check") found ??= eqn.source?.text ?? "";
  });
  return found;
}

/** Refuses checks in compiled programs, which run asynchronously and cannot throw to their caller. */
export function refuseChecks(program: Program, name: string): void {
  const source = findCheck(program);
  if (source === undefined) return;
  throw new CheckError(
    `[${name}] a checkify.check${source && ` (${source})`} is in a compiled function, where its error cannot be caught: compile jit(checkify.checkify(fn)), and look at the error that it returns`,
  );
}

/**
 * Where elements of a batch diverge, all of them compute every branch and discard what is not theirs: a check would
 * also see values that an element discards.
 */
export function refuseMaskedChecks(programs: readonly Program[], where: string): void {
  for (const program of programs) {
    const source = findCheck(program);
    if (source === undefined) continue;
    throw new CheckError(
      `[vmap] a checkify.check${source && ` (${source})`} is in ${where} of a batch: compute vmap(checkify.checkify(fn)), which reports the error of each element, instead of checkify.checkify(vmap(fn))`,
    );
  }
}
