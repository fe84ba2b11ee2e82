import type { Atom, Eqn, Program } from "./program.js";
import { at } from "./shape.js";

/** A program without its unused equations, and which of its values are read. */
export interface Live {
  readonly eqns: readonly Eqn[];
  readonly isRead: (value: { readonly id: number }) => boolean;
}

/**
 * Walks backward from some outputs to the values they need.
 *
 * @param keep given which results of an equation are read, returns what is to remain of it, if anything
 */
export function liveEqns(
  program: Program,
  outputs: readonly Atom[],
  keep: (eqn: Eqn, used: readonly boolean[]) => Eqn | undefined,
): Live {
  const live = new Set<number>();
  for (const atom of outputs) if (atom.kind === "var") live.add(atom.id);
  const kept: Eqn[] = [];
  for (let i = program.eqns.length - 1; i >= 0; i--) {
    const eqn = at(program.eqns, i);
    const used = eqn.outs.map((out) => live.has(out.id));
    const rest = keep(eqn, used);
    if (!rest) continue;
    for (const atom of rest.ins) if (atom.kind === "var") live.add(atom.id);
    kept.push(rest);
  }
  return { eqns: kept.reverse(), isRead: ({ id }) => live.has(id) };
}
