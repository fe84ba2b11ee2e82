import type { DType } from "../../../ir/dtype.js";
import { isCollective } from "../../../ir/opFacts.js";
import { type EqnParts, type Program, someEqn } from "../../../ir/program.js";
import {
  at,
  bytesOf,
  range,
  type Shape,
  sameType,
  sizeOf,
  type TensorType,
  tensorType,
} from "../../../ir/shape.js";
import { listText, typeText } from "./text.js";
import { type HloValue, names, type Rule, resultText, types, type Writer } from "./writer.js";

/**
 * Writes a loop over values that it carries.
 *
 * @param condition whether to continue, given the carry
 * @param body computes the next carry
 */
function loop(
  carried: readonly HloValue[],
  condition: (values: readonly HloValue[]) => HloValue,
  body: (values: readonly HloValue[]) => readonly HloValue[],
  write: Writer,
): HloValue[] {
  const { target, values } = write.several(carried.map(({ type }) => type));
  const inside = carried.map(({ type }) => write.fresh(type));
  const pairs = inside.map(({ name }, i) => `${name} = ${at(carried, i).name}`).join(", ");
  write.line(`${target}stablehlo.while(${pairs}) : ${types(carried)}`);
  write.line("cond {");
  write.nested(() => write.line(`stablehlo.return${resultText([condition(inside)])}`));
  write.line("} do {");
  write.nested(() => write.line(`stablehlo.return${resultText(body(inside))}`));
  write.line("}");
  return values;
}

const index = tensorType("int32", []);

/** The starts of slice `position` along dim 0. */
function startsOf(position: HloValue, shape: Shape, write: Writer): HloValue[] {
  return shape.map((_, d) => (d === 0 ? position : write.splat(0, "int32")));
}

/** Slice `position` along dim 0, without this dim. */
export function sliceAt(x: HloValue, position: HloValue, write: Writer): HloValue {
  const shape = x.type.shape.map((n, d) => (d === 0 ? 1 : n));
  const operands = [x, ...startsOf(position, shape, write)];
  const type = tensorType(x.type.dtype, shape);
  const slice = write.mapped("stablehlo.dynamic_slice", operands, `, sizes = ${listText(shape)}`, type);
  return write.reshape(slice, shape.slice(1));
}

/**
 * Slice `position` of a stack that a loop does not change. On GPUs it is cut out of rows: the layout that XLA chooses for
 * what reads a slice of several dims may spread to the stack, which then is copied in every run. Elsewhere, where layouts
 * may be tiled, making rows may copy the stack itself.
 */
function rowAt(x: HloValue, position: HloValue, write: Writer): HloValue {
  if (!write.mayUnroll) return sliceAt(x, position, write);
  const [length = 0, ...shape] = x.type.shape;
  return write.reshape(sliceAt(write.reshape(x, [length, sizeOf(shape)]), position, write), shape);
}

function withSliceAt(stack: HloValue, slice: HloValue, position: HloValue, write: Writer): HloValue {
  const shape = [1, ...slice.type.shape];
  const operands = [stack, write.reshape(slice, shape), ...startsOf(position, shape, write)];
  return write.mapped("stablehlo.dynamic_update_slice", operands, "", stack.type);
}

/** The bytes from which results are written into their stack one by one, as joining them would take several times as long. */
const WORTH_FILLING = 1 << 16;

/** Writes the result of an iteration into its stack, by a function shared by all stacks of this type. */
function withResult(stack: HloValue, slice: HloValue, position: HloValue, write: Writer): HloValue {
  const { dtype, shape } = stack.type;
  const name = ["fill", dtype, ...shape].join("_");
  const results = write.called(name, [stack, slice, position], ([stack, slice, position]) =>
    stack && slice && position ? [withSliceAt(stack, slice, position, write)] : [],
  );
  return at(results, 0);
}

/** The operands of a loop: loop-invariant values, the initial carry, and the stacks that iterations read. */
interface Given {
  readonly consts: readonly HloValue[];
  readonly carry: readonly HloValue[];
  readonly xs: readonly HloValue[];
}

/**
 * Unrolls a loop. An iteration reads a slice of each stack, or the value that an iteration of another unrolled loop
 * contributed to it; results are stacked, large ones that no other loop reads as soon as they are there. The slice
 * indices are hidden behind a barrier, because XLA generates a kernel for each index that it knows, but a single one for
 * those that it does not.
 */
