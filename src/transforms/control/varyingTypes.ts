import { isFloat, isInteger, roundTo } from "../../ir/dtype.js";
import { ShardingError } from "../../ir/errors.js";
import {
  joinAxes,
  missingAxes,
  varies,
  varyAlike,
  varyingAlong,
  varyingAxes,
} from "../../ir/infer/varying.js";
import type { MeshAxis } from "../../ir/mesh.js";
import { isCollectiveEqn } from "../../ir/opFacts.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { at, type TensorType } from "../../ir/shape.js";
import { bind1, inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";

/**
 * The cotangent with the varying axes of its value: on its own it may vary along fewer, and one made by a user's rule
 * along more.
 */
export function likeItsValue(ct: Tensor, type: TensorType): Tensor {
  const marked = ops.pvary(ct, varyingAxes(type));
  return ops.psum(marked, missingAxes(varyingAxes(type), varyingAxes(marked.type)));
}

/**
 * Throws when devices that decide differently would have to communicate: a program that only some of them run has a
 * collective over an axis along which the decision differs.
 */
export function checkMeetings(
  decision: TensorType,
  programs: readonly Program[],
  caller: string,
  what: string,
): void {
  for (const program of programs) {
    forEachEqn(program, (eqn) => {
      if (!isCollectiveEqn(eqn)) return;
      const shared = eqn.params.axes.find(({ name }) => varies(decision, name));
      if (shared === undefined) return;
      const where = eqn.source ? ` at ${eqn.source.text}` : "";
      throw new ShardingError(
        `[${caller}] the ${what} differs along axis "${shared.name}", over which ${eqn.op}${where} communicates: devices that decide differently would wait for each other forever; make the decision equal, for example with lax.pmax(${what}, "${shared.name}"), or communicate outside`,
        "replication",
      );
    });
  }
}

/** The program for inputs that differ along further axes. */
export function markInputs(program: Program, axes: readonly MeshAxis[]): Program {
  if (axes.length === 0) return program;
  return traceFlat(
    (args) => inline(program, args),
    program.inputs.map(({ type }) => varyingAlong(type, joinAxes([varyingAxes(type), axes]))),
  ).program;
}

/** The program with outputs that are marked as differing along the given axes, one list for each. */
export function markOutputs(program: Program, axes: readonly (readonly MeshAxis[])[]): Program {
  const isMarked = program.outputs.every(
    ({ type }, i) => missingAxes(varyingAxes(type), axes[i] ?? []).length === 0,
  );
  if (isMarked) return program;
  return traceFlat(
    (args) => inline(program, args).map((out, i) => ops.pvary(out, axes[i] ?? [])),
    program.inputs.map(({ type }) => type),
  ).program;
}

/** A loop whose carry has the same types before and after a step. */
export interface SettledLoop<T> {
  readonly traced: T;
  /** The carry before the first step, and its types. */
  readonly init: readonly Tensor[];
  readonly types: readonly TensorType[];
}

/**
 * Traces a loop again until its carry differs along no more axes after a step than before it, and numbers among it have
 * the data types that they have after it.
 *
 * @param trace for given types of the carry the traced loop, and the types of the leaves after a step
 */
export function settleCarry<T>(
  start: readonly Tensor[],
  trace: (types: readonly TensorType[]) => readonly [traced: T, after: readonly TensorType[]],
): SettledLoop<T> {
  let init = start;
  let types = init.map(({ type }) => type);
  for (;;) {
    const [traced, after] = trace(types);
    const next = init.map((tensor, i) => adapted(tensor, after[i] ?? tensor.type));
    const grown = next.map(({ type }, i) => {
      const axes = [varyingAxes(at(types, i)), varyingAxes(after[i] ?? type)];
      return varyingAlong(type, joinAxes(axes));
    });
    const isSettled = grown.every((type, i) => {
      const before = at(types, i);
      return type.dtype === before.dtype && type.weak === before.weak && varyAlike(type, before);
    });
    if (isSettled) return { traced, init, types };
    [init, types] = [next, grown];
  }
}

/** A weakly typed value as the data type that it has after a step, where it can take that. */
function adapted(tensor: Tensor, { dtype, weak }: TensorType): Tensor {
  if (!tensor.type.weak || weak) return tensor;
  const { node } = tensor;
  if (node.kind !== "literal") return isFloat(dtype) ? bind1("convert", [tensor], { dtype }) : tensor;
  const { value } = node.literal;
  const fits = isFloat(dtype) || (isInteger(dtype) && value === roundTo(dtype, value));
  return fits ? Tensor.scalar(value, dtype) : tensor;
}
