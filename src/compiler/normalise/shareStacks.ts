/**
 * Afterwards no loop stacks again the slices of a tensor that it loops over, or the same values twice: whoever reads such
 * a stack reads the tensor or the first stack. Derivatives of loops keep weights in this way.
 *
 * Unchanged are all values, and every other equation.
 */

import {
  type Atom,
  type Eqn,
  mapInnerPrograms,
  mapOperands,
  type Program,
  type Var,
} from "../../ir/program.js";
import { at } from "../../ir/shape.js";

/** Replaces stacks that exist already, here and in inner programs. */
export function shareStacks(program: Program): Program {
  const replaced = new Map<number, Atom>();
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (replaced.get(atom.id) ?? atom) : atom);
  const eqns = program.eqns.map((original) => {
    const eqn = mapInnerPrograms(mapOperands(original, resolve), shareStacks);
    if (eqn.op !== "scan") return eqn;
    const known = knownStacks(eqn);
    for (const [out, same] of known) replaced.set(out.id, same);
    return known.size === 0 ? eqn : withoutResults(eqn, (out) => known.has(out));
  });
  return { ...program, eqns, outputs: program.outputs.map(resolve) };
}

/** The results of a loop that are operands of it, or earlier results. */
function knownStacks({ ins, outs, params }: Eqn<"scan">): ReadonlyMap<Var, Atom> {
  const { body, numConsts, numCarry } = params;
  const stacks = new Map<number, Atom>();
  body.inputs.forEach(({ id }, i) => {
    if (i >= numConsts + numCarry) stacks.set(id, at(ins, i));
  });
  const known = new Map<Var, Atom>();
  outs.forEach((out, i) => {
    const value = at(body.outputs, i);
    if (i < numCarry || value.kind === "literal") return;
    const stack = stacks.get(value.id);
    if (stack) known.set(out, stack);
    else stacks.set(value.id, out);
  });
  return known;
}

function withoutResults(eqn: Eqn<"scan">, isLeftOut: (out: Var) => boolean): Eqn<"scan"> {
  const { body } = eqn.params;
  const outputs = body.outputs.filter((_, i) => !isLeftOut(at(eqn.outs, i)));
  const outs = eqn.outs.filter((out) => !isLeftOut(out));
  return { ...eqn, outs, params: { ...eqn.params, body: { ...body, outputs } } };
}
