import type { MeshAxis } from "../../ir/mesh.js";
import type { Atom, Eqn, Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";

/** The axes along which a value may differ from device to device. */
export type Varying = ReadonlySet<string>;

const none: Varying = new Set();
const union = (...sets: readonly Varying[]): Varying => new Set(sets.flatMap((set) => [...set]));
const named = (axes: readonly MeshAxis[]): Varying => new Set(axes.map(({ name }) => name));
const without = (set: Varying, axes: readonly MeshAxis[]): Varying =>
  new Set([...set].filter((name) => !axes.some((axis) => axis.name === name)));

/** Told of every equation along which axes its operands may vary; in a loop again as they turn out to vary more. */
type Visit = (eqn: Eqn, ins: readonly Varying[]) => void;

/**
 * The axes along which each output of a per-device program may vary: those of the inputs it depends on, less
 * what reductions and gathers make equal again.
 */
export function varyingOutputs(
  program: Program,
  inputs: readonly Varying[],
  visit: Visit = () => {},
): Varying[] {
  const values = new Map<number, Varying>();
  const read = (atom: Atom): Varying => (atom.kind === "var" ? (values.get(atom.id) ?? none) : none);
  program.inputs.forEach((input, i) => {
    values.set(input.id, inputs[i] ?? none);
  });
  for (const eqn of program.eqns) {
    const ins = eqn.ins.map(read);
    visit(eqn, ins);
    const outs = varyingOf(eqn, ins, visit);
    eqn.outs.forEach((out, i) => {
      values.set(out.id, at(outs, i));
    });
  }
  return program.outputs.map(read);
}

function varyingOf(eqn: Eqn, ins: readonly Varying[], visit: Visit): readonly Varying[] {
  const all = union(...ins);
  switch (eqn.op) {
    case "psum":
    case "pmax":
    case "pmin":
    case "allGather":
      return [without(all, eqn.params.axes)];
    case "psumScatter":
    case "ppermute":
    case "allToAll":
    case "axisIndex":
      return [union(all, named(eqn.params.axes))];
    case "optimizationBarrier":
      return ins;
    case "scan": {
      const { body, numConsts, numCarry } = eqn.params;
      return untilStable(ins.slice(numConsts, numConsts + numCarry), (carry) =>
        varyingOutputs(
          body,
          [...ins.slice(0, numConsts), ...carry, ...ins.slice(numConsts + numCarry)],
          visit,
        ),
      );
    }
    case "while": {
      const { condition, body, numConditionConsts, numBodyConsts } = eqn.params;
      const [conditionIns, bodyIns] = [ins.slice(0, numConditionConsts), ins.slice(numConditionConsts)];
      return untilStable(bodyIns.slice(numBodyConsts), (carry) => {
        const verdict = at(varyingOutputs(condition, [...conditionIns, ...carry], visit), 0);
        const outs = varyingOutputs(body, [...bodyIns.slice(0, numBodyConsts), ...carry], visit);
        return outs.map((out) => union(out, verdict));
      });
    }
    case "cond": {
      const [index = none, ...operands] = ins;
      const results = eqn.params.branches.map((branch) => varyingOutputs(branch, operands, visit));
      return eqn.outs.map((_, i) => union(index, ...results.map((result) => at(result, i))));
    }
    case "remat":
    case "customVjp":
      return varyingOutputs(eqn.params.body, ins, visit);
    case "shardMap": {
      const { manual, inSpecs, outSpecs, body } = eqn.params;
      const inner = varyingOutputs(
        body,
        ins.map((varying, i) => union(varying, new Set(at(inSpecs, i).flat()))),
        visit,
      );
      return inner.map(
        (varying, i) =>
          new Set([...varying].filter((a) => !manual.includes(a) || at(outSpecs, i).flat().includes(a))),
      );
    }
    default:
      return eqn.outs.map(() => all);
  }
}

/** Grows the carry's axes until another iteration adds none. */
function untilStable(
  start: readonly Varying[],
  step: (carry: readonly Varying[]) => readonly Varying[],
): readonly Varying[] {
  let carry = start;
  for (;;) {
    const outs = step(carry);
    const next = carry.map((varying, i) => union(varying, at(outs, i)));
    if (next.every((varying, i) => varying.size === at(carry, i).size))
      return [...next, ...outs.slice(carry.length)];
    carry = next;
  }
}
