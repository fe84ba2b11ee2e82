/**
 * Forward-mode derivatives: next to every value its tangent. Loops and branches carry both; every other op is linear in
 * its tangents with the transpose of its pullback, so that one table of rules serves both directions.
 */
import { isFloat } from "../../ir/dtype.js";
import { GradientError } from "../../ir/errors.js";
import type { OpName, OpParams, ProgramOp } from "../../ir/ops.js";
import { type Eqn, type EqnParts, newVar, type Program } from "../../ir/program.js";
import { at, range, type TensorType } from "../../ir/shape.js";
import { varyingAxes } from "../../ir/varying.js";
import { atSource, bind, Environment, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { cut, pick, typesOf } from "../rewrite/split.js";
import { activityInScan } from "./bodies.js";
import { linearize, linearizeEqn, outputActivity, tools } from "./linearize.js";
import { vjpRules } from "./vjpRules.js";

/** The tangent of a value; `null` stands for zeros, which are not computed. */
export type Tangent = Tensor | null;

/** Values and their tangents. */
export interface Pushed {
  readonly outs: readonly Tensor[];
  readonly tangents: readonly Tangent[];
}

/** Evaluates a program in the current trace, together with its tangents for given tangents of its inputs. */
export function pushForward(program: Program, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const environment = new Environment(program.inputs, ins);
  const changes = new Map<number, Tangent>();
  program.inputs.forEach(({ id, type }, i) => {
    changes.set(id, isFloat(type.dtype) ? at(tangents, i) : null);
  });
  const changeOf = (atom: Program["outputs"][number]): Tangent =>
    atom.kind === "var" ? (changes.get(atom.id) ?? null) : null;
  for (const eqn of program.eqns) {
    const operands = environment.read(eqn.ins);
    const pushed = atSource(eqn.source, () => pushEqn(eqn, operands, eqn.ins.map(changeOf)));
    environment.define(eqn.outs, pushed.outs);
    eqn.outs.forEach(({ id, type }, i) => {
      changes.set(id, isFloat(type.dtype) ? at(pushed.tangents, i) : null);
    });
  }
  return { outs: environment.read(program.outputs), tangents: program.outputs.map(changeOf) };
}

function pushEqn(eqn: Eqn, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const rule = vjpRules[eqn.op];
  const isConstant = tangents.every((tangent) => tangent === null) || rule.kind === "zero";
  if (isConstant || !eqn.outs.some(({ type }) => isFloat(type.dtype))) {
    const outs = bind<OpName>(eqn.op, ins, eqn.params);
    return { outs, tangents: outs.map(() => null) };
  }
  if (isOpened(eqn)) return openAndPush(eqn, ins, tangents);
  if (rule.kind === "unsupported") throw new GradientError(`[jvp] ${eqn.op}: ${rule.reason}`);
  return transposePullback(eqn, ins, tangents);
}

/** An op's map of tangents is the transpose of its map of cotangents: the pullback of that linear map. */
function transposePullback(eqn: Eqn, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const active = tangents.map((tangent) => tangent !== null);
  const { outs, pullback } = linearizeEqn(eqn, ins, active, undefined, []);
  const isPulled = outs.map(({ dtype }) => isFloat(dtype));
  const cotangents = pick(typesOf(outs), isPulled);
  const pulled = traceFlat(
    (cts) => {
      const grads = pullback(spread(cts, isPulled));
      return pick(
        grads.map((grad, i) => grad ?? ops.zeros(at(ins, i).type)),
        active,
      );
    },
    cotangents,
    "transpose of a pullback",
  );
  const { captures, program } = pulled;
  const anywhere = [...captures, ...cotangents.map(ops.zeros)];
  const linear = linearize(program, anywhere, [...captures.map(() => false), ...cotangents.map(() => true)]);
  const pushed = linear.pullback(pick(tangents, active)).slice(captures.length);
  return { outs, tangents: spread(pushed, isPulled) };
}

/** A tangent with the type of its value, which may vary along more axes. */
const like = (tangent: Tangent, type: TensorType): Tensor =>
  tangent ? ops.pvary(tangent, varyingAxes(type)) : ops.zeros(type);

/** The tangents of the flagged values, as tensors. */
function present(
  tangents: readonly Tangent[],
  values: readonly { readonly type: TensorType }[],
  flags: readonly boolean[],
): Tensor[] {
  return pick(
    tangents.map((tangent, i) => like(tangent, at(values, i).type)),
    flags,
  );
}

/** Results at the flagged positions, `null` at the others. */
function spread(tensors: readonly Tangent[], flags: readonly boolean[]): Tangent[] {
  const next = tensors.values();
  return flags.map((flag) => (flag ? (next.next().value ?? null) : null));
}

/**
 * A body with tangents: (…inputs, …tangents of active ones) → (…outputs, …tangents of active ones), in the order of the
 * layout.
 */
function pushBody(
  body: Program,
  activeIn: readonly boolean[],
  activeOut: readonly boolean[],
  layout: BodyLayout = inOrder,
): Program {
  const changing = pick(body.inputs, activeIn);
  const { inputs, outputs } = layout(body.inputs.length, activeIn, body.outputs.length, activeOut);
  const all = [...typesOf(body.inputs), ...typesOf(changing)];
  const { program } = traceFlat(
    (args) => {
      const given = new Array<Tensor>(args.length);
      inputs.forEach((place, i) => {
        given[place] = at(args, i);
      });
      const [ins = [], tangents = []] = cut(given, body.inputs.length);
      const pushed = pushForward(body, ins, spread(tangents, activeIn));
      const results = [...pushed.outs, ...present(pushed.tangents, body.outputs, activeOut)];
      return outputs.map((place) => at(results, place));
    },
    inputs.map((place) => at(all, place)),
    "jvp of a body",
  );
  return program;
}

/** The order in which a body takes and returns values and tangents. */
type BodyLayout = (
  numIns: number,
  activeIn: readonly boolean[],
  numOuts: number,
  activeOut: readonly boolean[],
) => { readonly inputs: readonly number[]; readonly outputs: readonly number[] };

const count = (flags: readonly boolean[]): number => flags.filter(Boolean).length;

const inOrder: BodyLayout = (numIns, activeIn, numOuts, activeOut) => ({
  inputs: range(numIns + count(activeIn)),
  outputs: range(numOuts + count(activeOut)),
});

/** Each of several groups of values is followed by its tangents. */
function grouped(lengths: readonly number[], active: readonly boolean[]): number[] {
  const places: number[] = [];
  let [value, change] = [0, active.length];
  for (const length of [...lengths, active.length - lengths.reduce((a, b) => a + b, 0)]) {
    const flags = active.slice(value, value + length);
    for (let i = 0; i < length; i++) places.push(value++);
    for (let i = count(flags); i > 0; i--) places.push(change++);
  }
  return places;
}

/** Values and tangents in the order of {@link grouped}. */
function arrange(
  lengths: readonly number[],
  values: readonly Tensor[],
  tangents: readonly Tangent[],
  active: readonly boolean[],
): Tensor[] {
  const all = [...values, ...present(tangents, values, active)];
  return grouped(lengths, active).map((place) => at(all, place));
}

type Push<K extends OpName> = (
  ins: readonly Tensor[],
  params: OpParams[K],
  tangents: readonly Tangent[],
) => Pushed;

/** Ops whose programs carry tangents; a custom rule is transposed as a whole. */
const pushes: { readonly [K in Exclude<ProgramOp, "customVjp">]: Push<K> } = {
  scan: pushScan,
  while: pushWhile,
  cond: (ins, { branches }, tangents) => {
    const [index, operands] = [at(ins, 0), ins.slice(1)];
    const changes = tangents.slice(1);
    const active = changes.map((tangent) => tangent !== null);
    const activities = branches.map((branch) => outputActivity(branch, active));
    const activeOut = at(branches, 0).outputs.map((_, i) => activities.some((flags) => flags[i]));
    const pushed = branches.map((branch) => pushBody(branch, active, activeOut));
    const results = bind("cond", [index, ...operands, ...present(changes, operands, active)], {
      branches: pushed,
    });
    return parted(results, activeOut);
  },
  remat: (ins, { body, policy }, tangents) => {
    const active = tangents.map((tangent) => tangent !== null);
    const activeOut = outputActivity(body, active);
    const params = { body: pushBody(body, active, activeOut), policy };
    return parted(bind("remat", [...ins, ...present(tangents, ins, active)], params), activeOut);
  },
  shardMap: (ins, params, tangents) => {
    const active = tangents.map((tangent) => tangent !== null);
    const activeOut = outputActivity(params.body, active);
    const results = bind("shardMap", [...ins, ...present(tangents, ins, active)], {
      ...params,
      body: pushBody(params.body, active, activeOut),
      inSpecs: [...params.inSpecs, ...pick(params.inSpecs, active)],
      outSpecs: [...params.outSpecs, ...pick(params.outSpecs, activeOut)],
    });
    return parted(results, activeOut);
  },
};

type OpenedOp = keyof typeof pushes;

const isOpened = (eqn: Eqn): eqn is Eqn<OpenedOp> => Object.hasOwn(pushes, eqn.op);

function openAndPush<K extends OpenedOp>(
  eqn: Eqn<K>,
  ins: readonly Tensor[],
  tangents: readonly Tangent[],
): Pushed {
  const { op, params }: EqnParts<K> = eqn;
  const push: Push<K> = pushes[op];
  return push(ins, params, tangents);
}

/** Results that come before their tangents. */
function parted(results: readonly Tensor[], active: readonly boolean[]): Pushed {
  const [outs = [], changes = []] = cut(results, active.length);
  return { outs, tangents: spread(changes, active) };
}

/** Results of a loop, in which the tangents of the carry follow it. */
function fromLoop(results: readonly Tensor[], numCarry: number, active: readonly boolean[]): Pushed {
  const values = new Array<Tensor>(results.length);
  grouped([numCarry], active).forEach((place, i) => {
    values[place] = at(results, i);
  });
  return parted(values, active);
}

function pushScan(ins: readonly Tensor[], params: OpParams["scan"], tangents: readonly Tangent[]): Pushed {
  const { body, numConsts, numCarry } = params;
  const given = tangents.map((tangent) => tangent !== null);
  const { constActive, carryActive, yActive, activeIn } = activityInScan(params, given, tools);
  const activeOut = [...carryActive, ...yActive];
  const groups = [numConsts, numCarry];
  const pushed = pushBody(body, activeIn, activeOut, () => ({
    inputs: grouped(groups, activeIn),
    outputs: grouped([numCarry], activeOut),
  }));
  const results = bind("scan", arrange(groups, ins, tangents, activeIn), {
    ...params,
    body: pushed,
    numConsts: numConsts + count(constActive),
    numCarry: numCarry + count(carryActive),
  });
  return fromLoop(results, numCarry, activeOut);
}

/** The number of iterations does not depend on tangents: the condition reads the values alone. */
function pushWhile(ins: readonly Tensor[], params: OpParams["while"], tangents: readonly Tangent[]): Pushed {
  const { condition, body, numConditionConsts, numBodyConsts } = params;
  const bodyTangents = tangents.slice(numConditionConsts);
  const given = bodyTangents.map((tangent) => tangent !== null);
  // A loop carries tangents as a scan without scanned operands does.
  const { constActive, carryActive, activeIn } = activityInScan(
    { body, length: 0, reverse: false, numConsts: numBodyConsts, numCarry: body.outputs.length },
    given,
    tools,
  );
  const groups = [numBodyConsts];
  const pushed = pushBody(body, activeIn, carryActive, () => ({
    inputs: grouped(groups, activeIn),
    outputs: range(body.outputs.length + count(carryActive)),
  }));
  const unread = pick(body.inputs.slice(numBodyConsts), carryActive).map(({ type }) => newVar(type));
  const [conditionIns = [], bodyIns = []] = cut(ins, numConditionConsts);
  const results = bind("while", [...conditionIns, ...arrange(groups, bodyIns, bodyTangents, activeIn)], {
    condition: { ...condition, inputs: [...condition.inputs, ...unread] },
    body: pushed,
    numConditionConsts,
    numBodyConsts: numBodyConsts + count(constActive),
  });
  return parted(results, carryActive);
}

/** The program that maps (…inputs, …tangents of the active ones) to (…outputs, …tangents of all). */
export function jvpProgram(program: Program, active: readonly boolean[]): Program {
  const types = typesOf(program.inputs);
  return traceFlat(
    (args) => {
      const [ins = [], tangents = []] = cut(args, types.length);
      const pushed = pushForward(program, ins, spread(tangents, active));
      const changes = pushed.tangents.map((tangent, i) => like(tangent, at(program.outputs, i).type));
      return [...pushed.outs, ...changes];
    },
    [...types, ...pick(types, active)],
    "jvp",
  ).program;
}
