import { isFloat } from "../ir/dtype.js";
import { GradientError, InternalError } from "../ir/errors.js";
import { axesSize, type MeshAxis, type Spec } from "../ir/mesh.js";
import type { OpParams } from "../ir/ops.js";
import type { Program, Var } from "../ir/program.js";
import { at, formatType, type TensorType } from "../ir/shape.js";
import { bind, Environment, inline, rebind, traceFlat } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import { removeDeadCode } from "./deadCode.js";
import type { Cotangent, Linearized, LinearizeRule, LinearizeTools, Saved } from "./linearize.js";
import { isSaveable } from "./rematPolicy.js";
import { simplify } from "./simplify.js";
import { cut, dependsOnlyOn, inputIndex, type Split, split, typesOf } from "./split.js";
import { programNamesAxis } from "./vmapContext.js";

const pick = <T>(list: readonly T[], keep: readonly boolean[]): T[] => list.filter((_, i) => keep[i]);
const count = (flags: readonly boolean[]): number => flags.filter(Boolean).length;
const orZeros = (cotangent: Cotangent, type: TensorType): Tensor => cotangent ?? ops.zeros(type);

/** Puts results for the flagged places back among `null`s. */
function scatterBack(results: readonly Tensor[], flags: readonly boolean[]): Cotangent[] {
  let next = 0;
  return flags.map((flag) => (flag ? at(results, next++) : null));
}

/**
 * The forward and backward parts of a body: (…inputs) → (…outputs), and
 * (…residuals, …cotangents of the active outputs) → (…cotangents of the active inputs).
 */
function vjpBody(
  body: Program,
  activeIn: readonly boolean[],
  activeOut: readonly boolean[],
  { linearize }: LinearizeTools,
): Split {
  const numIns = body.inputs.length;
  const outTypes = pick(typesOf(body.outputs), activeOut);
  const { program } = traceFlat(
    (args) => {
      const [ins, cts] = [args.slice(0, numIns), args.slice(numIns)];
      const { outs, pullback } = linearize(body, ins, activeIn);
      const pulled = pullback(scatterBack(cts, activeOut));
      const grads = pulled.map((ct, i) => orZeros(ct, at(body.inputs, i).type));
      return [...outs, ...pick(grads, activeIn)];
    },
    [...typesOf(body.inputs), ...outTypes],
    "vjp of a body",
  );
  return split(simplify(program), numIns, body.outputs.length);
}

