/**
 * Forward-mode derivatives: next to every value its tangent. Loops and branches carry both; every other op is linear in
 * its tangents with the transpose of its pullback, so that one table of rules serves both directions.
 */

import { bodiesOf, countGroups, groupsOf, inGroups } from "../../ir/bodies.js";
import { zip } from "../../ir/collections.js";
import { isFloat } from "../../ir/dtype.js";
import { GradientError } from "../../ir/errors.js";
import { varyingAxes } from "../../ir/infer/varying.js";
import type { OpName, ProgramOp } from "../../ir/ops.js";
import {
  type Eqn,
  type EqnParts,
  evaluateProgram,
  hasPrograms,
  type Literal,
  type Program,
} from "../../ir/program.js";
import { at, type TensorType, typesOf } from "../../ir/shape.js";
import { atSource, bind, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { cut, pick, spread } from "../rewrite/split.js";
import { Threading } from "../rewrite/threadBodies.js";
import { activityOf } from "./activeBodies.js";
import { linearize, linearizeEqn, outputActivity } from "./linearize.js";
import { vjpRules } from "./vjpRules.js";
import type { VjpRule } from "./vjpTypes.js";

/** The tangent of a value; `null` stands for zeros, which are not computed. */
export type Tangent = Tensor | null;

/** Values and their tangents. */
export interface Pushed {
  readonly outs: readonly Tensor[];
  readonly tangents: readonly Tangent[];
}

/** Evaluates a program in the current trace, together with its tangents for given tangents of its inputs. */
export function pushForward(program: Program, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const given = changing(ins, tangents);
  const literal = (atom: Literal): Changing => ({ value: Tensor.literal(atom), tangent: null });
  const results = evaluateProgram(program, given, literal, (eqn, operands) => {
    const [values, changes] = [operands.map(({ value }) => value), operands.map(({ tangent }) => tangent)];
    const pushed = atSource(eqn.source, () => pushEqn(eqn, values, changes));
    return changing(pushed.outs, pushed.tangents);
  });
  return { outs: results.map(({ value }) => value), tangents: results.map(({ tangent }) => tangent) };
}

/** A value with its tangent. */
interface Changing {
  readonly value: Tensor;
  readonly tangent: Tangent;
}

/** Pairs values with their tangents; what is not a float has none. */
function changing(values: readonly Tensor[], tangents: readonly Tangent[]): Changing[] {
  return zip(values, tangents).map(([value, tangent]) => ({
    value,
    tangent: isFloat(value.dtype) ? tangent : null,
  }));
}

function pushEqn(eqn: Eqn, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const rule = vjpRules[eqn.op];
  const isConstant = tangents.every((tangent) => tangent === null) || rule.kind === "zero";
  if (isConstant || !eqn.outs.some(({ type }) => isFloat(type.dtype))) {
    const outs = bind<OpName>(eqn.op, ins, eqn.params);
    return { outs, tangents: outs.map(() => null) };
  }
  if (isOpened(eqn)) return pushBodies(eqn, ins, tangents);
  if (rule.kind === "unsupported") throw new GradientError(`[jvp] ${eqn.op}: ${rule.reason}`);
  const program = programOf(eqn);
  return program ? pushForward(program, ins, tangents) : transposePullback(eqn, ins, tangents);
}

/** The program of smaller ops that an equation stands for, if its rule has one. */
function programOf<K extends OpName>({ op, ins, params }: EqnParts<K>): Program | undefined {
  const rule: VjpRule<K> = vjpRules[op];
  if (rule.kind !== "pull" && rule.kind !== "linearize") return undefined;
  return rule.programOf?.(params, typesOf(ins));
}

/** An op's map of tangents is the transpose of its map of cotangents: the pullback of that linear map. */
function transposePullback(eqn: Eqn, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const active = tangents.map((tangent) => tangent !== null);
  const { outs, pullback } = linearizeEqn(eqn, ins, active, undefined, []);
  const isPulled = outs.map(({ dtype }) => isFloat(dtype));
  const cotangents = pick(typesOf(outs), isPulled);
  const pulled = traceFlat(
    (cts) => {
      const pulled = pullback(spread(cts, isPulled));
      const grads = pulled.map((grad, i) => grad ?? ops.zeros(at(ins, i).type));
      return pick(grads, active);
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
  const all = tangents.map((tangent, i) => like(tangent, at(values, i).type));
  return pick(all, flags);
}

/** A custom rule is transposed as a whole; the bodies of other ops carry tangents next to values. */
type OpenedOp = Exclude<ProgramOp, "customVjp">;

const isOpened = (eqn: Eqn): eqn is Eqn<OpenedOp> => hasPrograms(eqn) && eqn.op !== "customVjp";

/** In every group of operands and results, tangents follow the values. */
function pushBodies(eqn: Eqn<OpenedOp>, ins: readonly Tensor[], tangents: readonly Tangent[]): Pushed {
  const { operands, results, sizes } = bodiesOf(eqn);
  // The number of iterations does not depend on tangents: a condition reads the values alone.
  const unread = sizes.conditionConsts ?? 0;
  const given = tangents.map((tangent, i) => tangent !== null && i >= unread);
  const { ins: active, outs: activeOut } = activityOf(eqn, given, { outputActivity });
  const isActive = groupsOf(operands, sizes, active);
  const isActiveOut = groupsOf(results, sizes, activeOut);
  const { inSpecs, outSpecs, body } = eqn.op === "shardMap" ? eqn.params : unsplit;
  const blocks = inSpecs.map((spec, i) => ({ spec, type: at(body.inputs, i).type }));
  const changes = present(tangents, ins, active).map((tensor, i) => ({ tensor, ...pick(blocks, active)[i] }));
  const threading = new Threading(
    eqn,
    ins,
    groupsOf(operands, countGroups(operands, sizes, active), changes),
  );
  const { own, added } = threading.apply(
    ({ program, inputs, outputs }, values) => {
      const flags = inGroups(outputs, isActiveOut);
      const changesIn = spread(inGroups(inputs, values.added), inGroups(inputs, isActive));
      const pushed = pushForward(program, values.own, changesIn);
      const changesOut = present(pushed.tangents, program.outputs, flags);
      return {
        own: pushed.outs,
        added: groupsOf(outputs, countGroups(outputs, sizes, flags), changesOut),
      };
    },
    "jvp of a body",
    pick(outSpecs, activeOut),
  );
  return { outs: own, tangents: spread(inGroups(results, added), activeOut) };
}

const unsplit = { inSpecs: [], outSpecs: [], body: { inputs: [] } };

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
