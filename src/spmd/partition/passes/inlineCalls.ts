import { zip } from "../../../ir/collections.js";
import {
  type Atom,
  type Eqn,
  mapInnerPrograms,
  mapOperands,
  newVar,
  type Program,
  type SourceLocation,
} from "../../../ir/program.js";

/** The program with `remat` and `customVjp` inlined: only the transforms need them. */
export function inlineCalls(program: Program): Program {
  const renamed = new Map<number, Atom>();
  const eqns: Eqn[] = [];
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (renamed.get(atom.id) ?? atom) : atom);
  for (const eqn of program.eqns) {
    if (eqn.op === "remat" || eqn.op === "customVjp") {
      const body = inlineCalls(eqn.params.body);
      const outs = copyInto(eqns, body, eqn.ins.map(resolve), eqn.source);
      for (const [out, value] of zip(eqn.outs, outs)) renamed.set(out.id, value);
    } else {
      eqns.push(mapInnerPrograms(mapOperands(eqn, resolve), inlineCalls));
    }
  }
  return { inputs: program.inputs, eqns, outputs: program.outputs.map(resolve) };
}

/**
 * Appends a copy of a program's equations, with values of its own, and returns its outputs. Equations without a
 * source line have that of the call.
 */
function copyInto(
  eqns: Eqn[],
  body: Program,
  ins: readonly Atom[],
  source: SourceLocation | undefined,
): Atom[] {
  const values = new Map<number, Atom>(zip(body.inputs, ins).map(([{ id }, atom]) => [id, atom]));
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (values.get(atom.id) ?? atom) : atom);
  for (const eqn of body.eqns) {
    const outs = eqn.outs.map((out) => {
      const copy = newVar(out.type);
      values.set(out.id, copy);
      return copy;
    });
    eqns.push({ ...eqn, ins: eqn.ins.map(resolve), outs, source: eqn.source ?? source });
  }
  return body.outputs.map(resolve);
}
