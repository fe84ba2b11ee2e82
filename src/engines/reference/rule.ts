import type { MeshShape } from "../../ir/mesh.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at, type TensorType } from "../../ir/shape.js";
import type { LimitLoop } from "../loopLimit.js";
import type { HostTensor } from "./hostTensor.js";

/** One value of a program on all devices that run it in lock step: one block per device. */
export type Lanes = readonly HostTensor[];

/** Computes an op without parameters on all lanes; undefined leaves it to its rule. */
export type Override = (
  op: OpName,
  ins: readonly Lanes[],
  types: readonly TensorType[],
) => readonly Lanes[] | undefined;

/** Where a program runs. */
export interface Context {
  /** The mesh whose axes collectives name; without axes it is one device. */
  readonly mesh: MeshShape;
  /** The mesh position of every lane; under diverging control flow, only some positions are present. */
  readonly devices: readonly number[];
  /** Ends loops that run past the deadline. */
  readonly limitLoop: LimitLoop;
  /** Computes some ops in another way and leaves the others to their rules. */
  readonly override?: Override | undefined;
  /** Runs an inner program on the lanes of a context. */
  readonly run: (program: Program, inputs: readonly Lanes[], context: Context) => Lanes[];
}

/** The rule of one op: from its operands on all lanes to its results, whose types are `types`. */
export type EvalRule<K extends OpName> = (
  ins: readonly Lanes[],
  params: OpParams[K],
  types: readonly TensorType[],
  context: Context,
) => Lanes[];

/** The rule of an op that works on each device separately. */
export type LocalRule<K extends OpName> = (
  ins: readonly HostTensor[],
  params: OpParams[K],
  types: readonly TensorType[],
) => HostTensor[];

/** Applies a local rule on every lane, but only once if all lanes hold identical operand objects. */
export function onEveryLane<K extends OpName>(rule: LocalRule<K>): EvalRule<K> {
  return (ins, params, types, { devices }) => {
    const first = rule(takeLane(ins, 0), params, types);
    if (ins.every((lanes) => lanes.every((tensor) => tensor === lanes[0]))) {
      return first.map((tensor) => devices.map(() => tensor));
    }
    const results = devices.map((_, lane) => (lane === 0 ? first : rule(takeLane(ins, lane), params, types)));
    return types.map((_, i) => results.map((result) => at(result, i)));
  };
}

/** The values that one lane holds. */
export function takeLane(values: readonly Lanes[], lane: number): HostTensor[] {
  return values.map((lanes) => at(lanes, lane));
}

/** The values on some of the lanes. */
export function takeLanes(values: readonly Lanes[], chosen: readonly number[]): Lanes[] {
  return values.map((lanes) => chosen.map((lane) => at(lanes, lane)));
}

/** The context of some of the lanes. */
export function narrow(context: Context, chosen: readonly number[]): Context {
  return { ...context, devices: chosen.map((lane) => at(context.devices, lane)) };
}
