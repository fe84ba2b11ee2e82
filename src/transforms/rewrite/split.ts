import { hasEffects } from "../../ir/effects.js";
import { factsOf, isElementwiseEqn, opFacts } from "../../ir/opFacts.js";
import { afterPass } from "../../ir/passes.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { cheapestCut } from "./cheapestCut.js";

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
 * @param cost what keeping a value for the backward part costs: what elementwise ops compute from cheaper values is
 * computed again; by default only what is smaller than its result
 */
export function split(
  joint: Program,
  numEarly: number,
  numEarlyOutputs: number,
  cost?: (value: Var) => number,
): Split {
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
  const isNeeded = (atom: Atom): atom is Var => atom.kind === "var" && !late.has(atom.id);
  const needed = [...backwardEqns.flatMap(({ ins }) => ins), ...lateOutputs].filter(isNeeded);
  const { residuals: list, again } = keep(needed, definition, cost);
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

/** The values to keep, and the equations that compute the others of the needed ones again. */
function keep(
  needed: readonly Var[],
  definition: ReadonlyMap<number, Eqn>,
  cost: ((value: Var) => number) | undefined,
): { readonly residuals: readonly Var[]; readonly again: ReadonlySet<Eqn> } {
  const remade = ({ id }: Var, isAllowed: (eqn: Eqn) => boolean) => {
    const eqn = definition.get(id);
    return eqn && isAllowed(eqn) ? eqn : undefined;
  };
  const cut =
    cost &&
    cheapestCut(needed, {
      again: (value) => remade(value, isQuick),
      cost: (value) => (remade(value, isFree) ? Number.POSITIVE_INFINITY : cost(value)),
    });
  const residuals = new Map<number, Var>();
  const again = new Set<Eqn>();
  const left = [...needed];
  for (const value of left) {
    const eqn = cut?.has(value.id) ? undefined : remade(value, cut ? isQuick : isFree);
    if (!eqn) residuals.set(value.id, value);
    else if (!again.has(eqn)) {
      again.add(eqn);
      for (const input of eqn.ins) if (input.kind === "var") left.push(input);
    }
  }
  return { residuals: [...residuals.values()], again };
}

/** Whether it costs nothing to compute the results of an equation again from something smaller. */
const isFree = ({ op }: Eqn): boolean => factsOf(op).remade;

/** Whether computing the results of an equation again takes hardly longer than reading them from memory. */
const isQuick = (eqn: Eqn): boolean =>
  isFree(eqn) || eqn.op === "reshape" || (isElementwiseEqn(eqn) && opFacts[eqn.op].price !== "heavy");

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
