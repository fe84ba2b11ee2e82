/**
 * Afterwards there is no sum of zero-padded blocks that tile a dim: each is one concatenation of the blocks, in the
 * order in which they lie.
 *
 * Unchanged are all values, up to the sign of zero (0 + -0 is 0, but a block that is not added keeps its -0), and
 * every other equation.
 */

import type { Atom, Eqn, Program } from "../../ir/program.js";
import { at, range } from "../../ir/shape.js";

/**
 * Turns sums of zero-padded blocks that tile a dim, which is how the gradients of slices come together, into
 * concatenations, so that every block is written once to its place.
 */
export function joinPads(program: Program): Program {
  const definitions = new Map<number, Eqn>();
  const uses = new Map<number, number>();
  const use = (atom: Atom) => {
    if (atom.kind === "var") uses.set(atom.id, (uses.get(atom.id) ?? 0) + 1);
  };
  for (const eqn of program.eqns) {
    for (const out of eqn.outs) definitions.set(out.id, eqn);
    eqn.ins.forEach(use);
  }
  program.outputs.forEach(use);
  /** The summands of a sum, including those of sums that nothing else reads; empty unless all of them are pads. */
  const padsOf = (root: Eqn): Eqn<"pad">[] => {
    const pads: Eqn<"pad">[] = [];
    const sums = [root];
    for (let sum = sums.pop(); sum !== undefined; sum = sums.pop()) {
      for (const atom of sum.ins) {
        const eqn = atom.kind === "var" ? definitions.get(atom.id) : undefined;
        if (eqn?.op === "pad") pads.push(eqn);
        else if (eqn?.op === "add" && atom.kind === "var" && uses.get(atom.id) === 1) sums.push(eqn);
        else return [];
      }
    }
    return pads;
  };
  const eqns = program.eqns.map((eqn): Eqn => {
    if (eqn.op !== "add") return eqn;
    const out = at(eqn.outs, 0);
    if (out.type.shape.length === 0) return eqn;
    const blocks = tiles(padsOf(eqn), out.type.shape);
    return blocks
      ? {
          op: "concatenate",
          ins: blocks.ins,
          outs: eqn.outs,
          params: { dim: blocks.dim },
          source: eqn.source,
        }
      : eqn;
  });
  return { ...program, eqns };
}

/** The blocks of pads that together tile one dim of the shape, in order. */
function tiles(
  pads: readonly Eqn<"pad">[],
  shape: readonly number[],
): { readonly ins: readonly Atom[]; readonly dim: number } | undefined {
  const blocks: { readonly x: Atom; readonly low: readonly number[] }[] = [];
  for (const pad of pads) {
    const [x, padding] = [at(pad.ins, 0), at(pad.ins, 1)];
    const { low, high, interior } = pad.params;
    const isZero = padding.kind === "literal" && padding.value === 0;
    if (!isZero || interior.some((n) => n !== 0) || [...low, ...high].some((n) => n < 0)) return undefined;
    blocks.push({ x, low });
  }
  const dim = range(shape.length).find((d) => blocks.some(({ x }) => x.type.shape[d] !== shape[d]));
  if (dim === undefined) return undefined;
  if (blocks.some(({ x }) => x.type.shape.some((n, d) => d !== dim && n !== shape[d]))) return undefined;
  const sorted = [...blocks].sort((a, b) => at(a.low, dim) - at(b.low, dim));
  let end = 0;
  for (const { x, low } of sorted) {
    if (low[dim] !== end) return undefined;
    end += at(x.type.shape, dim);
  }
  return end === shape[dim] ? { ins: sorted.map(({ x }) => x), dim } : undefined;
}