/** A scan keeps stacked residuals on its way forward; the backward scan runs the other way. */
export const scanRule: LinearizeRule<"scan"> = (ins, params, active, tools) => {
  const { body, numConsts, numCarry, length, reverse } = params;
  const [constActive = [], initActive = [], xsActive = []] = cut(active, numConsts, numCarry);
  const [carryActive, yActive] = carryActivity(params, [constActive, initActive, xsActive], tools);
  const activeIn = [...constActive, ...carryActive, ...xsActive];
  const parts = vjpBody(body, activeIn, [...carryActive, ...yActive], tools);
  const { forward, backward } = parts;
  const kept = keepResiduals(parts, ins, params);
  const stackedBody = { ...forward, outputs: [...forward.outputs, ...kept.stacked] };
  const results = bind("scan", ins, { ...params, body: removeDeadCode(stackedBody) });
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
    const slice = ({ type }: Tensor): TensorType => ({ dtype: type.dtype, shape: type.shape.slice(1) });
    const { program } = traceFlat(
      stepBack(backward, kept, accumulators.length, count(carryActive)),
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

/** What the way back through a loop needs, and where it finds it. */
interface KeptResiduals {
  /** For every residual, whether it is the same in all steps, a slice of what is scanned over, or stacked. */
  readonly sources: readonly ("invariant" | "scanned" | "stacked")[];
  readonly invariants: readonly Tensor[];
  readonly scanned: readonly Tensor[];
  /** The values of a step that the way forward stacks. */
  readonly stacked: Split["residuals"];
}

function keepResiduals(
  { forward, residuals }: Split,
  ins: readonly Tensor[],
  { numConsts, numCarry }: OpParams["scan"],
): KeptResiduals {
  const constVars = forward.inputs.slice(0, numConsts);
  const isInvariant = dependsOnlyOn(forward, constVars);
  const sources = residuals.map((residual) => {
    const input = inputIndex(forward, residual);
    if (input >= numConsts + numCarry) return "scanned" as const;
    return isInvariant(residual) ? ("invariant" as const) : ("stacked" as const);
  });
  const of = (source: (typeof sources)[number]) => residuals.filter((_, i) => sources[i] === source);
  const once = removeDeadCode({ inputs: constVars, eqns: forward.eqns, outputs: of("invariant") });
  return {
    sources,
    invariants: inline(once, ins.slice(0, numConsts)),
    scanned: of("scanned").map((residual) => at(ins, inputIndex(forward, residual))),
    stacked: of("stacked"),
  };
}

/**
 * One step on the way back: (…invariants, …sums of the constants' cotangents, …cotangents of the carry, …scanned,
 * …stacked, …cotangents of the results) → (…sums, …cotangents of the carry and of what is scanned over).
 */
function stepBack(
  backward: Program,
  { sources, invariants, scanned, stacked }: KeptResiduals,
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
      stacked.length,
    );
    const pools = { invariant: inv.values(), scanned: sc.values(), stacked: st.values() };
    const kept = sources.map((source) => nextOf(pools[source]));
    const grads = inline(backward, [...kept, ...ctCarry, ...ctYs]);
    const [ctConsts = [], rest = []] = cut(grads, sums.length);
    return [...sums.map((sum, i) => ops.add(sum, at(ctConsts, i))), ...rest];
  };
}

/** The next of values that were counted before. */
function nextOf(values: Iterator<Tensor>): Tensor {
  const next = values.next();
  if (next.done) throw new InternalError("[vjp] there are fewer residuals than were kept");
  return next.value;
}

/** A carry is active when it starts so or becomes so after some iterations. */
function carryActivity(
  { body, numCarry }: OpParams["scan"],
  [constActive = [], initActive = [], xsActive = []]: readonly (readonly boolean[])[],
  { outputActivity }: LinearizeTools,
): [boolean[], boolean[]] {
  let carry = [...initActive];
  for (;;) {
    const out = outputActivity(body, [...constActive, ...carry, ...xsActive]);
    const next = carry.map((flag, i) => flag || (out[i] ?? false));
    if (next.every((flag, i) => flag === carry[i])) return [carry, out.slice(numCarry)];
    carry = next;
  }
}

/**
 * Each branch keeps its own residuals. The places of the other branches' residuals hold ones: when vmap makes
 * the branches' derivatives a choice between results of all, none of them divides by zero.
 */
export const condRule: LinearizeRule<"cond"> = (ins, { branches }, active, tools) => {
  const [index, ...operands] = ins;
  const activeIn = active.slice(1);
  const activities = branches.map((branch) => tools.outputActivity(branch, activeIn));
  const activeOut = at(branches, 0).outputs.map((_, i) => activities.some((activity) => activity[i]));
  const parts = branches.map((branch) => vjpBody(branch, activeIn, activeOut, tools));
  const kept = parts.map(({ forward, residuals }) => residuals.filter((r) => inputIndex(forward, r) < 0));
  const forwardBranches = parts.map(({ forward }, b) => {
    const { program } = traceFlat(
      (args) => {
        const withResiduals = { ...forward, outputs: [...forward.outputs, ...at(kept, b)] };
        const [outs = [], own = []] = cut(inline(withResiduals, args), forward.outputs.length);
        const ones = (list: readonly Var[]) => list.map(({ type }) => ops.full(type.shape, 1, type.dtype));
        const all = kept.map((list, i) => (i === b ? own : ones(list)));
        return [...outs, ...all.flat()];
      },
      typesOf(operands),
      "vjp of cond",
    );
    return simplify(program);
  });
  const results = bind("cond", ins, { branches: forwardBranches });
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
            return input >= 0
              ? at(ops_, input)
              : at(
                  [own.next().value].filter((t) => t !== undefined),
                  0,
                );
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
  return index ? { outs, pullback } : { outs: [], pullback: () => [] };
};

