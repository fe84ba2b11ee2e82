import { zip } from "../../ir/collections.js";
import { byteSize } from "../../ir/dtype.js";
import type { Atom, Eqn, Program } from "../../ir/program.js";
import { at, sizeOf, tensorType } from "../../ir/shape.js";
import { canUpdate, touches } from "../plan/inPlace.js";
import { type Buffer, denseView, isDense, refOf, type View } from "../plan/planBuffers.js";
import type { PlannedLoop, Slices, UnplacedStep } from "../plan/plannedSteps.js";
import type { LoweringFrame } from "./frame.js";

/** A value that a loop carries from one iteration to the next. */
interface Carry {
  /** What the body reads. */
  readonly current: View;
  /** What the body writes; undefined when the body leaves the value as it is. */
  readonly next: View | undefined;
  /** The memory of both at the start. */
  readonly first: View;
  readonly second: View | undefined;
  /** The slot that stays where it is, when the body updates the value in place. */
  readonly slot?: Buffer;
}

/** Copies the initial values of carried values, and gives each two places to alternate between. */
function makeCarries(
  frame: LoweringFrame,
  initial: readonly Atom[],
  body: Program,
  firstInput: number,
): Carry[] {
  return initial.map((atom, i) => {
    const { compilation, depth } = frame;
    const first = frame.temporary(atom);
    frame.copy(frame.view(atom), first, "carry");
    const result = at(body.outputs, i);
    const input = at(body.inputs, firstInput + i);
    const isKept = result.kind === "var" && result.id === input.id;
    if (isKept) return { current: first, next: undefined, first, second: undefined };
    const second = frame.temporary(atom);
    const slot = () => compilation.dynamic([first.buffer, second.buffer], depth);
    return { current: denseView(slot(), atom.type), next: denseView(slot(), atom.type), first, second };
  });
}

/**
 * Lets the result of a choice reuse the memory of a carried value that some of its branches return unchanged: the other
 * branches update it in place, and a value that no branch changes is not copied.
 */
function chooseInPlace(carries: readonly Carry[], body: readonly UnplacedStep[]): void {
  body.forEach((step, i) => {
    if (step.op !== "cond") return;
    for (const handed of step.handedOn) {
      const { result } = handed;
      // The result of an earlier choice may already have taken over the memory of the carried value.
      const operand = handed.operand.root();
      const carry = carries.find(({ current, next }) => next && current.buffer === operand);
      const isFree = !body.slice(i + 1).some((later) => touches(later, operand, "reads"));
      const hasOwnMemory = result.root() === result && result.bytes === carry?.first.buffer.bytes;
      if (isFree && hasOwnMemory && canUpdate([step], operand, result)) result.sharedWith = operand;
    }
  });
}

/**
 * Lets the next value of a carry reuse the memory of the current one if the body no longer reads the current one when
 * it writes the next: a buffer that a loop updates piece by piece is then never copied.
 */
function updateInPlace(carries: readonly Carry[], body: readonly UnplacedStep[]): Carry[] {
  chooseInPlace(carries, body);
  return carries.map((carry) => {
    const { current, next, first, second } = carry;
    if (!next || !second || !canUpdate(body, current.buffer, next.buffer)) return carry;
    next.buffer.sharedWith = current.buffer;
    second.buffer.sharedWith = first.buffer;
    return { current, next: undefined, first, second: undefined, slot: current.buffer };
  });
}

/** Puts what a body carries on where its next iteration reads it. */
function placeCarries(inner: LoweringFrame, carries: readonly Carry[]): void {
  for (const [output, { next }] of zip(inner.program.outputs.slice(0, carries.length), carries)) {
    if (next) inner.place(output, next);
  }
}

function setsOf(carries: readonly Carry[]): PlannedLoop["sets"][number][] {
  return carries.flatMap(({ current, next, first, second, slot }) => {
    if (slot) return [{ slot, from: refOf(first) }];
    return next && second
      ? [
          { slot: current.buffer, from: refOf(first) },
          { slot: next.buffer, from: refOf(second) },
        ]
      : [];
  });
}

function swapsOf(carries: readonly Carry[]): (readonly [Buffer, Buffer])[] {
  return carries.flatMap(({ current, next }) => (next ? [[current.buffer, next.buffer] as const] : []));
}

