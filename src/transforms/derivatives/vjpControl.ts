import { isFloat } from "../../ir/dtype.js";
import { GradientError, InternalError } from "../../ir/errors.js";
import { axesSize, type Spec } from "../../ir/mesh.js";
import type { OpParams } from "../../ir/ops.js";
import type { Program, Var } from "../../ir/program.js";
import { at, formatType, type TensorType, withShape } from "../../ir/shape.js";
import { bind, inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { likeItsValue } from "../control/varyingTypes.js";
import { removeDeadCode } from "../rewrite/deadCode.js";
import { simplify } from "../rewrite/simplify.js";
import { cut, dependsOnlyOn, inputIndex, pick, type Split, split, typesOf } from "../rewrite/split.js";
import { activityInScan } from "./bodies.js";
import { hoist } from "./hoist.js";
import { keepNothing, savedOfBody } from "./keep.js";
import type { Cotangent, LinearizeRule, LinearizeTools } from "./linearize.js";
import {
  deviceSpec,
  differingAxes,
  replay,
  type WithKnown,
  withKnown,
  withKnownInScan,
  withKnownOnDevices,
} from "./replay.js";

const count = (flags: readonly boolean[]): number => flags.filter(Boolean).length;
const orZeros = (cotangent: Cotangent, type: TensorType): Tensor =>
  cotangent ? likeItsValue(cotangent, type) : ops.zeros(type);

/** Results at the flagged positions, `null` at the others. */
function scatterBack(results: readonly Tensor[], flags: readonly boolean[]): Cotangent[] {
  let next = 0;
  return flags.map((flag) => (flag ? at(results, next++) : null));
}

/** A body to be differentiated, and which of its inputs and outputs have cotangents. */
interface ActiveBody {
  readonly body: Program;
  readonly activeIn: readonly boolean[];
  readonly activeOut: readonly boolean[];
  /** Its index among the bodies of its equation. */
  readonly index?: number;
}

/**
 * The forward and backward parts of a body: (…inputs and known values) → (…outputs), and
 * (…residuals, …cotangents of the active outputs) → (…cotangents of the active inputs).
 */
function vjpBody(
  { body, activeIn, activeOut, index = 0 }: ActiveBody,
  { types, unpack }: WithKnown,
  { linearize }: LinearizeTools,
): Split {
  const numIns = types.length;
  const outTypes = pick(typesOf(body.outputs), activeOut);
  const { program } = traceFlat(
    (args) => {
      const [given = [], cts = []] = cut(args, numIns);
      const { ins, saved } = unpack(given, index);
      const { outs, pullback } = linearize(body, ins, activeIn, saved);
      const pulled = pullback(scatterBack(cts, activeOut));
      const grads = pulled.map((ct, i) => orZeros(ct, at(body.inputs, i).type));
      return [...outs, ...pick(grads, activeIn)];
    },
    [...types, ...outTypes],
    "vjp of a body",
  );
  return split(simplify(program), numIns, body.outputs.length);
}

/** A scan stacks residuals in the forward pass; the backward scan runs in the opposite direction. */
export const scanRule: LinearizeRule<"scan"> = (operands, scanParams, active, tools, known) => {
  const { constActive, carryActive, yActive, activeIn } = activityInScan(scanParams, active, tools);
  const given = withKnownInScan(operands, scanParams, known);
  const { ins, params } = given;
  const { body, numConsts, numCarry, length, reverse } = params;
  const parts = vjpBody({ body, activeIn, activeOut: [...carryActive, ...yActive] }, given, tools);
  const kept = keepResiduals(parts, ins, params);
  const results = bind("scan", kept.ins, { ...kept.params, body: removeDeadCode(kept.params.body) });
  const [outs = [], stacked = []] = cut(results, body.outputs.length);

  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const [carryCts = [], yCts = []] = cut(
      cotangents.map((ct, i) => orZeros(ct, at(outs, i).type)),
      numCarry,
    );
    const { invariants, scanned } = kept;
    const accumulators = pick(ins.slice(0, numConsts), constActive).map(({ type }) => ops.zeros(type));
    const carryIn = [...accumulators, ...pick(carryCts, carryActive)];
    const xsIn = [...scanned, ...stacked, ...pick(yCts, yActive)];
    const slice = ({ type }: Tensor): TensorType => withShape(type, type.shape.slice(1));
    const { program } = traceFlat(
      stepBack(parts.backward, kept, accumulators.length, count(carryActive)),
      [...typesOf(invariants), ...typesOf(carryIn), ...xsIn.map(slice)],
      "vjp of scan",
    );
    const grads = bind("scan", [...invariants, ...carryIn, ...xsIn], {
      body: simplify(program),
      length,
      reverse: !reverse,
      numConsts: invariants.length,
      numCarry: carryIn.length,
    });
    const all = scatterBack(grads, activeIn);
    return all.map((ct, i) => (active[i] ? ct : null));
  };
  return { outs, pullback };
};

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