/**
 * The way forward keeps what the policy names. The way back computes the rest again, behind a barrier that
 * ties it to the cotangents, so that it can neither be merged with the first time nor moved before its use.
 */
export const rematRule: LinearizeRule<"remat"> = (
  ins,
  { body, policy },
  active,
  { linearize },
): Linearized => {
  if (policy.kind === "everything") return linearize(body, ins, active);
  const environment = new Environment(body.inputs, ins);
  for (const eqn of body.eqns) rebind(eqn, environment);
  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const present = cotangents.filter((ct) => ct !== null);
    const shaped = ins.filter((x) => x.node.kind !== "literal");
    const kept = body.eqns.filter((eqn) => isSaveable(policy, eqn)).flatMap((eqn) => eqn.outs);
    const barred = ops.optimizationBarrier([...shaped, ...environment.read(kept), ...present]);
    const [values = [], keptValues = [], cts = []] = cut(barred, shaped.length, kept.length);
    const nextValue = values.values();
    const nextCt = cts.values();
    const again = linearize(
      body,
      ins.map((x) => (x.node.kind === "literal" ? x : (nextValue.next().value ?? x))),
      active,
      savedValues(body, kept, keptValues),
    );
    return again.pullback(cotangents.map((ct) => (ct ? (nextCt.next().value ?? ct) : null)));
  };
  return { outs: environment.read(body.outputs), pullback };
};

/** The results that need not be computed again; what was given a name is kept when the name is. */
function savedValues(body: Program, kept: readonly Var[], values: readonly Tensor[]): Saved {
  const known = new Map(kept.map((variable, i) => [variable.id, at(values, i)]));
  for (const { op, ins, outs } of [...body.eqns].reverse()) {
    const [x, value] = [ins[0], known.get(outs[0]?.id ?? -1)];
    if (op === "name" && x?.kind === "var" && value) known.set(x.id, value);
  }
  return ({ outs }) => {
    const found = outs.map(({ id }) => known.get(id)).filter((value) => value !== undefined);
    return found.length === outs.length ? found : undefined;
  };
}

/** The user's own rule, which says nothing about values that the function closes over. */
export const customVjpRule: LinearizeRule<"customVjp"> = (ins, params, active) => {
  const { forward, backward, numCaptures, numResiduals, body } = params;
  const closedOver = ins.find((_, i) => i < numCaptures && active[i]);
  if (closedOver) {
    throw new GradientError(
      `[customVjp] the function closes over a ${formatType(closedOver.type)} that is being differentiated, but its rule gives cotangents to arguments only: pass the value as an argument, or stop its gradient with lax.stopGradient`,
    );
  }
  const [outs = [], residuals = []] = cut(inline(forward, ins), forward.outputs.length - numResiduals);
  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const cts = cotangents.map((ct, i) => orZeros(ct, at(body.outputs, i).type));
    const grads = inline(backward, [...ins.slice(0, numCaptures), ...residuals, ...cts]);
    const isArgument = ins.map((x, i) => i >= numCaptures && isFloat(x.dtype));
    return scatterBack(grads, isArgument);
  };
  return { outs, pullback };
};

/**
 * Residuals stay on their devices, stacked along dim 0 over the axes in use. An output that is not split over
 * an axis hands each device along it an equal share of its cotangent; an input that is not split gets the sum.
 */