function unrolled({ consts, carry: first, xs }: Given, eqn: EqnParts<"scan">, write: Writer): HloValue[] {
  const { outs, params } = eqn;
  const { length, reverse, numCarry } = params;
  const { body, widened } = withoutWidening(eqn, write);
  const places = write.barrier(range(length).map((place) => write.splat(place, "int32")));
  const sources = sourcesOf(body, xs, write);
  const run = stepOf(body, sources, write);
  let carry = first;
  const steps: HloValue[][] = [];
  const filled = new Map<number, HloValue>();
  for (let step = 0; step < length; step++) {
    const position = reverse ? length - 1 - step : step;
    const read = sources.map(({ stack, pieces }) => pieces?.[position] ?? stack);
    const results = run([at(places, position), ...consts, ...carry, ...read]);
    carry = results.slice(0, numCarry);
    const slices = results.slice(numCarry);
    steps[position] = slices;
    slices.forEach((slice, i) => {
      const isSmall = length === 1 || bytesOf(slice.type) < WORTH_FILLING;
      if (isSmall || write.isSliced(at(outs, numCarry + i))) return;
      const stack = filled.get(i) ?? write.splat(0, slice.type.dtype, [length, ...slice.type.shape]);
      filled.set(i, withResult(stack, slice, at(places, position), write));
    });
  }
  const slicesOf = (i: number) => steps.map((slices) => at(slices, i));
  const stacks = at(steps, 0).map((_, i) => {
    const full = filled.get(i);
    // XLA fuses what fills a stack into the kernel that reads it. As gradients are read twice if their norm is needed,
    // that would make two large kernels of each stack, which take a third of the compile time.
    const whole = full && write.isSummed(at(outs, numCarry + i)) ? at(write.barrier([full]), 0) : full;
    const stack = whole ?? stacked(slicesOf(i), write);
    return write.convert(stack, widened.get(i) ?? stack.type.dtype);
  });
  return [...carry, ...stacks];
}

/**
 * The body of a loop that stacks results before they are widened, as gradients of parameters are, and the types that
 * these stacks are widened to: less is written and read. Stacks that other loops read are left as they are, because
 * these loops read the results of iterations instead.
 */
function withoutWidening(
  { outs, params }: EqnParts<"scan">,
  write: Writer,
): { readonly body: Program; readonly widened: ReadonlyMap<number, DType> } {
  const { body, numCarry } = params;
  const widened = new Map<number, DType>();
  const outputs = body.outputs.map((output, i) => {
    const stack = outs[i];
    if (i < numCarry || stack === undefined || output.kind !== "var" || write.isSliced(stack)) return output;
    const eqn = body.eqns.find((one) => one.outs.some(({ id }) => id === output.id));
    const narrow = eqn?.op === "convert" ? eqn.ins[0] : undefined;
    if (narrow === undefined || bytesOf(narrow.type) >= bytesOf(output.type)) return output;
    widened.set(i - numCarry, output.type.dtype);
    return narrow;
  });
  return { body: { ...body, outputs }, widened };
}

/** What the iterations of an unrolled loop read of one of its stacks. */
interface Source {
  readonly stack: HloValue;
  /** The values that were stacked, if known: they are read instead. */
  readonly pieces: readonly HloValue[] | undefined;
  /** Whether the stack has its own barrier. */
  readonly isBarred: boolean;
}

/**
 * What iterations read. A barrier in the body would copy the slices that pass through it out of stacks such as those of
 * the parameters, and keep all copies alive from the first iteration on; so the stacks get a barrier instead, once.
 * Collectives stay behind the barrier of their iteration, which keeps them from all being started at once.
 */
function sourcesOf(body: Program, xs: readonly HloValue[], write: Writer): Source[] {
  const hasBarrier = someEqn(body, ({ op }) => op === "optimizationBarrier");
  const isLifted = hasBarrier && !someEqn(body, ({ op }) => isCollective(op));
  const whole = isLifted ? xs.filter((x) => write.slicesOf(x) === undefined) : [];
  const barred = new Map(write.barrier(whole).map((value, i) => [at(whole, i), value]));
  return xs.map((x) => ({
    stack: barred.get(x) ?? x,
    pieces: write.slicesOf(x),
    isBarred: barred.has(x),
  }));
}

/**
 * Writes one iteration, given its index, the loop-invariant values, the carry, and stacks or slices of them: as a call
 * of a function, which XLA parses once instead of once per iteration, and inlines later. Iterations with inner loops
 * are written out each time, because inner loops may read the slices that other loops produced.
 */
function stepOf(
  body: Program,
  sources: readonly Source[],
  write: Writer,
): (inputs: readonly HloValue[]) => HloValue[] {
  const step = ([place, ...inputs]: readonly HloValue[]) => {
    if (place === undefined) return [];
    const numFixed = inputs.length - sources.length;
    const slices = inputs.slice(numFixed).map((x, i) => {
      const { pieces, isBarred } = at(sources, i);
      if (pieces) return x;
      const slice = sliceAt(x, place, write);
      return isBarred ? write.behindBarrier(slice) : slice;
    });
    return write.inline(body, [...inputs.slice(0, numFixed), ...slices]);
  };
  if (someEqn(body, ({ op }) => op === "scan")) return step;
  const name = write.newFunctionName("step");
  return (inputs) => write.called(name, inputs, step);
}

