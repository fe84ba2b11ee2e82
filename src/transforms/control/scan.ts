import { either, integerFrom, need } from "../../ir/arguments.js";
import { ShapeError, TreeError } from "../../ir/errors.js";
import { varyingAxes } from "../../ir/infer/varying.js";
import type { ControlRole } from "../../ir/ops.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { at, formatType, normalizeDim, range, sameType, type TensorType, withShape } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { type FlatArgs, flattenArgs, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { markOutputs, settleCarry } from "./varyingTypes.js";

const scanOptions = schema({
  /** The number of iterations; needed only when there is nothing to scan over. */
  length: optional("number"),
  /** Whether to go from the last slice to the first. */
  reverse: false,
  /** How many iterations to unroll into one run of the body; 1 by default, `true` for all of them. */
  unroll: optional(either(integerFrom(1), "flag"), 1),
});

/** Options of {@link scan}. */
export interface ScanOptions extends OptionsOf<typeof scanOptions> {}

/**
 * A loop with a carried value over the slices of a tree along dim 0.
 *
 * ```ts
 * const [last, sums] = scan((sum, x) => { const s = sum.add(x); return [s, s]; }, np.array(0), xs);
 * ```
 *
 * @param fn maps carry and slice to `[carry, y]`; the carry keeps its structure and types, and a number takes the type
 *   that `fn` gives it
 * @param xs the tree to scan over, or `null` with `length`
 * @returns the last carry, and the ys stacked along dim 0
 *
 * @example
 * ```ts
 * lax.scan((sum, x) => [sum.add(x), sum], np.array(0), np.array([1, 2, 3])); // [6, [0, 1, 3]]
 * ```
 */
export function scan<C, X, Y>(
  fn: (carry: C, x: X) => readonly [C, Y],
  init: C,
  xs: X,
  options?: ScanOptions,
): [C, Y];
export function scan<X, Y>(
  fn: (carry: Tensor, x: X) => readonly [Tensor, Y],
  init: number,
  xs: X,
  options?: ScanOptions,
): [Tensor, Y];
export function scan<C, X, Y>(
  fn: (carry: C, x: X) => readonly [C, Y],
  init: C,
  xs: X,
  options?: ScanOptions,
): [C, Y] {
  need("function", fn, "fn", "scan");
  return traceScan(fn, init, xs, scanOptions.read(options, "scan"));
}

/** {@link scan} with a role for those who read the compiled steps. */
export function scanWithRole<C, X, Y>(
  role: ControlRole | undefined,
  fn: (carry: C, x: X) => readonly [C, Y],
  init: C,
  xs: X,
  options?: ScanOptions,
): [C, Y] {
  return traceScan(fn, init, xs, scanOptions.read(options, "scan"), role);
}

function traceScan<C, X, Y>(
  fn: (carry: C, x: X) => readonly [C, Y],
  init: C,
  xs: X,
  { length, reverse, unroll }: Values<typeof scanOptions.fields>,
  role?: ControlRole,
): [C, Y] {
  const carry = flattenArgs(init, "scan");
  const scanned = flattenArgs(xs, "scan");
  const steps = scanLength(scanned, length);
  const together = numTogether(unroll, steps);
  const isWeak = carry.tensors.some(({ type }) => type.weak);
  if (together > 1 && !isWeak) return scanTogether(fn, init, scanned, steps, reverse, together);
  const sliceTypes = scanned.tensors.map(({ type }) => withShape(type, type.shape.slice(1)));
  const numCarry = carry.tensors.length;
  const structure: tree.Structure = { kind: "array", children: [carry.structure, scanned.structure] };
  const {
    traced,
    init: first,
    types: carryTypes,
  } = settleCarry(carry.tensors, (types) => {
    const body = traceTree(fn, structure, [...types, ...sliceTypes], "scan");
    return [body, body.program.outputs.slice(0, numCarry).map(({ type }) => type)];
  });
  if (together > 1) {
    const settled = tree.unflatten<C>(carry.structure, first);
    return scanTogether(fn, settled, scanned, steps, reverse, together);
  }
  const yStructure = checkCarry(
    traced.outStructure,
    carry.structure,
    carryTypes,
    traced.program.outputs,
    "scan",
  );
  const params = {
    body: markOutputs(traced.program, carryTypes.map(varyingAxes)),
    length: steps,
    reverse,
    numConsts: traced.captures.length,
    numCarry,
    ...(role !== undefined && { role }),
  };
  const operands = [...traced.captures, ...first, ...scanned.tensors];
  const results = bind("scan", operands, params, traced.target);
  return [
    tree.unflatten<C>(carry.structure, results.slice(0, numCarry)),
    tree.unflatten<Y>(yStructure, results.slice(numCarry)),
  ];
}