export const shardMapRule: LinearizeRule<"shardMap"> = (ins, params, active, tools) => {
  const { mesh, manual, body, inSpecs, outSpecs } = params;
  const activeOut = tools.outputActivity(body, active);
  const parts = vjpBody(body, active, activeOut, tools);
  const { forward, backward, residuals } = parts;
  const used = axesInUse(params);
  const unmapped = (spec: Spec) => used.filter(({ name }) => !spec.flat().includes(name));
  const kept = residuals.filter((residual) => inputIndex(forward, residual) < 0);

  const keeping = keepOnDevices(forward, kept);
  const { program: forwardBody } = traceFlat(keeping, typesOf(body.inputs), "vjp of shardMap");
  const names = used.map(({ name }) => name);
  const keptSpecs = kept.map(({ type }): Spec => [names, ...type.shape.slice(1).map(() => [])]);
  const results = bind("shardMap", ins, {
    ...params,
    body: simplify(forwardBody),
    outSpecs: [...outSpecs, ...keptSpecs],
  });
  const [outs = [], stacked = []] = cut(results, outSpecs.length);

  const pullback = (cotangents: readonly Cotangent[]): Cotangent[] => {
    const cts = cotangents.map((ct, i) => orZeros(ct, at(outs, i).type));
    const activeSpecs = pick(outSpecs, activeOut);
    const wantedSpecs = pick(inSpecs, active);
    const operands = residuals.flatMap((residual) => {
      const input = inputIndex(forward, residual);
      return input >= 0 ? [{ tensor: at(ins, input), spec: at(inSpecs, input) }] : [];
    });
    const blockTypes = [
      ...residuals.filter((r) => inputIndex(forward, r) >= 0).map(({ type }) => type),
      ...kept.map(({ type }) => (type.shape.length === 0 ? { dtype: type.dtype, shape: [1] } : type)),
      ...pick(typesOf(body.outputs), activeOut),
    ];
    const blocksBack = (args: readonly Tensor[]) => {
      const [given = [], own = [], outCts = []] = cut(args, operands.length, kept.length);
      const values = valuesOfResiduals(parts, given, own);
      const shares = outCts.map((ct, i) => {
        const copies = axesSize(unmapped(at(activeSpecs, i)));
        return copies === 1 ? ct : ops.mul(ct, 1 / copies);
      });
      const grads = inline(backward, [...values, ...shares]);
      return grads.map((grad, i) => ops.psum(grad, unmapped(at(wantedSpecs, i))));
    };
    const { program } = traceFlat(blocksBack, blockTypes, "vjp of shardMap");
    const given = [...operands.map(({ tensor }) => tensor), ...stacked, ...pick(cts, activeOut)];
    const grads = bind("shardMap", given, {
      mesh,
      manual,
      body: simplify(program),
      inSpecs: [...operands.map(({ spec }) => spec), ...keptSpecs, ...activeSpecs],
      outSpecs: wantedSpecs,
    });
    return scatterBack(grads, active);
  };
  return { outs, pullback };
};

/**
 * The axes that a shard map's specs or body name. Along the others all devices do the same, so nothing has to be
 * shared out or summed over them.
 */
function axesInUse({ mesh, manual, inSpecs, outSpecs, body }: OpParams["shardMap"]): readonly MeshAxis[] {
  const split = new Set([...inSpecs, ...outSpecs].flatMap((spec) => spec.flat()));
  return mesh.axes.filter(
    ({ name }) => manual.includes(name) && (split.has(name) || programNamesAxis(body, name)),
  );
}

/** The way forward through a shard map's body, which also returns what is kept, with a dim to stack it along. */
function keepOnDevices(forward: Program, kept: readonly Var[]): (args: readonly Tensor[]) => Tensor[] {
  const withResiduals = { ...forward, outputs: [...forward.outputs, ...kept] };
  return (args) => {
    const [outs = [], own = []] = cut(inline(withResiduals, args), forward.outputs.length);
    return [...outs, ...own.map((x) => (x.ndim === 0 ? ops.reshape(x, [1]) : x))];
  };
}

/** The residuals of a shard map's body: some are blocks of its inputs, a device has the others of its own. */
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
