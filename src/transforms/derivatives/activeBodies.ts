import { type BodyOp, bodiesOf, type Flow, flow, groupsOf, inGroups } from "../../ir/bodies.js";
import type { ProgramOp } from "../../ir/ops.js";
import type { Eqn, Program } from "../../ir/program.js";
import type { LinearizeTools } from "./vjpTypes.js";

/** A program inside an equation whose values the backward pass may need. */
export interface ActiveProgram {
  readonly program: Program;
  /** Which of its inputs need a cotangent. */
  readonly active: readonly boolean[];
}

/** Which operands and results of an op with bodies need a cotangent; a carry does if it does after some iterations. */
export function activityOf<K extends ProgramOp>(
  eqn: BodyOp<K>,
  active: readonly boolean[],
  { outputActivity }: Pick<LinearizeTools, "outputActivity">,
): Flow<boolean> {
  return flow(eqn, active, outputActivity, (a, b) => a || b);
}

/**
 * The programs inside an equation that run in the forward pass.
 *
 * @param active which operands of the equation need a cotangent
 */
export function activePrograms(
  eqn: Eqn<ProgramOp>,
  active: readonly boolean[],
  tools: LinearizeTools,
): readonly ActiveProgram[] {
  // Loops without a known length are not differentiated in reverse.
  if (eqn.op === "while") return [];
  if (eqn.op === "customVjp") {
    // Where the result is differentiated, the rule replaces the function; the rule itself is not differentiated.
    const rule = { program: eqn.params.forward, active: active.map(() => false) };
    return active.includes(true) ? [rule] : [];
  }
  const { operands, sizes, bodies } = bodiesOf(eqn);
  const flags = groupsOf(operands, sizes, activityOf(eqn, active, tools).ins);
  return bodies.map(({ program, inputs }) => ({ program, active: inGroups(inputs, flags) }));
}
