import { zip } from "../../../ir/collections.js";
import {
  type Atom,
  type Eqn,
  hasPrograms,
  mapInnerPrograms,
  newVar,
  type Program,
  type Var,
} from "../../../ir/program.js";
import { at, bytesOfAll } from "../../../ir/shape.js";

/**
 * Gathers before a loop what the loop would gather in every iteration: weights that it does not change. Gathered values
 * stay alive for the whole loop, so their size is limited to that of the loop's operands and results on a device: its
 * memory at most doubles. Weights that differ between iterations, as in loops over layers, stay split.
 *
 * @param kept axes along which gathers stay in loops, because they overlap with products
 * @param onHoist called for every gather that leaves a loop
 */
export function hoistGathers(
  program: Program,
  kept: readonly string[] = [],
  onHoist: OnHoist = () => undefined,
): Program {
  if (!program.eqns.some(hasPrograms)) return program;
  const eqns = program.eqns.flatMap((eqn): Eqn[] => {
    const inner = mapInnerPrograms(eqn, (body) => hoistGathers(body, kept, onHoist));
    return inner.op === "scan" && inner.params.length > 1 ? hoistFrom(inner, kept, onHoist) : [inner];
  });
  return { ...program, eqns };
}

/** Called with the result of a gather inside a loop, its result before the loop, and the number of iterations. */
type OnHoist = (inside: Var, before: Var, length: number) => void;

/** Ops that only rearrange elements; they are hoisted with the gathers of their results. */
const movements: ReadonlySet<Eqn["op"]> = new Set(["transpose", "reshape", "convert", "slice"]);

function hoistFrom(eqn: Eqn<"scan">, kept: readonly string[], onHoist: OnHoist): Eqn[] {
  const { body, numConsts } = eqn.params;
  const consts = new Set(body.inputs.slice(0, numConsts).map(({ id }) => id));
  const steady = new Map<number, Eqn>();
  const gathers: Eqn<"allGather">[] = [];
  let room = bytesOfAll([...eqn.ins, ...eqn.outs]);
  const isSteady = (atom: Atom) => atom.kind === "literal" || consts.has(atom.id) || steady.has(atom.id);
  for (const inner of body.eqns) {
    if (!inner.ins.every(isSteady)) continue;
    if (inner.op === "allGather" && !inner.params.axes.some(({ name }) => kept.includes(name))) {
      const bytes = bytesOfAll(inner.outs);
      if (bytes > room) continue;
      room -= bytes;
      gathers.push(inner);
    } else if (!movements.has(inner.op)) continue;
    for (const out of inner.outs) steady.set(out.id, inner);
  }
  return gathers.length === 0 ? [eqn] : withGathersBefore(eqn, gathers, steady, onHoist);
}

/** The loop with some of its equations before it; their results are constants of the loop. */
function withGathersBefore(
  eqn: Eqn<"scan">,
  gathers: readonly Eqn<"allGather">[],
  steady: ReadonlyMap<number, Eqn>,
  onHoist: OnHoist,
): Eqn[] {
  const { body, numConsts } = eqn.params;
  const outside = new Map<number, Atom>(
    body.inputs.slice(0, numConsts).map(({ id }, i) => [id, at(eqn.ins, i)]),
  );
  const before: Eqn[] = [];
  const take = (atom: Atom): Atom => {
    if (atom.kind === "literal") return atom;
    const known = outside.get(atom.id);
    if (known) return known;
    const made = steady.get(atom.id);
    if (!made) return atom;
    const ins = made.ins.map(take);
    const outs = made.outs.map(({ type }) => newVar(type));
    for (const [out, copy] of zip(made.outs, outs)) outside.set(out.id, copy);
    before.push({ ...made, ins, outs });
    if (made.op === "allGather") onHoist(at(made.outs, 0), at(outs, 0), eqn.params.length);
    return outside.get(atom.id) ?? atom;
  };
  const results: Var[] = gathers.map(({ outs }) => at(outs, 0));
  const inputs = [...body.inputs.slice(0, numConsts), ...results, ...body.inputs.slice(numConsts)];
  const eqns = body.eqns.filter((inner) => !gathers.some((gather) => gather === inner));
  const ins = [...eqn.ins.slice(0, numConsts), ...results.map(take), ...eqn.ins.slice(numConsts)];
  const params = { ...eqn.params, numConsts: numConsts + results.length, body: { ...body, inputs, eqns } };
  return [...before, { ...eqn, ins, params }];
}
