import type { MeshAxis, Spec } from "../../ir/mesh.js";
import type { OpName, OpParams, ProgramOp } from "../../ir/ops.js";
import { type Eqn, hasPrograms, type Program } from "../../ir/program.js";
import { at, type TensorType, withShape } from "../../ir/shape.js";
import { varies, varyingAlong } from "../../ir/varying.js";
import { atSource, bind, Environment, inline, repeat, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { programNamesAxis } from "../batching/vmapContext.js";
import { removeDeadCode } from "../rewrite/deadCode.js";
import { cut, dependsOnlyOn, pick, typesOf } from "../rewrite/split.js";
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

function replayBodies<K extends ProgramOp>(
  { op, params }: Eqn<K>,
  ins: readonly Tensor[],
  keeps: readonly Keep[],
  known: readonly KeptInside[],
): Replayed {
  const rule: Replay<K> = replays[op];
  return rule(ins, params, (body) => keeps[body] ?? keepNothing, known);
}

type Replay<K extends ProgramOp> = (
  ins: readonly Tensor[],
  params: OpParams[K],
  keep: (body: number) => Keep,
  known: readonly KeptInside[],
) => Replayed;

const replays: { readonly [K in ProgramOp]: Replay<K> } = {
  scan: replayScan,
  while: (ins, params) => ({ outs: bind("while", ins, params), kept: [] }),
  cond: replayCond,
  remat: (ins, params, keep, known) => {
    const given = withKnown(ins, known);
    const body = replayBody(params.body, given, keep(0), 0);
    const [outs = [], kept = []] = cut(
      bind("remat", given.ins, { ...params, body }),
      params.body.outputs.length,
    );
    return { outs, kept };
  },
  customVjp: (ins, { forward, numResiduals }, keep, known) => {
    const { outs, kept } = replay(forward, ins, keep(0), savedOfBody(known, 0));
    return { outs: outs.slice(0, outs.length - numResiduals), kept };
  },
  shardMap: (ins, params, keep, known) => {
    const given = withKnownOnDevices(ins, params, known);
    const plain = replayBody(params.body, given, keep(0), 0);
    const numOuts = params.body.outputs.length;
    const { program: body } = traceFlat(
      (args) => inline(plain, args).map((x, i) => (i < numOuts ? x : ops.reshape(x, [1, ...x.shape]))),
      given.types,
      "shardMap that keeps values",
    );
    const keptSpecs = body.outputs.slice(numOuts).map(({ type }) => deviceSpec(params, type));
    const outSpecs = [...params.outSpecs, ...keptSpecs];
    const [outs = [], kept = []] = cut(
      bind("shardMap", given.ins, { ...given.params, body, outSpecs }),
      numOuts,
    );
    return { outs, kept };
  },
};

/** Operands of an op, including known values of its bodies. */
export interface WithKnown {
  readonly ins: readonly Tensor[];
  /** The types of a body's inputs. */
  readonly types: readonly TensorType[];
  /** Splits the inputs of a body into its original ones and its known values. */
  readonly unpack: (args: readonly Tensor[], body: number) => { ins: readonly Tensor[]; saved: Saved };
}

/** The body of an op with known values among its operands, which returns the values to keep after its results. */
function replayBody(program: Program, { types, unpack }: WithKnown, keep: Keep, body: number): Program {
  const traced = traceFlat(
    (args) => {
      const { ins, saved } = unpack(args, body);
      const { outs, kept } = replay(program, ins, keep, saved);
      return [...outs, ...kept];
    },
    types,
    "a body that keeps values",
  );
  return removeDeadCode(traced.program);
}

/** Known values come after the operands. */
export function withKnown(ins: readonly Tensor[], known: readonly KeptInside[]): WithKnown {
  const all = [...ins, ...known.flatMap(({ values }) => values)];
  return {
    ins: all,
    types: typesOf(all),
    unpack: (args, body) => ({
      ins: args.slice(0, ins.length),
      saved: savedOfBody(known, body, args.slice(ins.length)),
    }),
  };
}

/** Values of branches not taken are ones, as residuals are. */
function replayCond(
  ins: readonly Tensor[],
  { branches }: OpParams["cond"],
  keep: (body: number) => Keep,
  known: readonly KeptInside[],
): Replayed {
  const [index, ...operands] = ins;
  const given = withKnown(operands, known);
  const numOuts = at(branches, 0).outputs.length;
  const replayed = branches.map((branch, b) => replayBody(branch, given, keep(b), b));
  const types = replayed.map(({ outputs }) => typesOf(outputs.slice(numOuts)));
  const keeping = replayed.map((branch, b) => {
    const { program } = traceFlat(
      (args) => {
        const [outs = [], own = []] = cut(inline(branch, args), numOuts);
        return [...outs, ...types.flatMap((list, i) => (i === b ? own : list.map(ops.ones)))];
      },
      given.types,
      "cond that keeps values",
    );
    return program;
  });
  const results = bind("cond", index ? [index, ...given.ins] : [], { branches: keeping });
  const [outs = [], kept = []] = cut(results, numOuts);
  return { outs, kept };
}

/** Loop-invariant values are computed once, the others are stacked. */
function replayScan(
  ins: readonly Tensor[],
  params: OpParams["scan"],
  keepBody: (body: number) => Keep,
  known: readonly KeptInside[],
): Replayed {
  const given = withKnownInScan(ins, params, known);
  const keep = keepBody(0);
  const isInvariant = invariantKept(params, keep);
  const body = replayBody(params.body, given, keep, 0);
  const [bodyOuts = [], values = []] = cut(body.outputs, params.body.outputs.length);
  const stacking = { ...body, outputs: [...bodyOuts, ...values.filter((_, i) => !isInvariant[i])] };
  const { ins: all, ...once } = hoist(
    given.ins,
    { ...given.params, body: stacking },
    pick(values, isInvariant),
  );
  const results = bind("scan", all, { ...once.params, body: removeDeadCode(once.params.body) });
  const [outs = [], stacked = []] = cut(results, bodyOuts.length);
  const [nextInvariant, nextStacked] = [once.values.values(), stacked.values()];
  const kept = isInvariant.flatMap((flag) => (flag ? nextInvariant : nextStacked).next().value ?? []);
  return { outs, kept };
}

/** Which of the kept values of a scan's body are loop-invariant. */
function invariantKept({ body, numConsts }: OpParams["scan"], keep: Keep): boolean[] {
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
): WithKnown & { readonly params: OpParams["scan"] } {
  const { numConsts, numCarry } = params;
  const [consts = [], carry = [], xs = []] = cut(ins, numConsts, numCarry);
  const values = known.flatMap((kept) => kept.values);
  const isInvariant = known.flatMap(({ keeps }) => invariantKept(params, at(keeps, 0)));
  const invariants = pick(values, isInvariant);
  const scanned = [...xs, ...values.filter((_, i) => !isInvariant[i])];
  const slice = ({ type }: Tensor): TensorType => withShape(type, type.shape.slice(1));
  return {
    ins: [...consts, ...invariants, ...carry, ...scanned],
    params: { ...params, numConsts: numConsts + invariants.length },
    types: [...typesOf([...consts, ...invariants, ...carry]), ...scanned.map(slice)],
    unpack: (args) => {
      const [own = [], fixed = [], steps = [], stacked = []] = cut(
        args,
        numConsts,
        invariants.length,
        numCarry + xs.length,
      );
      const [nextFixed, nextStacked] = [fixed.values(), stacked.values()];
      const all = isInvariant.flatMap((flag) => (flag ? nextFixed : nextStacked).next().value ?? []);
      return { ins: [...own, ...steps], saved: savedOfBody(known, 0, all) };
    },
  };
}

/** Known values of a shard map stay on their devices, stacked along an extra dim. */
export function withKnownOnDevices(
  ins: readonly Tensor[],
  params: OpParams["shardMap"],
  known: readonly KeptInside[],
): WithKnown & { readonly params: OpParams["shardMap"] } {
  const plain = withKnown(ins, known);
  const values = plain.ins.slice(ins.length);
  const varying = known.flatMap(({ keeps }) => keeps.flatMap(keptVarying));
  const blocks = values.map(({ type }, i) =>
    varyingAlong(withShape(type, [1, ...type.shape.slice(1)]), at(varying, i)),
  );
  const inSpecs = [...params.inSpecs, ...blocks.map((type) => deviceSpec(params, type))];
  return {
    ins: plain.ins,
    params: { ...params, inSpecs },
    types: [...typesOf(params.body.inputs), ...blocks],
    unpack: (args, body) => {
      const [own = [], blocks = []] = cut(args, ins.length);
      return plain.unpack([...own, ...blocks.map((x) => ops.reshape(x, x.shape.slice(1)))], body);
    },
  };
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