/** Lowers a scan to a loop: slices of xs and ys are slots that advance, carried values alternate between two slots. */
export function lowerScan(frame: LoweringFrame, eqn: Eqn<"scan">): void {
  const { body, length, reverse, numConsts, numCarry } = eqn.params;
  const { compilation, depth } = frame;
  const fixed = numConsts + numCarry;
  const consts = eqn.ins.slice(0, numConsts).map((atom) => frame.view(atom));
  let carries = makeCarries(frame, eqn.ins.slice(numConsts, fixed), body, numConsts);
  const advances: PlannedLoop["advances"][number][] = [];
  const sets: PlannedLoop["sets"][number][] = [];
  const slices = { read: [] as Slices[], written: [] as Slices[] };
  const slice = (whole: View, list: Slices[]): View => {
    const bytes = byteSize(whole.dtype);
    const stride = at(whole.strides, 0);
    const buffer = compilation.dynamic([whole.buffer], depth);
    const start = whole.offset + (reverse ? Math.max(0, length - 1) * stride : 0);
    sets.push({ slot: buffer, from: { buffer: whole.buffer, offset: start * bytes } });
    advances.push({ slot: buffer, stride: (reverse ? -stride : stride) * bytes });
    if (whole.offset === 0 && isDense(whole)) {
      list.push({ slot: buffer, whole: whole.buffer, bytes: sizeOf(whole.shape) * bytes });
    }
    const type = tensorType(whole.dtype, whole.shape.slice(1));
    return { ...denseView(buffer, type), strides: whole.strides.slice(1) };
  };
  const xs = eqn.ins.slice(fixed).map((atom) => slice(frame.view(atom), slices.read));
  const ysWhole = eqn.outs.slice(numCarry).map((out) => {
    frame.beginUpdates(out);
    return frame.target(out);
  });
  if (length > 0) {
    const ys = ysWhole.map((whole) => slice(whole, slices.written));
    const inner = frame.lowerBody(body, [...consts, ...carries.map((c) => c.current), ...xs]);
    placeCarries(inner, carries);
    for (const [output, target] of zip(body.outputs.slice(numCarry), ys)) inner.place(output, target);
    carries = updateInPlace(carries, inner.steps);
    const info = compilation.info(["scan"], eqn.source, 0, 0, eqn.params.role);
    const step: PlannedLoop = {
      op: "loop",
      count: length,
      sets: [...setsOf(carries), ...sets],
      body: inner.steps,
      advances,
      swaps: swapsOf(carries),
      slices,
      info,
    };
    frame.steps.push(step);
  }
  const last = carries.map(({ first, second }) => (length % 2 === 1 && second ? second : first));
  frame.defineAll(eqn.outs, [...last, ...ysWhole]);
}

/** A while loop; where its carried values end up depends on the number of iterations, so they keep their slots. */
export function lowerWhile(frame: LoweringFrame, eqn: Eqn<"while">): void {
  const { condition, body, numConditionConsts, numBodyConsts } = eqn.params;
  const { compilation } = frame;
  const conditionConsts = eqn.ins.slice(0, numConditionConsts).map((atom) => frame.view(atom));
  const fixed = numConditionConsts + numBodyConsts;
  const bodyConsts = eqn.ins.slice(numConditionConsts, fixed).map((atom) => frame.view(atom));
  const initial = eqn.ins.slice(fixed);
  const carries = makeCarries(frame, initial, body, numBodyConsts);
  const predicate = frame.temporary({ type: tensorType("bool", []) });
  const current = carries.map((c) => c.current);
  const test = frame.lowerBody(condition, [...conditionConsts, ...current]);
  test.place(at(condition.outputs, 0), predicate);
  const inner = frame.lowerBody(body, [...bodyConsts, ...current]);
  placeCarries(inner, carries);
  const updated = updateInPlace(carries, inner.steps);
  frame.steps.push({
    op: "while",
    sets: setsOf(updated),
    condition: test.steps,
    predicate: refOf(predicate),
    body: inner.steps,
    swaps: swapsOf(updated),
    info: compilation.info(["while"], eqn.source, 0, 0),
  });
  frame.defineAll(eqn.outs, current);
}

/** Every branch writes its results to the same places. */
export function lowerCond(frame: LoweringFrame, eqn: Eqn<"cond">): void {
  const index = frame.view(at(eqn.ins, 0));
  const operands = eqn.ins.slice(1).map((atom) => frame.view(atom));
  const results = eqn.outs.map((out) => frame.temporary(out));
  const branches = eqn.params.branches.map((branch) => {
    const inner = frame.lowerBody(branch, operands);
    for (const [output, target] of zip(branch.outputs, results)) inner.place(output, target);
    return inner.steps;
  });
  const handedOn = results.flatMap(({ buffer }, i) => {
    const [operand] = eqn.params.branches.flatMap(({ inputs, outputs }) => {
      const output = at(outputs, i);
      const from = inputs.findIndex((input) => output.kind === "var" && input.id === output.id);
      return operands[from] ?? [];
    });
    const isWhole = operand && operand.offset === 0 && isDense(operand);
    return isWhole ? [{ result: buffer, operand: operand.buffer }] : [];
  });
  const info = frame.compilation.info(["cond"], eqn.source, 0, 0, eqn.params.role);
  frame.steps.push({ op: "cond", index: refOf(index), branches, handedOn, info });
  frame.defineAll(eqn.outs, results);
}
