import { isFloat } from "../../ir/dtype.js";
import type { OpParams } from "../../ir/ops.js";
import { at, type TensorType } from "../../ir/shape.js";
import { joinAxes, varyingAxes } from "../../ir/varying.js";
import { bind, inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { refuseMaskedChecks } from "../checks/checks.js";
import {
  type BatchContext,
  type Batched,
  batched,
  batchedType,
  batchProgram,
  either,
  flagsOf,
  materialize,
  programNamesAxis,
  selectElements,
  sumOverBatch,
  tensorsOf,
  type VmapRule,
  withFlags,
} from "./vmapContext.js";

/**
 * Adds flags until an iteration of the loop adds none: a carry that is batched after one iteration must be batched
 * before the next.
 */
function fixpoint(
  start: readonly boolean[],
  step: (flags: readonly boolean[]) => readonly boolean[],
): boolean[] {
  let flags = [...start];
  while (!flags.every(Boolean)) {
    const grown = either(flags, step(flags));
    if (grown.every((flag, i) => flag === flags[i])) break;
    flags = grown;
  }
  return flags;
}

/** Values as operands, batched where the flags say so. */
function place(values: readonly Batched[], flags: readonly boolean[], context: BatchContext): Tensor[] {
  return values.map((value, i) => (at(flags, i) ? materialize(value, context) : value.tensor));
}

/** Scanned values keep time as dim 0, so that the batch is their dim 1 and dim 0 of every slice. */
function scan(ins: readonly Batched[], params: OpParams["scan"], context: BatchContext): Batched[] {
  const { body, numConsts, numCarry } = params;
  const consts = ins.slice(0, numConsts);
  const carry = ins.slice(numConsts, numConsts + numCarry);
  const xs = ins.slice(numConsts + numCarry);
  const inputFlags = (carryFlags: readonly boolean[]) => [...flagsOf(consts), ...carryFlags, ...flagsOf(xs)];
  const carryFlags = fixpoint(flagsOf(carry), (flags) =>
    batchProgram(body, inputFlags(flags), context).batchedOutputs.slice(0, numCarry),
  );
  const { program, batchedOutputs } = batchProgram(body, inputFlags(carryFlags), context, carryFlags);
  const operands = [
    ...tensorsOf(consts),
    ...place(carry, carryFlags, context),
    ...xs.map((x) => (x.batched ? ops.moveDim(x.tensor, 0, 1) : x.tensor)),
  ];
  const outs = bind("scan", operands, { ...params, body: program });
  const isStacked = (i: number) => i >= numCarry && at(batchedOutputs, i);
  return withFlags(
    outs.map((out, i) => (isStacked(i) ? ops.moveDim(out, 1, 0) : out)),
    batchedOutputs,
  );
}

function whileLoop(ins: readonly Batched[], params: OpParams["while"], context: BatchContext): Batched[] {
  const { condition, body, numConditionConsts, numBodyConsts } = params;
  const conditionConsts = ins.slice(0, numConditionConsts);
  const bodyConsts = ins.slice(numConditionConsts, numConditionConsts + numBodyConsts);
  const carry = ins.slice(numConditionConsts + numBodyConsts);
  const bodyFlags = (flags: readonly boolean[]) => [...flagsOf(bodyConsts), ...flags];
  const flags = fixpoint(
    flagsOf(carry),
    (flags) => batchProgram(body, bodyFlags(flags), context).batchedOutputs,
  );
  const batchedCondition = batchProgram(condition, [...flagsOf(conditionConsts), ...flags], context);
  if (batchedCondition.batchedOutputs.some(Boolean)) {
    return whileAny(conditionConsts, bodyConsts, carry, params, context);
  }
  const operands = [...tensorsOf(conditionConsts), ...tensorsOf(bodyConsts), ...place(carry, flags, context)];
  const batchedBody = batchProgram(body, bodyFlags(flags), context, flags).program;
  const outs = bind("while", operands, {
    ...params,
    condition: batchedCondition.program,
    body: batchedBody,
  });
  return withFlags(outs, flags);
}

/**
 * A loop whose elements stop at different times runs until all are done. It carries a mask of the elements still
 * active; the others keep their values.
 */
function whileAny(
  conditionConsts: readonly Batched[],
  bodyConsts: readonly Batched[],
  carry: readonly Batched[],
  { condition, body }: OpParams["while"],
  context: BatchContext,
): Batched[] {
  refuseMaskedChecks([condition, body], "a loop that ends at different times for the elements");
  const goesOn = (consts: readonly Batched[], values: readonly Tensor[]): Tensor =>
    materialize(at(context.evaluate(condition, [...consts, ...values.map(batched)], context), 0), context);
  const consts = [...conditionConsts, ...bodyConsts];
  const all = joinAxes([...consts, ...carry].map(({ tensor }) => varyingAxes(tensor.type)));
  const start = carry.map((value) => ops.pvary(materialize(value, context), all));
  const active = goesOn(conditionConsts, start);
  const typesOf = (tensors: readonly Tensor[]): TensorType[] => tensors.map(({ type }) => type);

  const anyActive = traceFlat(
    (args) => [ops.reduceMax(at(args, 0), [0])],
    typesOf([active, ...start]),
    "vmap of while",
  );
  const step = traceFlat(
    (args) => {
      const innerConsts = withFlags(args.slice(0, consts.length), flagsOf(consts));
      const before = args.slice(consts.length + 1);
      const bodyIns = [...innerConsts.slice(conditionConsts.length), ...before.map(batched)];
      const after = context
        .evaluate(body, bodyIns, context)
        .map((value, i) =>
          selectElements(at(args, consts.length), materialize(value, context), at(before, i)),
        );
      return [goesOn(innerConsts.slice(0, conditionConsts.length), after), ...after];
    },
    typesOf([...tensorsOf(consts), active, ...start]),
    "vmap of while",
  );
  const outs = bind("while", [...tensorsOf(consts), active, ...start], {
    condition: anyActive.program,
    body: step.program,
    numConditionConsts: 0,
    numBodyConsts: consts.length,
  });
  return outs.slice(1).map(batched);
}

/** Which elements of a batch choose a branch; indices out of range select the first or the last. */
function isBranch(index: Tensor, branch: number, count: number): Tensor {
  if (branch === 0) return ops.compare("le", index, 0);
  return branch === count - 1 ? ops.compare("ge", index, branch) : ops.compare("eq", index, branch);
}

/**
 * The operands of a branch, whose cotangents are zero for elements that did not choose it: the derivative there may be
 * infinite, and zero times infinity is not zero.
 */
function ownOperands(operands: readonly Batched[], chosen: Tensor, context: BatchContext): Tensor[] {
  return operands.map((value) => {
    if (!isFloat(value.tensor.dtype)) return value.tensor;
    const x = materialize(value, context);
    return selectElements(chosen, x, ops.stopGradient(x));
  });
}

/** An index that differs within the batch: all branches are computed, and each element takes the result of its own. */
function cond(
  [index, ...operands]: readonly [Batched, ...Batched[]],
  { branches }: OpParams["cond"],
  context: BatchContext,
): Batched[] {
  const flags = operands.map((value) => value.batched || (index.batched && isFloat(value.tensor.dtype)));
  const natural = branches.map((branch) => batchProgram(branch, flags, context).batchedOutputs);
  const wanted = natural.reduce(either).map((flag) => flag || index.batched);
  const programs = branches.map((branch) => batchProgram(branch, flags, context, wanted).program);
  const ins = tensorsOf(operands);
  if (!index.batched) {
    return withFlags(bind("cond", [index.tensor, ...ins], { branches: programs }), wanted);
  }
  refuseMaskedChecks(branches, "a branch that is chosen by some elements");
  const results = programs.map((program, b) =>
    inline(program, ownOperands(operands, isBranch(index.tensor, b, branches.length), context)),
  );
  const chosen = results.reduceRight((later, result, i) => {
    const isChosen = ops.compare("le", index.tensor, i);
    return later.map((other, out) => selectElements(isChosen, at(result, out), other));
  });
  return chosen.map(batched);
}

/**
 * If one result is batched all are, so that every element of the batch has its own cotangents; those of a shared
 * argument are then summed. Where the programs communicate over the mapped axis, each element of the batch gets its own
 * copy of the arguments, whose cotangents are summed just the same.
 */
function customVjp(ins: readonly Batched[], params: OpParams["customVjp"], context: BatchContext): Batched[] {
  const { body, forward, backward, numCaptures } = params;
  const talks = [body, forward, backward].some((program) => programNamesAxis(program, context.axisName));
  const operands = ins.map((value, i) =>
    talks && i >= numCaptures ? batched(materialize(value, context)) : value,
  );
  const flags = flagsOf(operands);
  const numOuts = body.outputs.length;
  const isBatched = [body, forward].some((program) =>
    batchProgram(program, flags, context).batchedOutputs.slice(0, numOuts).some(Boolean),
  );
  const outFlags = body.outputs.map(() => isBatched);
  const batchedForward = batchProgram(forward, flags, context, outFlags);
  const backwardFlags = backward.inputs.map(() => isBatched);
  const known = [...flags.slice(0, numCaptures), ...batchedForward.batchedOutputs.slice(numOuts)];
  backwardFlags.splice(0, known.length, ...known);

  const argFlags = flags.filter((_, i) => i >= numCaptures && isFloat(at(body.inputs, i).type.dtype));
  const batchedBackward = traceFlat(
    (args) =>
      context.evaluate(backward, withFlags(args, backwardFlags), context).map((cotangent, i) => {
        if (at(argFlags, i)) return materialize(cotangent, context);
        return isBatched || cotangent.batched ? sumOverBatch(cotangent, context) : cotangent.tensor;
      }),
    backward.inputs.map(({ type }, i) => (backwardFlags[i] ? batchedType(type, context) : type)),
    "vmap of customVjp",
  );
  const outs = bind("customVjp", tensorsOf(operands), {
    ...params,
    body: batchProgram(body, flags, context, outFlags).program,
    forward: batchedForward.program,
    backward: batchedBackward.program,
  });
  return withFlags(outs, outFlags);
}

type ControlOp = "scan" | "while" | "cond" | "remat" | "customVjp";

/** How ops with inner programs work on a batch. */
export const vmapControlRules: { readonly [K in ControlOp]: VmapRule<K> } = {
  scan,
  while: whileLoop,
  cond: (ins, params, context) => cond([at(ins, 0), ...ins.slice(1)], params, context),
  remat: (ins, { body, policy }, context) => {
    const { program, batchedOutputs } = batchProgram(body, flagsOf(ins), context);
    return withFlags(bind("remat", tensorsOf(ins), { body: program, policy }), batchedOutputs);
  },
  customVjp,
};
