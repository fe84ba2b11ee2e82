/** Avoids inferring the types of equations again. */

import type { OpName } from "../ops.js";
import type { Atom, EqnParts } from "../program.js";
import { at, sameType, type TensorType } from "../shape.js";
import type { Operand } from "./inferChecks.js";
import { keepsEqual, nothingVaries, varyAlike, varyingAlong } from "./varying.js";

/** Equations whose types were checked: they never change, so they are valid in every other program too. */
const wellTyped = new WeakSet<object>();

/** Records that an equation's results have the types that its op's rule gives. */
export function noteWellTyped(eqn: EqnParts<OpName>): void {
  wellTyped.add(eqn);
}

/** Whether an equation's results are known to have the types that its op's rule gives. */
export function isWellTyped(eqn: object): boolean {
  return wellTyped.has(eqn);
}

/** Whether two operands are the same to type rules. */
export function isLike(a: Operand, b: Operand): boolean {
  return a.kind === b.kind && (a.type === b.type || (sameType(a.type, b.type) && varyAlike(a.type, b.type)));
}

/**
 * The result types of an equation when its op is applied to other operands, if they follow from the equation alone:
 * the operands have the types of its own, or differ from them only in being equal on all devices.
 */
export function typesOfRepeated(
  { op, ins, outs }: EqnParts<OpName>,
  atoms: readonly Atom[],
): readonly TensorType[] | undefined {
  if (atoms.length !== ins.length) return undefined;
  let isSame = true;
  for (let i = 0; i < ins.length; i++) {
    const [atom, own] = [at(atoms, i), at(ins, i)];
    if (atom.type === own.type && atom.kind === own.kind) continue;
    if (atom.kind !== own.kind || !sameType(atom.type, own.type)) return undefined;
    isSame &&= varyAlike(atom.type, own.type);
  }
  if (isSame) return outs.map(({ type }) => type);
  if (!keepsEqual(op) || !nothingVaries(atoms)) return undefined;
  return outs.map(({ type }) => varyingAlong(type, []));
}
