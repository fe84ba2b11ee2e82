import { hasEffects } from "../../ir/effects.js";
import { factsOf } from "../../ir/opFacts.js";
import { afterPass } from "../../ir/passes.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at } from "../../ir/shape.js";

/** A joint program split where its late inputs come in. */
export interface Split {
  /** Early inputs → early outputs. */
  readonly forward: Program;
  /** (…residuals, …late inputs) → late outputs. */
  readonly backward: Program;
  /** The values of the forward part that the backward part reads, in the order of its inputs. */
  readonly residuals: readonly Var[];
}

/**
 * Splits a program into the part that needs only the first `numEarly` inputs and the rest.
 *
 * @param numEarlyOutputs how many outputs belong to the forward part; they must not need late inputs
 */
export function split(joint: Program, numEarly: number, numEarlyOutputs: number): Split {
  const late = new Set(joint.inputs.slice(numEarly).map(({ id }) => id));
  const forwardEqns: Eqn[] = [];
  const backwardEqns: Eqn[] = [];
  const definition = new Map<number, Eqn>();
  const isLate = (atom: Atom) => atom.kind === "var" && late.has(atom.id);
  for (const eqn of joint.eqns) {
    if (eqn.ins.some(isLate)) {
      backwardEqns.push(eqn);
      for (const out of eqn.outs) late.add(out.id);
    } else {
      forwardEqns.push(eqn);
      for (const out of eqn.outs) definition.set(out.id, eqn);
    }
  }
  const lateOutputs = joint.outputs.slice(numEarlyOutputs);
  const residuals = new Map<number, Var>();
  const again = new Set<Eqn>();
  const need = (atom: Atom): void => {
    if (atom.kind !== "var" || late.has(atom.id)) return;
    const eqn = definition.get(atom.id);
    if (!eqn || !factsOf(eqn.op).remade) {
      residuals.set(atom.id, atom);
      return;
    }
    if (again.has(eqn)) return;
    again.add(eqn);
    eqn.ins.forEach(need);
  };
  for (const eqn of backwardEqns) eqn.ins.forEach(need);
  lateOutputs.forEach(need);
  const list = [...residuals.values()];
  const forward = {
    inputs: joint.inputs.slice(0, numEarly),
    eqns: forwardEqns,
    outputs: joint.outputs.slice(0, numEarlyOutputs),
  };
  const backward = {
    inputs: [...list, ...joint.inputs.slice(numEarly)],
    eqns: [...forwardEqns.filter((eqn) => again.has(eqn)), ...backwardEqns],
    outputs: lateOutputs,
  };
  return {
    forward: afterPass("split, forward", forward, "traced"),
    backward: afterPass("split, backward", backward, "traced"),
    residuals: list,
  };
}

/** Which values of a program depend only on some of its inputs (and constants). */
export function dependsOnlyOn(program: Program, inputs: readonly Var[]): (atom: Atom) => boolean {
  const known = new Set(inputs.map(({ id }) => id));
  const isKnown = (atom: Atom) => atom.kind === "literal" || known.has(atom.id);
  for (const eqn of program.eqns) {
    // Effects happen in every iteration, so they cannot be moved before the loop.
    if (eqn.ins.every(isKnown) && !hasEffects(eqn)) for (const out of eqn.outs) known.add(out.id);
  }
  return isKnown;
}

/** The position of a variable among a program's inputs, or −1. */
export function inputIndex(program: Program, variable: Var): number {
  return program.inputs.findIndex(({ id }) => id === variable.id);
}

/** Splits a list into parts of the given lengths and the rest. */
export function cut<T>(list: readonly T[], ...lengths: readonly number[]): T[][] {
  const parts: T[][] = [];
  let start = 0;
  for (const length of lengths) {
    parts.push(list.slice(start, start + length));
    start += length;
  }
  return [...parts, list.slice(start)];
}

/** The flagged elements of a list. */
export function pick<T>(list: readonly T[], keep: readonly boolean[]): T[] {
  return list.filter((_, i) => keep[i]);
}

/** The elements that {@link pick} takes and those that it leaves, in their original order. */
export function merge<T>(flags: readonly boolean[], picked: readonly T[], others: readonly T[]): T[] {
  let [next, nextOther] = [0, 0];
  return flags.map((flag) => (flag ? at(picked, next++) : at(others, nextOther++)));
}

/** Elements at the flagged positions, `null` at the others. */
export function spread<T>(list: readonly T[], flags: readonly boolean[]): (T | null)[] {
  let next = 0;
  return flags.map((flag) => (flag ? at(list, next++) : null));
}