/**
 * Stacks the iterations' results, behind a barrier: without one XLA considers for every iteration whether to fuse it
 * into the kernel that reads the stack, which takes a seventh of the compile time.
 */
function stacked(slices: readonly HloValue[], write: Writer): HloValue {
  const { dtype, shape } = at(slices, 0).type;
  const rows = slices.map((slice) => write.reshape(slice, [1, ...shape]));
  const type = tensorType(dtype, [slices.length, ...shape]);
  const joined = write.mapped("stablehlo.concatenate", rows, ", dim = 0", type);
  return write.stacked(at(write.barrier([joined]), 0), slices);
}

/**
 * The stack of results that takes the place of each stack that iterations read: an iteration overwrites the slice that it
 * has read. Otherwise a cache that is given and returned would be filled with zeros and copied in every run.
 */
function overwritten(
  xs: readonly HloValue[],
  results: readonly TensorType[],
  write: Writer,
): (number | undefined)[] {
  const taken = new Set<number>();
  return xs.map((x) => {
    if (!write.isOverwritable(x)) return undefined;
    const result = results.findIndex((type, i) => !taken.has(i) && sameType(type, x.type));
    if (result < 0) return undefined;
    taken.add(result);
    return result;
  });
}

/** A counting loop; loop-invariant values are read from the enclosing scope. */
function scan(eqn: EqnParts<"scan">, write: Writer): HloValue[] {
  const { ins, outs, params } = eqn;
  const { body, length, reverse, numConsts, numCarry } = params;
  const given = ins.map((atom) => write.read(atom));
  const consts = given.slice(0, numConsts);
  const carry = given.slice(numConsts, numConsts + numCarry);
  const xs = given.slice(numConsts + numCarry);
  if (length > 0 && write.unrolls(eqn, xs)) return unrolled({ consts, carry, xs }, eqn, write);
  const stackTypes = outs.slice(numCarry).map(({ type }) => type);
  const readFrom = length === 0 ? [] : overwritten(xs, stackTypes, write);
  const stacks = stackTypes.map(({ dtype, shape }, i) => {
    const x = xs[readFrom.indexOf(i)];
    return x ?? write.splat(0, dtype, shape);
  });
  if (length === 0) return [...carry, ...stacks];
  const results = loop(
    [write.splat(0, "int32"), ...carry, ...stacks],
    (values) => write.compare("LT", at(values, 0), write.splat(length, "int32")),
    ([step, ...values]) => {
      if (step === undefined) return [];
      const position = reverse
        ? write.same("stablehlo.subtract", [write.splat(length - 1, "int32"), step], index)
        : step;
      const slices = xs.map((x, i) => {
        const stack = readFrom[i];
        if (stack === undefined) return rowAt(x, position, write);
        return sliceAt(at(values, numCarry + stack), position, write);
      });
      const results = write.inline(body, [...consts, ...values.slice(0, numCarry), ...slices]);
      const filled = values
        .slice(numCarry)
        .map((stack, i) => withSliceAt(stack, at(results, numCarry + i), position, write));
      const next = write.same("stablehlo.add", [step, write.splat(1, "int32")], index);
      return [next, ...results.slice(0, numCarry), ...filled];
    },
    write,
  );
  return results.slice(1);
}

function whileLoop({ ins, params }: EqnParts<"while">, write: Writer): HloValue[] {
  const { condition, body, numConditionConsts, numBodyConsts } = params;
  const given = ins.map((atom) => write.read(atom));
  const conditionConsts = given.slice(0, numConditionConsts);
  const bodyConsts = given.slice(numConditionConsts, numConditionConsts + numBodyConsts);
  const carry = given.slice(numConditionConsts + numBodyConsts);
  return loop(
    carry,
    (values) => at(write.inline(condition, [...conditionConsts, ...values]), 0),
    (values) => write.conditional(() => write.inline(body, [...bodyConsts, ...values])),
    write,
  );
}

function cond({ ins, outs, params }: EqnParts<"cond">, write: Writer): HloValue[] {
  const [given, ...operands] = ins.map((atom) => write.read(atom));
  if (given === undefined) return [];
  // A negative index takes the first branch, where StableHLO would take the last.
  const chosen = write.clamped(given, params.branches.length - 1);
  const resultTypes: TensorType[] = outs.map(({ type }) => type);
  const { target, values } = write.several(resultTypes);
  write.line(`${target}"stablehlo.case"(${names([chosen])}) ({`);
  params.branches.forEach((branch, i) => {
    if (i > 0) write.line("}, {");
    write.region([], () => write.conditional(() => write.inline(branch, operands)));
  });
  const list = resultTypes.map(typeText).join(", ");
  write.line(`}) : (${typeText(index)}) -> ${outs.length === 1 ? list : `(${list})`}`);
  return values;
}

/** The lowering rules of control-flow ops. */
export const controlRules: { readonly [K in "scan" | "while" | "cond"]: Rule<K> } = {
  scan,
  while: whileLoop,
  cond,
};