function numTogether(unroll: number | boolean, steps: number): number {
  if (typeof unroll === "boolean") return unroll ? steps : 1;
  return Math.min(unroll, steps);
}

/** A scan with several iterations unrolled into its body; the remaining ones run last, one by one. */
function scanTogether<C, X, Y>(
  fn: (carry: C, x: X) => readonly [C, Y],
  init: C,
  { tensors, structure }: FlatArgs,
  steps: number,
  reverse: boolean,
  together: number,
): [C, Y] {
  const runs = Math.floor(steps / together);
  const rest = steps - runs * together;
  // In reverse, the iterations that run last are the first slices.
  const [start, stop] = reverse ? [rest, steps] : [0, runs * together];
  const slices = (from: number, to: number) => tensors.map((x) => ops.sliceDim(x, 0, from, to));
  const grouped = slices(start, stop).map((x) => ops.reshape(x, [runs, together, ...x.shape.slice(1)]));
  const order = range(together);
  if (reverse) order.reverse();
  const [middle, ys] = scan(
    (carry: C, group: readonly Tensor[]) => {
      let current = carry;
      const found: (readonly Tensor[])[] = [];
      let form: tree.Structure | undefined;
      for (const i of order) {
        const own = group.map((x) => ops.reshape(ops.sliceDim(x, 0, i, i + 1), x.shape.slice(1)));
        const [next, y] = fn(current, tree.unflatten<X>(structure, own));
        const flat = flattenArgs(y, "scan");
        [current, form, found[i]] = [next, flat.structure, flat.tensors];
      }
      const stacked = (found[0] ?? []).map((_, leaf) => ops.stack(found.map((list) => at(list, leaf))));
      return [current, tree.unflatten<Y>(form ?? tree.structure(null), stacked)] as const;
    },
    init,
    grouped,
    { length: runs, reverse },
  );
  const first = flattenArgs(ys, "scan");
  const whole = first.tensors.map((y) => ops.reshape(y, [runs * together, ...y.shape.slice(2)]));
  if (rest === 0) return [middle, tree.unflatten<Y>(first.structure, whole)];
  const others = tree.unflatten<X>(structure, reverse ? slices(0, rest) : slices(stop, steps));
  const [last, tail] = scan(fn, middle, others, { length: rest, reverse });
  const ends = flattenArgs(tail, "scan").tensors;
  const joined = whole.map((y, i) => ops.concatenate(reverse ? [at(ends, i), y] : [y, at(ends, i)], 0));
  return [last, tree.unflatten<Y>(first.structure, joined)];
}

function scanLength({ tensors, paths }: FlatArgs, given: number | undefined): number {
  const entries = paths.map((path, i) => ({ path, shape: at(tensors, i).shape }));
  const scalar = entries.find(({ shape }) => shape.length === 0);
  if (scalar)
    throw new ShapeError(
      `[scan] the leaf "${scalar.path}" is a scalar: every scanned leaf needs a dim 0 to scan over`,
    );
  const lengths = entries.map(({ shape }) => at(shape, 0));
  const length = given ?? lengths[0];
  if (length === undefined) throw new ShapeError("[scan] there is nothing to scan over: give { length }");
  if (lengths.some((n) => n !== length)) {
    const list = entries.map(({ path, shape }) => `${path || "xs"}: ${shape[0]}`).join(", ");
    throw new ShapeError(
      `[scan] all leaves need dim 0 of the same size${given === undefined ? "" : ` ${given}`}, got ${list}`,
    );
  }
  return length;
}

