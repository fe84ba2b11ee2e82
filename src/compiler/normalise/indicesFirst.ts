/**
 * Afterwards everything that computes single integers from single integers stands as early as its operands allow,
 * so that the start of a block in a buffer is known before the block is computed.
 *
 * Unchanged are the equations, and the relative order of all others.
 */
import { isFloat } from "../../ir/dtype.js";
import { isElementwiseEqn } from "../../ir/opFacts.js";
import type { Eqn, Program } from "../../ir/program.js";

/** Computes indices first. */
export function indicesFirst(program: Program): Program {
  const placeOf = new Map<number, number>();
  const placed = program.eqns.map((eqn, i) => {
    const operands = eqn.ins.map((atom) => (atom.kind === "var" ? (placeOf.get(atom.id) ?? -1) : -1));
    const place = isIndex(eqn) ? Math.max(-1, ...operands) : i;
    for (const { id } of eqn.outs) placeOf.set(id, place);
    return { eqn, place };
  });
  // Sorting keeps the order of equations of one place.
  const eqns = placed.sort((a, b) => a.place - b.place).map(({ eqn }) => eqn);
  return { ...program, eqns };
}

function isIndex(eqn: Eqn): boolean {
  const isSingle = ({ type }: Eqn["ins"][number]) => type.shape.length === 0 && !isFloat(type.dtype);
  return isElementwiseEqn(eqn) && [...eqn.ins, ...eqn.outs].every(isSingle);
}
