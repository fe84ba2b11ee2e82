/** What a program checks: in words of its user, or by itself. */
import { HostFunction, type HostValue } from "../../ir/callbacks.js";
import { CheckError } from "../../ir/errors.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { sizeOf, withShape } from "../../ir/shape.js";
import { HostArray } from "../../trace/hostArray.js";

/** What can go wrong: a `check` fails, a NaN comes out of an op, something is divided by zero, an index is outside. */
export type ErrorCategory = "user" | "nan" | "division" | "index";

/** Tells what is wrong by the values that were kept of it. */
export type Describe = (values: readonly HostArray[]) => string;

const descriptions = new WeakMap<HostFunction, Describe>();

/**
 * The host callback behind a check: its first operand says what holds, for every element of a batch where there
 * is one; the others are values to tell of it, with the dims of the batch first.
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

/** How a check tells what is wrong; undefined for other host callbacks. */
export function descriptionOf(fn: HostFunction): Describe | undefined {
  return descriptions.get(fn);
}

/** One element of a batch with so many dims. */
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

/** Compiled programs have nobody to throw at: their checks must be values. */
export function refuseChecks(program: Program, name: string): void {
  const source = findCheck(program);
  if (source === undefined) return;
  throw new CheckError(
    `[${name}] a checkify.check${source && ` (${source})`} stands in a compiled function, where nobody can catch what it throws: compile jit(checkify.checkify(fn)), and look at the error that it returns`,
  );
}

/**
 * Elements of a batch that go different ways all compute both, and keep what is theirs: a check would also look at
 * what an element does not keep.
 */
export function refuseMaskedChecks(programs: readonly Program[], where: string): void {
  for (const program of programs) {
    const source = findCheck(program);
    if (source === undefined) continue;
    throw new CheckError(
      `[vmap] a checkify.check${source && ` (${source})`} stands in ${where} of a batch: compute vmap(checkify.checkify(fn)), whose error tells of each element, instead of checkify.checkify(vmap(fn))`,
    );
  }
}
