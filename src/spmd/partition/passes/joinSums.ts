import { isFloat } from "../../../ir/dtype.js";
import { type Atom, type Eqn, makeEqn, newVar, type Program } from "../../../ir/program.js";
import { at } from "../../../ir/shape.js";

/** A sum over devices, whole or scattered. */
type Sum = Eqn<"psum" | "psumScatter">;

/**
 * Adds before summing over devices: psum(a) + psum(b) becomes psum(a + b), one collective instead of two, if nothing
 * else reads the parts. Scattered sums likewise.
 */
export function joinSums(program: Program): Program {
  const uses = countUses(program);
  const sums = new Map<number, Sum>();
  const joined = new Set<Eqn>();
  const sumOf = (atom: Atom | undefined) =>
    atom?.kind === "var" && uses.get(atom.id) === 1 ? sums.get(atom.id) : undefined;
  const eqns = program.eqns.flatMap((eqn): Eqn[] => {
    const [out] = eqn.outs;
    if (!out) return [eqn];
    if (eqn.op === "psum" || eqn.op === "psumScatter") {
      sums.set(out.id, eqn);
      return [eqn];
    }
    const [a, b] = [sumOf(eqn.ins[0]), sumOf(eqn.ins[1])];
    if (eqn.op !== "add" || !a || !b || !isFloat(out.type.dtype) || !isSameSum(a, b)) return [eqn];
    joined.add(a).add(b);
    const partial = newVar(at(a.ins, 0).type);
    const sum: Sum = { ...a, ins: [partial], outs: [out], source: eqn.source };
    sums.set(out.id, sum);
    return [makeEqn("add", [...a.ins, ...b.ins], [partial], {}, eqn.source), sum];
  });
  return { ...program, eqns: eqns.filter((eqn) => !joined.has(eqn)) };
}

function isSameSum(a: Sum, b: Sum): boolean {
  const names = ({ params }: Sum) => params.axes.map(({ name }) => name).join();
  if (a.op === "psumScatter" && b.op === "psumScatter" && a.params.dim !== b.params.dim) return false;
  return a.op === b.op && names(a) === names(b);
}

/** How often each value is read. */
export function countUses(program: Program): Map<number, number> {
  const uses = new Map<number, number>();
  for (const atom of [...program.eqns.flatMap((eqn) => eqn.ins), ...program.outputs]) {
    if (atom.kind === "var") uses.set(atom.id, (uses.get(atom.id) ?? 0) + 1);
  }
  return uses;
}
