import { flow } from "../../../ir/bodies.js";
import type { MeshAxis } from "../../../ir/mesh.js";
import type { AxisOp, OpName, ProgramOp } from "../../../ir/ops.js";
import type { Eqn, Program } from "../../../ir/program.js";
import { evaluateProgram } from "../../../ir/program.js";
import { at } from "../../../ir/shape.js";

/** The axes along which a value may differ from device to device. */
export type Varying = ReadonlySet<string>;

const none: Varying = new Set();
const union = (...sets: readonly Varying[]): Varying => new Set(sets.flatMap((set) => [...set]));
const named = (axes: readonly MeshAxis[]): Varying => new Set(axes.map(({ name }) => name));
const without = (set: Varying, axes: readonly MeshAxis[]): Varying =>
  new Set([...set].filter((name) => !axes.some((axis) => axis.name === name)));

/** Called for every equation with the axes along which its operands may vary; in a loop again when these grow. */
type Visit = (eqn: Eqn, ins: readonly Varying[]) => void;

/**
 * The axes along which each output of a per-device program may vary: those of the inputs it depends on, minus
 * those that reductions and gathers make equal.
 */
export function varyingOutputs(
  program: Program,
  inputs: readonly Varying[],
  visit: Visit = () => {},
): Varying[] {
  const given = program.inputs.map((_, i) => inputs[i] ?? none);
  const apply = (eqn: Eqn, ins: readonly Varying[]) => {
    visit(eqn, ins);
    return varyingOf(eqn, ins, visit);
  };
  return evaluateProgram(program, given, () => none, apply);
}

/** Along which axes the results of an equation may vary, given those of its operands. */
type Rule<K extends OpName> = (eqn: Eqn<K>, ins: readonly Varying[], visit: Visit) => readonly Varying[];

/** All devices along the axes have the same result. */
const equal = ({ params }: Eqn<AxisOp>, ins: readonly Varying[]) => [without(union(...ins), params.axes)];

/** Every device along the axes has its own result. */
const own = ({ params }: Eqn<AxisOp>, ins: readonly Varying[]) => [union(...ins, named(params.axes))];

/** The results of bodies; devices that decide differently have different results. */
function throughBodies(eqn: Eqn<ProgramOp>, ins: readonly Varying[], visit: Visit): readonly Varying[] {
  const run = (body: Program, varying: readonly Varying[]) => varyingOutputs(body, varying, visit);
  return flow<ProgramOp, Varying>(eqn, ins, run, union, (a, b) => a.size === b.size).outs;
}

/** The ops that devices may tell apart, or whose results depend on some of the operands only. */
const rules: { readonly [K in AxisOp | ProgramOp | "optimizationBarrier"]: Rule<K> } = {
  psum: equal,
  pmax: equal,
  pmin: equal,
  allGather: equal,
  psumScatter: own,
  ppermute: own,
  allToAll: own,
  raggedAllToAll: own,
  axisIndex: own,
  optimizationBarrier: (_, ins) => ins,
  scan: throughBodies,
  while: throughBodies,
  cond: throughBodies,
  remat: throughBodies,
  customVjp: throughBodies,
  shardMap: (eqn, ins, visit) => {
    const { manual, inSpecs, outSpecs } = eqn.params;
    const split = ins.map((varying, i) => union(varying, new Set(at(inSpecs, i).flat())));
    return throughBodies(eqn, split, visit).map(
      (varying, i) =>
        new Set([...varying].filter((a) => !manual.includes(a) || at(outSpecs, i).flat().includes(a))),
    );
  },
};

type RuledOp = keyof typeof rules;

const isRuled = (eqn: Eqn): eqn is Eqn<RuledOp> => Object.hasOwn(rules, eqn.op);

/** Equal operands give equal results on every device, unless a rule says otherwise. */
function varyingOf(eqn: Eqn, ins: readonly Varying[], visit: Visit): readonly Varying[] {
  if (isRuled(eqn)) return applyRule(eqn, ins, visit);
  const all = union(...ins);
  return eqn.outs.map(() => all);
}

function applyRule<K extends RuledOp>(eqn: Eqn<K>, ins: readonly Varying[], visit: Visit) {
  const { op }: { readonly op: K } = eqn;
  const rule: Rule<K> = rules[op];
  return rule(eqn, ins, visit);
}