function keepResiduals(
  { forward, residuals }: Split,
  ins: readonly Tensor[],
  params: OpParams["scan"],
): KeptResiduals {
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

/**
 * Each branch keeps its own residuals. The residuals of the other branches are ones: when vmap evaluates the
 * derivatives of all branches and selects, none of them divides by zero.
 */
export const condRule: LinearizeRule<"cond"> = (ins, { branches }, active, tools, known) => {
  const given = withKnown(ins.slice(1), known);
  const operands = given.ins;
  const activeIn = active.slice(1);
  const activities = branches.map((branch) => tools.outputActivity(branch, activeIn));
  const activeOut = at(branches, 0).outputs.map((_, i) => activities.some((activity) => activity[i]));
  const parts = branches.map((body, index) => vjpBody({ body, activeIn, activeOut, index }, given, tools));
  const kept = parts.map(({ forward, residuals }) => residuals.filter((r) => inputIndex(forward, r) < 0));
  const forwardBranches = parts.map(({ forward }, b) => {
    const { program } = traceFlat(
      (args) => {
        const withResiduals = { ...forward, outputs: [...forward.outputs, ...at(kept, b)] };
        const [outs = [], own = []] = cut(inline(withResiduals, args), forward.outputs.length);
        const all = kept.map((list, i) => (i === b ? own : typesOf(list).map(ops.ones)));
        return [...outs, ...all.flat()];
      },
      typesOf(operands),
      "vjp of cond",
    );
    return simplify(program);
  });
  const results = bind("cond", [at(ins, 0), ...operands], { branches: forwardBranches });
  const [outs = [], residuals = []] = cut(results, activeOut.length);
  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const cts = pick(
      cotangents.map((ct, i) => orZeros(ct, at(outs, i).type)),
      activeOut,
    );
    const backwardIns = [...operands, ...residuals, ...cts];
    const backwardBranches = parts.map(({ forward, backward, residuals: wanted }, b) => {
      const { program } = traceFlat(
        (args) => {
          const [ops_ = [], res = [], outCts = []] = cut(args, operands.length, residuals.length);
          const own = at(cut(res, ...kept.map((list) => list.length)), b).values();
          const values = wanted.map((residual) => {
            const input = inputIndex(forward, residual);
            return input >= 0 ? at(ops_, input) : nextOf(own);
          });
          return inline(backward, [...values, ...outCts]);
        },
        typesOf(backwardIns),
        "vjp of cond",
      );
      return program;
    });
    const grads = bind("cond", [at(ins, 0), ...backwardIns], { branches: backwardBranches });
    return [null, ...scatterBack(grads, activeIn)];
  };
  return { outs, pullback };
};

/** The user's rule, which gives no cotangents to captured values. */
export const customVjpRule: LinearizeRule<"customVjp"> = (ins, params, active, _tools, known) => {
  const { forward, backward, numCaptures, numResiduals, body } = params;
  const closedOver = ins.find((_, i) => i < numCaptures && active[i]);
  if (closedOver) {
    throw new GradientError(
      `[customVjp] the function closes over a ${formatType(closedOver.type)} that is being differentiated, but its rule gives cotangents to arguments only: pass the value as an argument, or stop its gradient with lax.stopGradient`,
    );
  }
  const results = replay(forward, ins, keepNothing, savedOfBody(known, 0)).outs;
  const [outs = [], residuals = []] = cut(results, forward.outputs.length - numResiduals);
  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const cts = cotangents.map((ct, i) => orZeros(ct, at(body.outputs, i).type));
    const grads = inline(backward, [...ins.slice(0, numCaptures), ...residuals, ...cts]);
    const isArgument = ins.map((x, i) => i >= numCaptures && isFloat(x.dtype));
    return scatterBack(grads, isArgument).map((ct, i) => ct && likeItsValue(ct, at(ins, i).type));
  };
  return { outs, pullback };
};

/**
 * Residuals stay on their devices, stacked along dim 0 over the axes along which they may differ. An output that may
 * differ along an axis but is not split over it gives each device an equal share of its cotangent; an input that is not
 * split gets the sum over the devices. Where types do not track varying values, everything may differ along the axes in
 * use.
 */
export const shardMapRule: LinearizeRule<"shardMap"> = (blocks, mapParams, active, tools, known) => {
  const given = withKnownOnDevices(blocks, mapParams, known);
  const { ins, params } = given;
  const { mesh, manual, body, inSpecs, outSpecs, checked } = params;
  const activeOut = tools.outputActivity(body, active);
  const parts = vjpBody({ body, activeIn: active, activeOut }, given, tools);
  const { forward, backward, residuals } = parts;
  const unmapped = (spec: Spec, type: TensorType) =>
    differingAxes(params, type).filter(({ name }) => !spec.flat().includes(name));
  const kept = residuals.filter((residual) => inputIndex(forward, residual) < 0);

  const keeping = keepOnDevices(forward, kept);
  const { program: forwardBody } = traceFlat(keeping, given.types, "vjp of shardMap");
  const keptSpecs = kept.map(({ type }) => deviceSpec(params, type));
  const results = bind("shardMap", ins, {
    ...params,
    body: simplify(forwardBody),
    outSpecs: [...outSpecs, ...keptSpecs],
  });
  const [outs = [], stacked = []] = cut(results, outSpecs.length);

  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const cts = cotangents.map((ct, i) => orZeros(ct, at(outs, i).type));
    const activeSpecs = pick(outSpecs, activeOut);
    const activeTypes = pick(typesOf(body.outputs), activeOut);
    const wantedSpecs = pick(inSpecs, active);
    const operands = residuals.flatMap((residual) => {
      const input = inputIndex(forward, residual);
      return input >= 0 ? [{ tensor: at(ins, input), spec: at(inSpecs, input) }] : [];
    });
    const blockTypes = [
      ...residuals.filter((r) => inputIndex(forward, r) >= 0).map(({ type }) => type),
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
    const values = [...operands.map(({ tensor }) => tensor), ...stacked, ...pick(cts, activeOut)];
    const grads = bind("shardMap", values, {
      mesh,
      manual,
      checked,
      body: simplify(program),
      inSpecs: [...operands.map(({ spec }) => spec), ...keptSpecs, ...activeSpecs],
      outSpecs: wantedSpecs,
    });
    return scatterBack(grads, active);
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
