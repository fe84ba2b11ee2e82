import { needProgram } from "../../ir/checkProgram.js";
import { factsOf } from "../../ir/opFacts.js";
import { afterPass } from "../../ir/passes.js";
import { type Atom, type Eqn, mapInnerPrograms, mapOperands, type Program } from "../../ir/program.js";
import { identity } from "./algebra.js";
import { removeDeadCode } from "./deadCode.js";

/**
 * An equal program without dead code, repeated equations and operations that change nothing. Results stay the same bit
 * for bit.
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => (x.mul(3), x.mul(2)))(np.array([1, 2]));
 * [program.eqns.length, simplify(program).eqns.length]; // [2, 1]
 * ```
 */
export function simplify(program: Program): Program {
  needProgram(program, "simplify");
  return removeDeadCode(afterPass("simplify", mergeEquations(program), "traced"));
}

/** Replaces equations that compute existing values, here and in inner programs. */
function mergeEquations(program: Program): Program {
  const replaced = new Map<number, Atom>();
  const known = new Map<string, Eqn>();
  const definitions = new Map<number, Eqn>();
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (replaced.get(atom.id) ?? atom) : atom);
  const eqns: Eqn[] = [];
  for (const original of program.eqns) {
    const inner = mapInnerPrograms(mapOperands(original, resolve), mergeEquations);
    const result = identity(inner, (atom) => (atom.kind === "var" ? definitions.get(atom.id) : undefined));
    if (result.kind === "atom") {
      const [out] = original.outs;
      if (out) replaced.set(out.id, result.atom);
      continue;
    }
    const { eqn } = result;
    const key = mergeKey(eqn);
    const twin = key === undefined ? undefined : known.get(key);
    if (twin) {
      eqn.outs.forEach((out, i) => {
        const same = twin.outs[i];
        if (same) replaced.set(out.id, same);
      });
      continue;
    }
    if (key !== undefined) known.set(key, eqn);
    for (const out of eqn.outs) definitions.set(out.id, eqn);
    eqns.push(eqn);
  }
  return { inputs: program.inputs, eqns, outputs: program.outputs.map(resolve) };
}

/** A key that is equal for equations that compute the same. */
function mergeKey(eqn: Eqn): string | undefined {
  if (!factsOf(eqn.op).merges) return undefined;
  const ins = eqn.ins.map((a) =>
    a.kind === "var" ? `%${a.id}` : `${Object.is(a.value, -0) ? "-0" : a.value}:${a.type.dtype}`,
  );
  return `${eqn.op} ${ins.join(" ")} ${JSON.stringify(eqn.params)}`;
}
