import {
  type Atom,
  type Eqn,
  mapInnerPrograms,
  mapOperands,
  newVar,
  type Program,
} from "../../../ir/program.js";

/**
 * The program with a separate copy of every constant (zeros, counters) for each reader, so that values that only happen
 * to be equal can be split differently.
 */
export function ownConstants(program: Program): Program {
  const constants = new Map<number, Eqn>();
  const taken = new Set<number>();
  const eqns: Eqn[] = [];
  const own = (atom: Atom): Atom => {
    const eqn = atom.kind === "var" ? constants.get(atom.id) : undefined;
    if (!eqn || atom.kind !== "var") return atom;
    if (!taken.has(atom.id)) {
      taken.add(atom.id);
      eqns.push(eqn);
      return atom;
    }
    const copy = newVar(atom.type);
    eqns.push({ ...eqn, outs: [copy] });
    return copy;
  };
  for (const eqn of program.eqns) {
    const [out] = eqn.outs;
    if (out && isConstant(eqn)) constants.set(out.id, eqn);
    else {
      eqns.push(mapInnerPrograms(mapOperands(eqn, own), ownConstants));
    }
  }
  const outputs = program.outputs.map(own);
  return { inputs: program.inputs, eqns, outputs };
}

function isConstant({ op, ins }: Eqn): boolean {
  return op === "iota" || (op === "broadcastInDim" && ins.every((atom) => atom.kind === "literal"));
}
