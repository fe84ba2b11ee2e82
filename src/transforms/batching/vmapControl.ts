import { type BodyOp, bodiesOf, type Flow, flow, groupsOf, inGroups, withBodies } from "../../ir/bodies.js";
import { isFloat } from "../../ir/dtype.js";
import { joinAxes, varyingAxes } from "../../ir/infer/varying.js";
import type { OpParams, ProgramOp } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at, typesOf } from "../../ir/shape.js";
import { bind, inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { refuseMaskedChecks } from "../checks/checks.js";
import { cut } from "../rewrite/split.js";
import {
  type BatchContext,
  type Batched,
  batched,
  batchedType,
  batchProgram,
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
 * An op whose bodies all elements of the batch run together. A carry that is batched after some iteration is batched
 * from the start; scanned values keep time as dim 0, so that the batch is their dim 1 and dim 0 of every slice.
 */
function runTogether<K extends ProgramOp>(
  eqn: BodyOp<K>,
  ins: readonly Batched[],
  { ins: inFlags, outs: outFlags }: Flow<boolean>,
  context: BatchContext,
): Batched[] {
  const { operands, results, sizes, bodies } = bodiesOf(eqn);
  const [given, returned] = [groupsOf(operands, sizes, inFlags), groupsOf(results, sizes, outFlags)];
  const programs = bodies.map(
    ({ program, inputs, outputs }) =>
      batchProgram(program, inGroups(inputs, given), context, inGroups(outputs, returned)).program,
  );
  const { xs = 0, ys = 0 } = sizes;
  const tensors = ins.map((value, i) => {
    if (!at(inFlags, i)) return value.tensor;
    return i < ins.length - xs ? materialize(value, context) : ops.moveDim(value.tensor, 0, 1);
  });
  const outs = bind(eqn.op, tensors, withBodies(eqn, programs, sizes));
  const isStacked = (i: number) => eqn.op === "scan" && i >= outs.length - ys && at(outFlags, i);
  const moved = outs.map((out, i) => (isStacked(i) ? ops.moveDim(out, 1, 0) : out));
  return withFlags(moved, outFlags);
}

/** Which operands and results of an op with bodies are batched. */
function batchedIn<K extends ProgramOp>(
  eqn: BodyOp<K>,
  ins: readonly Batched[],
  context: BatchContext,
): Flow<boolean> {
  const run = (program: Program, flags: readonly boolean[]) =>
    batchProgram(program, flags, context).batchedOutputs;
  return flow(eqn, flagsOf(ins), run, (a, b) => a || b);
}

const together: VmapRule<"scan" | "remat"> = (ins, params, context, op) =>
  runTogether({ op, params }, ins, batchedIn({ op, params }, ins, context), context);

/**
 * A loop whose elements stop at different times runs until all are done. It carries a mask of the elements still
 * active; the others keep their values.
 */
function whileAny(ins: readonly Batched[], params: OpParams["while"], context: BatchContext): Batched[] {
  const { condition, body, numConditionConsts, numBodyConsts } = params;
  const [conditionConsts = [], bodyConsts = [], carry = []] = cut(ins, numConditionConsts, numBodyConsts);
  refuseMaskedChecks([condition, body], "a loop that ends at different times for the elements");
  const goesOn = (consts: readonly Batched[], values: readonly Tensor[]): Tensor =>
    materialize(at(context.evaluate(condition, [...consts, ...values.map(batched)], context), 0), context);
  const consts = [...conditionConsts, ...bodyConsts];
  const all = joinAxes([...consts, ...carry].map(({ tensor }) => varyingAxes(tensor.type)));
  const start = carry.map((value) => ops.pvary(materialize(value, context), all));
  const active = goesOn(conditionConsts, start);

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
function chooseElements(
  [index, ...operands]: readonly [Batched, ...Batched[]],
  { branches }: OpParams["cond"],
  context: BatchContext,
): Batched[] {
  refuseMaskedChecks(branches, "a branch that is chosen by some elements");
  const flags = operands.map((value) => value.batched || isFloat(value.tensor.dtype));
  const results = branches.map((branch, b) => {
    const everything = branch.outputs.map(() => true);
    const { program } = batchProgram(branch, flags, context, everything);
    return inline(program, ownOperands(operands, isBranch(index.tensor, b, branches.length), context));
  });
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
  scan: together,
  while: (ins, params, context, op) => {
    const flags = batchedIn({ op, params }, ins, context);
    if (flags.deciders.includes(true)) return whileAny(ins, params, context);
    return runTogether({ op, params }, ins, flags, context);
  },
  cond: (ins, params, context, op) => {
    const index = at(ins, 0);
    if (index.batched) return chooseElements([index, ...ins.slice(1)], params, context);
    return runTogether({ op, params }, ins, batchedIn({ op, params }, ins, context), context);
  },
  remat: together,
  customVjp,
};