/** Checks that a loop body returns `[carry, ys]` with an unchanged carry; gives the structure of the ys. */
function checkCarry(
  out: tree.Structure,
  carry: tree.Structure,
  types: readonly TensorType[],
  outputs: readonly { readonly type: TensorType }[],
  caller: string,
): tree.Structure {
  if (out.kind !== "array" || out.children.length !== 2) {
    throw new TreeError(
      `[${caller}] the body must return [carry, y], it returned ${out.kind === "leaf" ? "one tensor" : tree.formatStructure(out)}`,
    );
  }
  tree.checkSameStructure(carry, at(out.children, 0), caller, "the carry", "the carry that the body returns");
  checkTypes(types, outputs, caller);
  return at(out.children, 1);
}

/** Throws unless a loop's carry keeps its types. */
export function checkTypes(
  before: readonly TensorType[],
  after: readonly { readonly type: TensorType }[],
  caller: string,
): void {
  before.forEach((type, i) => {
    const next = at(after, i).type;
    if (!sameType(type, next)) {
      throw new ShapeError(
        `[${caller}] the carry must keep its types: leaf ${i} comes in as ${formatType(type)} and leaves as ${formatType(next)}; convert or reshape it in the body`,
      );
    }
  });
}

/**
 * Applies a function to the slices of a tree along dim 0, one after another, and stacks the results.
 *
 * @example
 * ```ts
 * lax.map((x) => x.mul(x), np.array([1, 2, 3])); // [1, 4, 9]
 * ```
 */
export function map<X, Y>(fn: (x: X) => Y, xs: X): Y {
  need("function", fn, "fn", "map");
  const [, ys] = scan<null, X, Y>((carry, x) => [carry, fn(x)], null, xs);
  return ys;
}

const associativeScanOptions = schema({
  /** Whether to go from the last slice to the first. */
  reverse: false,
  /** The dim along which slices are combined; the first one by default. */
  dim: 0,
});

/** Options of {@link associativeScan}. */
export interface AssociativeScanOptions extends OptionsOf<typeof associativeScanOptions> {}

/**
 * Prefix results of an associative function along a dim, in a logarithmic number of steps.
 *
 * @param fn combines two trees of slices elementwise: the result so far, and the next slice; in reverse the next slice
 *   is the one before
 *
 * @example
 * ```ts
 * lax.associativeScan((a, b) => a.add(b), np.array([1, 2, 3])); // [1, 3, 6]
 * ```
 */
export function associativeScan<T>(fn: (a: T, b: T) => T, elements: T, options?: AssociativeScanOptions): T {
  need("function", fn, "fn", "associativeScan");
  const { reverse, dim: given } = associativeScanOptions.read(options, "associativeScan");
  const { tensors, structure } = flattenArgs(elements, "associativeScan");
  const dim = normalizeDim(given, tensors[0]?.ndim ?? 0, "associativeScan");
  const flip = (list: readonly Tensor[]) => (reverse ? list.map((x) => ops.reverse(x, [dim])) : list);
  const combine = (a: readonly Tensor[], b: readonly Tensor[]): readonly Tensor[] => {
    const [left, right] = [tree.unflatten<T>(structure, a), tree.unflatten<T>(structure, b)];
    return flattenArgs(fn(left, right), "associativeScan").tensors;
  };
  const length = tensors[0]?.shape[dim] ?? 0;
  let result = flip(tensors);
  for (let step = 1; step < length; step *= 2) {
    const low = result.map((x) => ops.sliceDim(x, dim, 0, length - step));
    const high = result.map((x) => ops.sliceDim(x, dim, step, length));
    const joined = combine(low, high);
    result = result.map((x, i) => ops.concatenate([ops.sliceDim(x, dim, 0, step), at(joined, i)], dim));
  }
  return tree.unflatten<T>(structure, flip(result));
}
