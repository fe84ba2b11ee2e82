import { isFloat } from "../../ir/dtype.js";
import { GradientError, InternalError } from "../../ir/errors.js";
import { axesSize, type Spec } from "../../ir/mesh.js";
import type { ControlRole, OpParams, ProgramOp } from "../../ir/ops.js";
import type { Program, Var } from "../../ir/program.js";
import { at, bytesOf, formatType, type TensorType, typesOf, withShape } from "../../ir/shape.js";
import { bind, inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { likeItsValue } from "../control/varyingTypes.js";
import { removeDeadCode } from "../rewrite/deadCode.js";
import { simplify } from "../rewrite/simplify.js";
import { cut, dependsOnlyOn, inputIndex, pick, type Split, split, spread } from "../rewrite/split.js";
import type { Threading } from "../rewrite/threadBodies.js";
import { activityOf } from "./activeBodies.js";
import { hoist } from "./hoist.js";
import { keepNothing, savedOfBody } from "./keep.js";
import {
  deviceSpec,
  differingAxes,
  replay,
  shareResults,
  type WithKnown,
  withKnown,
  withKnownInScan,
  withKnownOnDevices,
} from "./replay.js";
import type { LinearizeRule, LinearizeTools, TensorCotangent } from "./vjpTypes.js";

const orZeros = (cotangent: TensorCotangent, type: TensorType): Tensor =>
  cotangent ? likeItsValue(cotangent, type) : ops.zeros(type);

/** The cotangents of results as tensors. */
const filled = (
  cotangents: readonly TensorCotangent[],
  outs: readonly { readonly type: TensorType }[],
): Tensor[] => cotangents.map((ct, i) => orZeros(ct, at(outs, i).type));

/**
 * The forward and backward parts of a body: (…inputs and known values) → (…outputs), and
 * (…residuals, …cotangents of the active outputs) → (…cotangents of the active inputs).
 *
 * @param index which of the bodies
 * @param costIn what keeping the values of a body costs
 */
function vjpBody<K extends ProgramOp>(
  { threading, savedOf }: WithKnown<K>,
  activeIn: readonly boolean[],
  activeOut: readonly boolean[],
  { linearize }: LinearizeTools,
  { index = 0, costIn }: { index?: number; costIn?: (body: Program) => (value: Var) => number } = {},
): Split {
  const body = at(threading.bodies, index);
  const { inputs, outputs } = body.program;
  const types = threading.inputTypes(body);
  const { program } = traceFlat(
    (args) => {
      const [given = [], cts = []] = cut(args, types.length);
      const { own, added } = threading.unpack(body, given);
      const { outs, pullback } = linearize(body.program, own, activeIn, savedOf(added, index));
      const pulled = pullback(spread(cts, activeOut));
      const grads = pulled.map((ct, i) => orZeros(ct, at(inputs, i).type));
      return [...outs, ...pick(grads, activeIn)];
    },
    [...types, ...pick(typesOf(outputs), activeOut)],
    "vjp of a body",
  );
  const joint = simplify(program);
  return split(joint, types.length, outputs.length, costIn?.(joint));
}

/** A scan stacks residuals in the forward pass; the backward scan runs in the opposite direction. */
export const scanRule: LinearizeRule<"scan"> = (operands, params, active, tools, known) => {
  const { body, numConsts, numCarry, length, reverse } = params;
  const { ins: activeIn, outs: activeOut } = activityOf({ op: "scan", params }, active, tools);
  const [carryActive = [], yActive = []] = cut(activeOut, numCarry);
  const given = withKnownInScan(operands, params, known);
  const costIn = stackedBytes(given.threading);
  const parts = vjpBody(given, activeIn, activeOut, tools, { costIn });
  const kept = keepResiduals(parts, given.threading);
  const results = bind("scan", kept.ins, { ...kept.params, body: removeDeadCode(kept.params.body) });
  const [outs = [], stacked = []] = cut(results, body.outputs.length);

  const pullback = (cotangents: readonly TensorCotangent[]): TensorCotangent[] => {
    const [carryCts = [], yCts = []] = cut(filled(cotangents, outs), numCarry);
    const { invariants, scanned } = kept;
    const accumulators = pick(operands.slice(0, numConsts), activeIn).map(({ type }) => ops.zeros(type));
    const carryIn = [...accumulators, ...pick(carryCts, carryActive)];
    const xsIn = [...scanned, ...stacked, ...pick(yCts, yActive)];
    const slice = ({ type }: Tensor): TensorType => withShape(type, type.shape.slice(1));
    const { program } = traceFlat(
      stepBack(parts.backward, kept, accumulators.length, carryIn.length - accumulators.length),
      [...typesOf(invariants), ...typesOf(carryIn), ...xsIn.map(slice)],
      "vjp of scan",
    );
    const grads = bind("scan", [...invariants, ...carryIn, ...xsIn], {
      body: simplify(program),
      length,
      reverse: !reverse,
      numConsts: invariants.length,
      numCarry: carryIn.length,
      ...(params.role && { role: backwardRole(params.role) }),
    });
    return spread(grads, activeIn).map((ct, i) => (active[i] ? ct : null));
  };
  return { outs, pullback };
};

/** The role of the backward pass of a loop. */
function backwardRole(role: ControlRole): ControlRole {
  if (role.kind !== "forward" && role.kind !== "backward") return role;
  return { ...role, kind: role.kind === "forward" ? "backward" : "forward" };
}

/** The residuals of a loop, and where its backward pass finds them. */
interface KeptResiduals {
  /** For every residual, whether it is loop-invariant, a slice of a scanned operand, or stacked. */
  readonly sources: readonly ("invariant" | "scanned" | "stacked")[];
  readonly invariants: readonly Tensor[];
  readonly scanned: readonly Tensor[];
  /** How many values of an iteration the forward pass stacks, after its results. */
  readonly numStacked: number;
  /** The forward pass. */
  readonly ins: readonly Tensor[];
  readonly params: OpParams["scan"];
}

/** The bytes that an iteration stacks to keep a value of its body: none of what is invariant or scanned over. */
function stackedBytes({ sizes }: Threading<"scan">): (body: Program) => (value: Var) => number {
  const { consts = 0, carry = 0, xs = 0 } = sizes;
  return (body) => {
    const isInvariant = dependsOnlyOn(body, body.inputs.slice(0, consts));
    const scanned = new Set(body.inputs.slice(consts + carry, consts + carry + xs).map(({ id }) => id));
    return (value) => (isInvariant(value) || scanned.has(value.id) ? 0 : bytesOf(value.type));
  };
}

function keepResiduals({ forward, residuals }: Split, threading: Threading<"scan">): KeptResiduals {
  const ins = threading.operands;
  const params = threading.params([forward], {});
  const { numConsts, numCarry } = params;
  const isInvariant = dependsOnlyOn(forward, forward.inputs.slice(0, numConsts));
  const sources = residuals.map((residual) => {
    const input = inputIndex(forward, residual);
    if (input >= numConsts + numCarry) return "scanned" as const;
    return isInvariant(residual) ? ("invariant" as const) : ("stacked" as const);
  });
  const of = (source: (typeof sources)[number]) => residuals.filter((_, i) => sources[i] === source);
  const body = { ...forward, outputs: [...forward.outputs, ...of("stacked")] };
  const hoisted = hoist(ins, { ...params, body }, of("invariant"));
  return {
    ...hoisted,
    sources,
    invariants: hoisted.values,
    scanned: of("scanned").map((residual) => at(ins, inputIndex(forward, residual))),
    numStacked: of("stacked").length,
  };
}

/**
 * One iteration of the backward pass: (…invariants, …sums of the constants' cotangents, …cotangents of the carry,
 * …scanned, …stacked, …cotangents of the results) → (…sums, …cotangents of the carry and of the scanned operands).
 */
function stepBack(
  backward: Program,
  { sources, invariants, scanned, numStacked }: KeptResiduals,
  numSums: number,
  numCarry: number,
): (args: readonly Tensor[]) => Tensor[] {
  return (args) => {
    const [inv = [], sums = [], ctCarry = [], sc = [], st = [], ctYs = []] = cut(
      args,
      invariants.length,
      numSums,
      numCarry,
      scanned.length,
      numStacked,
    );
    const pools = { invariant: inv.values(), scanned: sc.values(), stacked: st.values() };
    const kept = sources.map((source) => nextOf(pools[source]));
    const grads = inline(backward, [...kept, ...ctCarry, ...ctYs]);
    const [ctConsts = [], rest = []] = cut(grads, sums.length);
    return [...sums.map((sum, i) => ops.add(sum, at(ctConsts, i))), ...rest];
  };
}

/** The next of a known number of values. */
function nextOf(values: Iterator<Tensor>): Tensor {
  const next = values.next();
  if (next.done) throw new InternalError("[vjp] there are fewer residuals than were kept");
  return next.value;
}

/** Each branch keeps its own residuals. */
export const condRule: LinearizeRule<"cond"> = (ins, params, active, tools, known) => {
  const given = withKnown({ op: "cond", params }, ins, known);
  const operands = given.threading.operands.slice(1);
  const activeIn = active.slice(1);
  const { outs: activeOut } = activityOf({ op: "cond", params }, active, tools);
  const parts = params.branches.map((_, index) => vjpBody(given, activeIn, activeOut, tools, { index }));
  const kept = parts.map(({ forward, residuals }) => residuals.filter((r) => inputIndex(forward, r) < 0));
  const keeping = parts.map(({ forward }, b) => ({
    ...forward,
    outputs: [...forward.outputs, ...at(kept, b)],
  }));
  const branches = shareResults(keeping, activeOut.length).map(simplify);
  const { own: outs, added } = given.threading.bind(branches, { ys: kept.flat().length });
  const residuals = added.ys ?? [];
  const pullback = (cotangents: readonly TensorCotangent[]): TensorCotangent[] => {
    const backwardIns = [...operands, ...residuals, ...pick(filled(cotangents, outs), activeOut)];
    const backwardBranches = parts.map((part, b) => {
      const { program } = traceFlat(
        (args) => {
          const [inputs = [], res = [], outCts = []] = cut(args, operands.length, residuals.length);
          const own = at(cut(res, ...kept.map((list) => list.length)), b);
          return inline(part.backward, [...residualsOf(part, inputs, own), ...outCts]);
        },
        typesOf(backwardIns),
        "vjp of cond",
      );
      return program;
    });
    const grads = bind("cond", [at(ins, 0), ...backwardIns], { branches: backwardBranches });
    return [null, ...spread(grads, activeIn)];
  };
  return { outs, pullback };
};

/** The residuals of a body: some are among its inputs, the others were kept. */
function residualsOf(
  { forward, residuals }: Split,
  inputs: readonly Tensor[],
  kept: readonly Tensor[],
): Tensor[] {
  const next = kept.values();
  return residuals.map((residual) => {
    const input = inputIndex(forward, residual);
    return input >= 0 ? at(inputs, input) : nextOf(next);
  });
}

/** The user's rule, which gives no cotangents to captured values. */
export const customVjpRule: LinearizeRule<"customVjp"> = (ins, params, active, _tools, known) => {
  const { body, forward, backward, numCaptures, numResiduals } = params;
  const closedOver = ins.find((_, i) => i < numCaptures && active[i]);
  if (closedOver) {
    throw new GradientError(
      `[grad] a function with a rule of its own (customVjp, customJvp, customGradient) closes over a ${formatType(closedOver.type)} that is being differentiated, but the rule is about its arguments only: pass the value as an argument, or stop its gradient with lax.stopGradient`,
    );
  }
  const results = replay(forward, ins, keepNothing, savedOfBody(known, 0)).outs;
  const [outs = [], residuals = []] = cut(results, forward.outputs.length - numResiduals);
  const pullback = (cotangents: readonly TensorCotangent[]): TensorCotangent[] => {
    const cts = filled(cotangents, body.outputs);
    const grads = inline(backward, [...ins.slice(0, numCaptures), ...residuals, ...cts]);
    const isArgument = ins.map((x, i) => i >= numCaptures && isFloat(x.dtype));
    return spread(grads, isArgument).map((ct, i) => ct && likeItsValue(ct, at(ins, i).type));
  };
  return { outs, pullback };
};

/**
 * Residuals stay on their devices, stacked along dim 0 over the axes along which they may differ. An output that may
 * differ along an axis but is not split over it gives each device an equal share of its cotangent; an input that is not
 * split gets the sum over the devices. Where types do not track varying values, everything may differ along the axes in
 * use.
 */
export const shardMapRule: LinearizeRule<"shardMap"> = (ins, params, active, tools, known) => {
  const { body, outSpecs } = params;
  const given = withKnownOnDevices(ins, params, known);
  const { threading } = given;
  const { outs: activeOut } = activityOf({ op: "shardMap", params }, active, tools);
  const parts = vjpBody(given, active, activeOut, tools);
  const { forward, backward, residuals } = parts;
  const unmapped = (spec: Spec, type: TensorType) =>
    differingAxes(params, type).filter(({ name }) => !spec.flat().includes(name));
  const kept = residuals.filter((residual) => inputIndex(forward, residual) < 0);
  const keptSpecs = kept.map(({ type }) => deviceSpec(params, type));
  const keeping = traceFlat(keepOnDevices(forward, kept), typesOf(forward.inputs), "vjp of shardMap").program;
  const mapParams = threading.params([simplify(keeping)], { ys: kept.length }, keptSpecs);
  const results = bind("shardMap", threading.operands, mapParams);
  const [outs = [], stacked = []] = cut(results, outSpecs.length);

  const pullback = (cotangents: readonly TensorCotangent[]): TensorCotangent[] => {
    const activeSpecs = pick(outSpecs, activeOut);
    const activeTypes = pick(typesOf(body.outputs), activeOut);
    const wantedSpecs = pick(params.inSpecs, active);
    const operands = residuals.flatMap(({ id, type }) => {
      const input = forward.inputs.findIndex((one) => one.id === id);
      return input < 0
        ? []
        : [{ type, tensor: at(threading.operands, input), spec: at(mapParams.inSpecs, input) }];
    });
    const blockTypes = [
      ...typesOf(operands),
      ...kept.map(({ type }) => (type.shape.length === 0 ? withShape(type, [1]) : type)),
      ...activeTypes,
    ];
    const blocksBack = (args: readonly Tensor[]) => {
      const [given = [], own = [], outCts = []] = cut(args, operands.length, kept.length);
      const values = valuesOfResiduals(parts, given, own);
      const shares = outCts.map((ct, i) => {
        const copies = axesSize(unmapped(at(activeSpecs, i), at(activeTypes, i)));
        return copies === 1 ? ct : ops.div(ct, copies);
      });
      const grads = inline(backward, [...values, ...shares]);
      return grads.map((grad, i) => ops.psum(grad, unmapped(at(wantedSpecs, i), grad.type)));
    };
    const { program } = traceFlat(blocksBack, blockTypes, "vjp of shardMap");
    const values = [
      ...operands.map(({ tensor }) => tensor),
      ...stacked,
      ...pick(filled(cotangents, outs), activeOut),
    ];
    const grads = bind("shardMap", values, {
      ...params,
      body: simplify(program),
      inSpecs: [...operands.map(({ spec }) => spec), ...keptSpecs, ...activeSpecs],
      outSpecs: wantedSpecs,
    });
    return spread(grads, active);
  };
  return { outs, pullback };
};

/** The forward pass through a shard map's body, which also returns the kept values, with a dim to stack them along. */
function keepOnDevices(forward: Program, kept: readonly Var[]): (args: readonly Tensor[]) => Tensor[] {
  const withResiduals = { ...forward, outputs: [...forward.outputs, ...kept] };
  return (args) => {
    const [outs = [], own = []] = cut(inline(withResiduals, args), forward.outputs.length);
    return [...outs, ...own.map((x) => (x.ndim === 0 ? ops.reshape(x, [1]) : x))];
  };
}

/** The residuals of a shard map's body: some are blocks of its inputs, the others belong to each device. */
function valuesOfResiduals(
  { forward, residuals }: Split,
  given: readonly Tensor[],
  own: readonly Tensor[],
): Tensor[] {
  const [nextGiven, nextOwn] = [given.values(), own.values()];
  return residuals.map((residual) => {
    const value = nextOf(inputIndex(forward, residual) >= 0 ? nextGiven : nextOwn);
    return ops.reshape(value, residual.type.shape);
  });
}
