import type { BodyOp, Groups } from "../../ir/bodies.js";
import { varies, varyingAlong } from "../../ir/infer/varying.js";
import type { MeshAxis, Spec } from "../../ir/mesh.js";
import type { OpName, OpParams, ProgramOp } from "../../ir/ops.js";
import { type Eqn, hasPrograms, type Program } from "../../ir/program.js";
import { at, type TensorType, typesOf, withShape } from "../../ir/shape.js";
import { atSource, bind, Environment, inline, repeat, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { programNamesAxis } from "../batching/vmapContext.js";
import { removeDeadCode } from "../rewrite/deadCode.js";
import { cut, dependsOnlyOn, merge, pick } from "../rewrite/split.js";
import { type Extra, extrasOf, type Threaded, Threading } from "../rewrite/threadBodies.js";
import { hoist } from "./hoist.js";
import {
  type Keep,
  type KeptInside,
  keepNothing,
  keptVarying,
  numKept,
  type Saved,
  savedInside,
  savedOfBody,
  savedOuts,
} from "./keep.js";

/** Results, and the values to keep. */
export interface Replayed {
  readonly outs: readonly Tensor[];
  readonly kept: readonly Tensor[];
}

/**
 * Records the equations of a program in the current trace, applied to the given values.
 *
 * @param keep the values to return besides the results, including those inside loops and branches
 * @param saved known values, which need not be recomputed
 */
export function replay(program: Program, ins: readonly Tensor[], keep: Keep, saved: Saved): Replayed {
  const environment = new Environment(program.inputs, ins);
  const known = savedOuts(program, saved);
  const inside: Tensor[] = [];
  for (const eqn of program.eqns) {
    const operands = environment.read(eqn.ins);
    const run = () => replayEqn(eqn, operands, keep.inside.get(eqn) ?? [], savedInside(saved, eqn));
    const outs = known(eqn);
    const replayed = outs && !keep.inside.has(eqn) ? { outs, kept: [] } : atSource(eqn.source, run);
    environment.define(eqn.outs, outs ?? replayed.outs);
    inside.push(...replayed.kept);
  }
  return { outs: environment.read(program.outputs), kept: [...environment.read(keep.vars), ...inside] };
}

/** The results of an equation, and the values of its bodies to keep. */
export function replayEqn(
  eqn: Eqn,
  ins: readonly Tensor[],
  keeps: readonly Keep[],
  known: readonly KeptInside[],
): Replayed {
  if (!hasPrograms(eqn) || (keeps.length === 0 && known.length === 0)) {
    return { outs: repeat<OpName>(eqn, ins), kept: [] };
  }
  return replayBodies(eqn, ins, keeps, known);
}

function replayBodies(
  eqn: Eqn<ProgramOp>,
  ins: readonly Tensor[],
  keeps: readonly Keep[],
  known: readonly KeptInside[],
): Replayed {
  const keep = (body: number): Keep => keeps[body] ?? keepNothing;
  switch (eqn.op) {
    case "while":
      return { outs: bind("while", ins, eqn.params), kept: [] };
    case "customVjp": {
      const { forward, numResiduals } = eqn.params;
      const { outs, kept } = replay(forward, ins, keep(0), savedOfBody(known, 0));
      return { outs: outs.slice(0, outs.length - numResiduals), kept };
    }
    case "scan":
      return replayScan(withKnownInScan(ins, eqn.params, known), keep(0));
    case "shardMap": {
      const { params } = eqn;
      return replayAll(withKnownOnDevices(ins, params, known), keep, addDeviceDim, (type) =>
        deviceSpec(params, type),
      );
    }
    default:
      return replayAll(withKnown(eqn, ins, known), keep);
  }
}

/** An op with known values of its bodies among its operands. */
export interface WithKnown<K extends ProgramOp> {
  readonly threading: Threading<K>;
  /** The known values of a body, given the inputs that were added to it. */
  readonly savedOf: (added: Groups<Tensor>, body: number) => Saved;
}

/** Where known values are added to an op, and how its bodies get them from there. */
interface KnownOperands {
  readonly extras: Groups<Extra>;
  readonly collect: (added: Groups<Tensor>) => readonly Tensor[];
}

const valuesOf = (known: readonly KeptInside[]): Tensor[] => known.flatMap(({ values }) => values);

/** Adds known values to the operands of an op, by default after all others. */
export function withKnown<K extends ProgramOp>(
  eqn: BodyOp<K>,
  ins: readonly Tensor[],
  known: readonly KeptInside[],
  { extras, collect }: KnownOperands = {
    extras: { consts: extrasOf(valuesOf(known)) },
    collect: ({ consts = [] }) => consts,
  },
): WithKnown<K> {
  return {
    threading: new Threading(eqn, ins, extras),
    savedOf: (added, body) => savedOfBody(known, body, collect(added)),
  };
}

/** A body that returns the values to keep after its results. */
function replayBody<K extends ProgramOp>(
  { threading, savedOf }: WithKnown<K>,
  keep: Keep,
  index: number,
  finish: (kept: Tensor) => Tensor = (x) => x,
): Program {
  const body = at(threading.bodies, index);
  const run = ({ own, added }: Threaded): Threaded => {
    const { outs, kept } = replay(body.program, own, keep, savedOf(added, index));
    return { own: outs, added: { ys: kept.map(finish) } };
  };
  return removeDeadCode(threading.trace(body, run, "a body that keeps values"));
}

const addDeviceDim = (x: Tensor): Tensor => ops.reshape(x, [1, ...x.shape]);

/** Replays all bodies of an op that runs one of them once. */
function replayAll<K extends ProgramOp>(
  given: WithKnown<K>,
  keep: (body: number) => Keep,
  finish?: (kept: Tensor) => Tensor,
  specOf?: (type: TensorType) => Spec,
): Replayed {
  const { threading } = given;
  const numOuts = threading.form.sizes.ys ?? 0;
  const programs = shareResults(
    threading.bodies.map((_, b) => replayBody(given, keep(b), b, finish)),
    numOuts,
  );
  const types = typesOf(at(programs, 0).outputs.slice(numOuts));
  const specs = specOf ? types.map(specOf) : [];
  const { own, added } = threading.bind(programs, { ys: types.length }, specs);
  return { outs: own, kept: added.ys ?? [] };
}

/**
 * Branches with the same first results, each of which then returns the further results of all: those of branches not
 * taken are ones, so that no derivative divides by zero when vmap evaluates all branches and selects.
 */
export function shareResults(branches: readonly Program[], numOuts: number): readonly Program[] {
  if (branches.length === 1) return branches;
  const types = branches.map(({ outputs }) => typesOf(outputs.slice(numOuts)));
  return branches.map((branch, b) => {
    const run = (args: readonly Tensor[]): Tensor[] => {
      const [outs = [], own = []] = cut(inline(branch, args), numOuts);
      return [...outs, ...types.flatMap((list, i) => (i === b ? own : list.map(ops.ones)))];
    };
    return traceFlat(run, typesOf(branch.inputs), "a branch that keeps values").program;
  });
}

/** Loop-invariant values are computed once, the others are stacked. */
function replayScan(given: WithKnown<"scan">, keep: Keep): Replayed {
  const { threading } = given;
  const { program } = at(threading.bodies, 0);
  const isInvariant = invariantKept(program, threading.form.sizes.consts ?? 0, keep);
  const body = replayBody(given, keep, 0);
  const [bodyOuts = [], values = []] = cut(body.outputs, program.outputs.length);
  const stacking = { ...body, outputs: [...bodyOuts, ...values.filter((_, i) => !isInvariant[i])] };
  const params = threading.params([stacking], { ys: stacking.outputs.length - bodyOuts.length });
  const { ins, ...once } = hoist(threading.operands, params, pick(values, isInvariant));
  const results = bind("scan", ins, { ...once.params, body: removeDeadCode(once.params.body) });
  const [outs = [], stacked = []] = cut(results, bodyOuts.length);
  return { outs, kept: merge(isInvariant, once.values, stacked) };
}

/** Which of the kept values of a scan's body are loop-invariant. */
function invariantKept(body: Program, numConsts: number, keep: Keep): boolean[] {
  const isInvariant = dependsOnlyOn(body, body.inputs.slice(0, numConsts));
  const inside = [...keep.inside].flatMap(([eqn, keeps]) => {
    const flag = eqn.ins.every(isInvariant);
    return keeps.flatMap((inner) => Array.from({ length: numKept(inner) }, () => flag));
  });
  return [...keep.vars.map(isInvariant), ...inside];
}

/** Known values of a scan: loop-invariant ones are constants, the others are scanned over. */
export function withKnownInScan(
  ins: readonly Tensor[],
  params: OpParams["scan"],
  known: readonly KeptInside[],
): WithKnown<"scan"> {
  const { body, numConsts } = params;
  const values = valuesOf(known);
  const isInvariant = known.flatMap(({ keeps }) => invariantKept(body, numConsts, at(keeps, 0)));
  const stacked = values.filter((_, i) => !isInvariant[i]);
  return withKnown({ op: "scan", params }, ins, known, {
    extras: { consts: extrasOf(pick(values, isInvariant)), xs: extrasOf(stacked) },
    collect: ({ consts = [], xs = [] }) => merge(isInvariant, consts, xs),
  });
}

/** Known values of a shard map stay on their devices, stacked along an extra dim. */
export function withKnownOnDevices(
  ins: readonly Tensor[],
  params: OpParams["shardMap"],
  known: readonly KeptInside[],
): WithKnown<"shardMap"> {
  const varying = known.flatMap(({ keeps }) => keeps.flatMap(keptVarying));
  const consts = valuesOf(known).map((tensor, i): Extra => {
    const block = withShape(tensor.type, [1, ...tensor.shape.slice(1)]);
    const type = varyingAlong(block, at(varying, i));
    return { tensor, type, spec: deviceSpec(params, type) };
  });
  return withKnown({ op: "shardMap", params }, ins, known, {
    extras: { consts },
    collect: ({ consts: blocks = [] }) => blocks.map((x) => ops.reshape(x, x.shape.slice(1))),
  });
}

/** Dim 0 is split over the axes along which a value may differ. */
export function deviceSpec(params: OpParams["shardMap"], type: TensorType): Spec {
  return [differingAxes(params, type).map(({ name }) => name), ...type.shape.slice(1).map(() => [])];
}

/** The axes of a shard map along which a value in it may differ: all axes in use if types do not track it. */
export function differingAxes(params: OpParams["shardMap"], type: TensorType): readonly MeshAxis[] {
  const { mesh, manual, checked } = params;
  if (!checked) return axesInUse(params);
  return mesh.axes.filter(({ name }) => manual.includes(name) && varies(type, name));
}

/**
 * The axes that a shard map's specs or body name. Along the others all devices do the same, so nothing has to be
 * divided or summed over them.
 */
function axesInUse({ mesh, manual, inSpecs, outSpecs, body }: OpParams["shardMap"]): readonly MeshAxis[] {
  const split = new Set([...inSpecs, ...outSpecs].flatMap((spec) => spec.flat()));
  return mesh.axes.filter(
    ({ name }) => manual.includes(name) && (split.has(name) || programNamesAxis(body, name)),
  );
}
