import { getOrInsert } from "./collections.js";
import { isHostEqn } from "./opFacts.js";
import { type Eqn, innerPrograms, type Program } from "./program.js";

const known = new WeakMap<Program, boolean>();

/** Whether running a program does something besides computing its results. */
export function programHasEffects(program: Program): boolean {
  return getOrInsert(known, program, () => program.eqns.some(hasEffects));
}

/**
 * Whether an equation does something besides computing its results: it must stay although its results are unused, run
 * as often as the program says, and keep its order relative to other such equations.
 */
export function hasEffects(eqn: Eqn): boolean {
  if (isHostEqn(eqn)) return eqn.params.kind !== "pure";
  return innerPrograms(eqn).some(([, program]) => programHasEffects(program));
}
