import { complexType, isFloat } from "../../ir/dtype.js";
import { GradientError, TreeError } from "../../ir/errors.js";
import type { Program } from "../../ir/program.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import { callOnce, callProgram, isTracing, type Traced, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { toDifferentiate, toKeep } from "../../trace/order.js";
import { Tensor } from "../../trace/tensor.js";
import {
  type Argnums,
  argumentPositions,
  type FlatArgs,
  flattenArgs,
  flattenCall,
  imaginaryLeaves,
  isComplexNode,
  traceTree,
} from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { likeItsValue } from "../control/varyingTypes.js";
import { removeDeadCode } from "../rewrite/deadCode.js";
import { simplify } from "../rewrite/simplify.js";
import { type Split, split } from "../rewrite/split.js";
import { conjugated } from "./conjugate.js";
import { linearize } from "./linearize.js";
import type { Linearized, TensorCotangent } from "./vjpTypes.js";

const gradOptions = schema({
  argnums: optional("integerOrIntegers", 0),
  /** Whether the function returns `[loss, aux]`, of which only the loss is differentiated. */
  hasAux: false,
  /** Arguments that are not tensors but part of the function; booleans and strings are so anyway. −1 is the last one. */
  staticArgnums: optional("integerOrIntegers"),
  /** Whether the function is holomorphic: arguments and result are complex, and so is the derivative. */
  holomorphic: false,
});

/** Options of {@link grad} and {@link valueAndGrad}. */
export interface GradOptions<N extends Argnums = Argnums> extends OptionsOf<typeof gradOptions> {
  /** The argument, or arguments, to differentiate by; the first by default. Negative numbers count from the end. */
  readonly argnums?: N;
}

/** The gradients by the chosen arguments: a tree like the argument, or a list of such trees. */
export type GradsOf<A extends readonly unknown[], N> = N extends number
  ? ArgumentAt<A, N>
  : N extends readonly number[]
    ? { [I in keyof N]: N[I] extends number ? ArgumentAt<A, N[I]> : never }
    : never;

/** The type of an argument; a negative number counts from the end. */
type ArgumentAt<
  A extends readonly unknown[],
  N extends number,
> = `${N}` extends `-${infer Back extends number}` ? FromEnd<A, Back> : A[N];

type FromEnd<
  A extends readonly unknown[],
  Back extends number,
  Passed extends readonly unknown[] = [],
> = A extends readonly [...infer Before, infer Last]
  ? [...Passed, Last]["length"] extends Back
    ? Last
    : FromEnd<Before, Back, [...Passed, Last]>
  : A[number];

/**
 * The gradient of a function that returns a scalar. By complex numbers x + iy that is ∂/∂x − i ∂/∂y, as in JAX: the
 * function grows fastest in the direction of its conjugate.
 *
 * @example
 * ```ts
 * grad((x: Tensor) => np.sum(x.mul(x)))(np.array([1, 2])); // [2, 4]
 * ```
 */
export function grad<A extends readonly unknown[], const N extends number | readonly number[] = 0>(
  fn: (...args: A) => unknown,
  options: GradOptions<N> = {},
): (...args: A) => GradsOf<A, N> {
  return (...args) => differentiate(fn, args, options, "grad").grads as GradsOf<A, N>;
}

/**
 * Like {@link grad}; returns `[value, gradients]`, where value is `[loss, aux]` with `hasAux`.
 *
 * @example
 * ```ts
 * valueAndGrad((x: Tensor) => np.sum(x.mul(x)))(np.array([1, 2])); // [5, [2, 4]]
 * ```
 */
export function valueAndGrad<A extends readonly unknown[], R, const N extends number | readonly number[] = 0>(
  fn: (...args: A) => R,
  options: GradOptions<N> = {},
): (...args: A) => [R, GradsOf<A, N>] {
  return (...args) => {
    const { value, grads } = differentiate(fn, args, options, "valueAndGrad");
    return [value as R, grads as GradsOf<A, N>];
  };
}

function differentiate<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  args: A,
  options: GradOptions,
  caller: string,
): { value: unknown; grads: unknown } {
  const { argnums, hasAux, staticArgnums, holomorphic } = gradOptions.read(options, caller);
  const chosen = argumentPositions(argnums, args.length, caller, "argnums");
  const flat = flattenCall(args, staticArgnums, caller);
  const counts = flat.structure.children.map(tree.numLeaves);
  const wanted = counts.flatMap((n, i) => Array.from({ length: n }, () => chosen.includes(i)));
  checkFloats(flat, wanted, caller);
  checkDifferentiable(flat.structure.children, chosen, caller);
  if (holomorphic) checkComplex(flat.structure.children, chosen, caller);
  const types = flat.tensors.map(({ type }) => type);
  const traced = toDifferentiate(() => traceTree(fn, flat.structure, types, caller));
  checkScalar(traced.program, traced.outStructure, { hasAux, holomorphic }, caller);
  const numCaptures = traced.captures.length;
  const active = [...traced.captures.map(() => false), ...wanted];
  const { program } = traceFlat(
    (ins) => {
      const { outs, pullback } = linearizeRead(traced.program, ins, active);
      const loss = at(outs, 0);
      const cotangents = outs.map((_, i): TensorCotangent => (i === 0 ? Tensor.scalar(1, loss.dtype) : null));
      const pulled = pullback(cotangents).slice(numCaptures);
      const all = pulled.map((ct, i) => ct ?? ops.zeros(at(types, i)));
      const grads = conjugated(flat.structure, all);
      return [...outs, ...grads.filter((_, i) => wanted[i])];
    },
    traced.program.inputs.map(({ type }) => type),
    `vjp in ${caller}`,
  );
  const inputs = [...traced.captures, ...flat.tensors];
  const results = callOnce(simplify(program), inputs, traced.target);
  const numOuts = traced.program.outputs.length;
  const value = tree.unflatten(traced.outStructure, results.slice(0, numOuts));
  const grads = splitGrads(flat.structure.children, chosen, results.slice(numOuts));
  return { value, grads: typeof argnums === "number" ? grads[0] : grads };
}

/** Gives every chosen argument its tree of gradients; leaves come in the order of the arguments. */
function splitGrads(
  structures: readonly tree.Structure[],
  chosen: readonly number[],
  leaves: readonly Tensor[],
): unknown[] {
  let next = 0;
  const trees = new Map<number, unknown>();
  for (const n of [...new Set(chosen)].sort((a, b) => a - b)) {
    const structure = at(structures, n);
    const count = tree.numLeaves(structure);
    trees.set(n, tree.unflatten(structure, leaves.slice(next, next + count)));
    next += count;
  }
  return chosen.map((n) => trees.get(n));
}

function checkFloats({ tensors, paths }: FlatArgs, wanted: readonly boolean[], caller: string): void {
  tensors.forEach(({ type }, i) => {
    if (!wanted[i] || isFloat(type.dtype)) return;
    const [argument, ...path] = at(paths, i).split("/");
    const where = path.length > 0 ? ` at "${path.join("/")}"` : "";
    throw new GradientError(
      `[${caller}] argument ${argument}${where} is ${formatType(type)}; only floats have gradients: pass it in another argument or choose other argnums`,
    );
  });
}

/** Throws when an argument to differentiate by is not a tensor. */
function checkDifferentiable(
  structures: readonly tree.Structure[],
  chosen: readonly number[],
  caller: string,
): void {
  const fixed = chosen.find((n) => at(structures, n).kind === "static");
  if (fixed === undefined) return;
  throw new GradientError(
    `[${caller}] argument ${fixed} is ${tree.formatStructure(at(structures, fixed))}, a static value that has no gradient: choose other argnums`,
  );
}

/** Throws unless the arguments of a holomorphic function are complex. */
function checkComplex(
  structures: readonly tree.Structure[],
  chosen: readonly number[],
  caller: string,
): void {
  for (const n of chosen) {
    const parts = imaginaryLeaves(at(structures, n));
    if (parts.length > 0 && 2 * parts.filter(Boolean).length === parts.length) continue;
    throw new GradientError(
      `[${caller}] a holomorphic function takes complex numbers, argument ${n} is not complex: convert it with astype("complex64")`,
    );
  }
}

function checkScalar(
  program: Program,
  structure: tree.Structure,
  { hasAux, holomorphic }: { readonly hasAux: boolean; readonly holomorphic: boolean },
  caller: string,
): void {
  if (hasAux && !(structure.kind === "array" && structure.children.length === 2)) {
    throw new TreeError(
      `[${caller}] with hasAux the function must return [loss, aux], it returned ${tree.formatStructure(structure)}`,
    );
  }
  const loss = hasAux && structure.kind === "array" ? at(structure.children, 0) : structure;
  const type = program.outputs[0]?.type;
  if (type && isComplexNode(loss) !== holomorphic) {
    const got = formatType(isComplexNode(loss) ? { ...type, dtype: complexType(type.dtype) } : type);
    throw new GradientError(
      holomorphic
        ? `[${caller}] a holomorphic function returns a complex number, it returned ${got}: omit holomorphic`
        : `[${caller}] the function must return one float scalar, it returned ${got}: take its real part or np.abs, set { holomorphic: true } if the function is, or use vjp`,
    );
  }
  const isOne = loss.kind === "leaf" || holomorphic;
  if (!isOne || !type || type.shape.length !== 0 || !isFloat(type.dtype)) {
    const got = isOne && type ? formatType(type) : tree.formatStructure(loss);
    throw new GradientError(
      `[${caller}] the function must return one float scalar${hasAux ? " and aux" : ""}, it returned ${got}: reduce it with sum() or mean(), or use vjp`,
    );
  }
}

const vjpOptions = schema({
  /** Arguments that are not tensors but part of the function; booleans and strings are so anyway. −1 is the last one. */
  staticArgnums: optional("integerOrIntegers"),
  /** Whether the function returns `[outs, aux]`, of which only the first is differentiated. */
  hasAux: false,
});

/** Options of {@link vjp}. */
export interface VjpOptions extends OptionsOf<typeof vjpOptions> {}

/** Maps a tree of cotangents like the results, with `null` for zeros, to trees like the arguments. */
export type Pullback<A extends readonly unknown[], R> = (cotangents: R) => { -readonly [I in keyof A]: A[I] };

/**
 * Evaluates a function and returns how to pull cotangents of its results back to its arguments.
 *
 * @example
 * ```ts
 * const [y, pullback] = vjp((x: Tensor) => np.square(x), [np.array([1, 2])]);
 * y; // [1, 4]
 * pullback(np.array([1, 1])); // [[2, 4]]
 * ```
 */
export function vjp<A extends readonly unknown[], R, X>(
  fn: (...args: A) => readonly [R, X],
  primals: readonly [...A],
  options: VjpOptions & { readonly hasAux: true },
): [R, Pullback<A, R>, X];
export function vjp<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  primals: readonly [...A],
  options?: VjpOptions,
): [R, Pullback<A, R>];
export function vjp<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  primals: readonly [...A],
  options: VjpOptions = {},
): [unknown, (cotangents: unknown) => unknown, unknown?] {
  return toKeep(() => pullThrough(fn, primals, options));
}

/** {@link vjp} whose pullback is not differentiated more often than what surrounds the call. */
export function vjpHere<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  primals: readonly [...A],
): [R, Pullback<A, R>] {
  const [value, pullback] = pullThrough(fn, primals, {});
  return [value as R, pullback as Pullback<A, R>];
}

function pullThrough<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  primals: readonly [...A],
  options: VjpOptions,
): [unknown, (cotangents: unknown) => unknown, unknown?] {
  const { hasAux, staticArgnums } = vjpOptions.read(options, "vjp");
  const flat = flattenCall(primals, staticArgnums, "vjp");
  const types = flat.tensors.map(({ type }) => type);
  const traced = toDifferentiate(() => traceTree(fn, flat.structure, types, "vjp"));
  if (hasAux && !(traced.outStructure.kind === "array" && traced.outStructure.children.length === 2)) {
    throw new TreeError("[vjp] with hasAux the function must return [outs, aux]");
  }
  const structure =
    hasAux && traced.outStructure.kind === "array"
      ? at(traced.outStructure.children, 0)
      : traced.outStructure;
  const numOuts = tree.numLeaves(structure);
  const numCaptures = traced.captures.length;
  const active = traced.program.inputs.map(({ type }, i) => i >= numCaptures && isFloat(type.dtype));
  const activeOut = traced.program.outputs.map(({ type }, i) => i < numOuts && isFloat(type.dtype));
  const inputs = [...traced.captures, ...flat.tensors];
  const { outs, pull } = isTracing()
    ? pullInTrace(traced.program, inputs, active, activeOut)
    : pullInParts(traced, inputs, active, activeOut);
  const pullback = (cotangents: unknown) => {
    const given = flattenArgs(withZeros(cotangents, structure, traced.program), "vjp");
    tree.checkSameStructure(structure, given.structure, "vjp", "the results", "the cotangents");
    given.tensors.forEach((ct, i) => {
      const want = at(traced.program.outputs, i).type;
      if (formatType(ct.type) !== formatType(want) && isFloat(want.dtype)) {
        throw new GradientError(
          `[vjp] cotangent ${i} is ${formatType(ct.type)} but the result is ${formatType(want)}`,
        );
      }
    });
    const cts = conjugated(structure, given.tensors).map((ct, i) =>
      likeItsValue(ct, at(traced.program.outputs, i).type),
    );
    const grads = pull(cts.filter((_, i) => activeOut[i]));
    let next = 0;
    const all = inputs.map((x, i) => (active[i] ? at(grads, next++) : ops.zeros(x.type)));
    return tree.unflatten(flat.structure, conjugated(flat.structure, all.slice(numCaptures)));
  };
  const value = tree.unflatten(structure, outs.slice(0, numOuts));
  if (!hasAux || traced.outStructure.kind !== "array") return [value, pullback];
  return [value, pullback, tree.unflatten(at(traced.outStructure.children, 1), outs.slice(numOuts))];
}

/** Cotangents with zeros where the tree has `null` instead of a leaf or a branch. */
function withZeros(cotangents: unknown, structure: tree.Structure, program: Program): unknown {
  const given = flattenArgs(cotangents, "vjp").structure;
  if (tree.sameStructure(given, structure)) return cotangents;
  const spread = tree.broadcastPrefix(cotangents, structure, "vjp");
  const isImaginary = imaginaryLeaves(structure);
  // A tensor corresponds to one leaf only.
  if (spread.filter((ct) => ct !== null && ct !== undefined).length !== tree.numLeaves(given))
    return cotangents;
  return tree.unflatten(
    structure,
    spread.map((ct, i) => {
      const parts = ct instanceof Tensor ? ct.parts : undefined;
      if (parts) return parts[isImaginary[i] ? 1 : 0];
      return ct ?? ops.zeros(at(program.outputs, i).type);
    }),
  );
}

/** {@link linearize} without unused results: a loop's last carry would get cotangents of zeros. */
function linearizeRead(program: Program, ins: readonly Tensor[], active: readonly boolean[]): Linearized {
  return linearize(removeDeadCode(program), ins, active);
}

interface Pulled {
  readonly outs: readonly Tensor[];
  readonly pull: (cotangents: readonly Tensor[]) => Tensor[];
}

function pullInTrace(
  program: Program,
  ins: readonly Tensor[],
  active: readonly boolean[],
  activeOut: readonly boolean[],
): Pulled {
  const { outs, pullback } = linearizeRead(program, ins, active);
  return {
    outs,
    pull: (cotangents) => {
      let next = 0;
      const pulled = pullback(activeOut.map((flag) => (flag ? at(cotangents, next++) : null)));
      return pulled.map((ct, i) => ct ?? ops.zeros(at(ins, i).type)).filter((_, i) => active[i]);
    },
  };
}

function pullInParts(
  { program, target }: Traced,
  ins: readonly Tensor[],
  active: readonly boolean[],
  activeOut: readonly boolean[],
): Pulled {
  const { forward, backward, residuals } = vjpProgram(program, active, activeOut);
  const withResiduals = { ...forward, outputs: [...forward.outputs, ...residuals] };
  const results = callProgram(withResiduals, ins, target);
  const numOuts = program.outputs.length;
  const kept = results.slice(numOuts);
  return {
    outs: results.slice(0, numOuts),
    pull: (cotangents) => callProgram(backward, [...kept, ...cotangents], target),
  };
}

/**
 * The derivative of a program as two programs: `forward` maps inputs to outputs, `backward` maps
 * (…residuals, …cotangents of the active outputs) to the cotangents of the active inputs.
 */
export function vjpProgram(
  program: Program,
  active: readonly boolean[] = program.inputs.map(({ type }) => isFloat(type.dtype)),
  activeOut: readonly boolean[] = program.outputs.map(({ type }) => isFloat(type.dtype)),
): Split {
  const outTypes = program.outputs.filter((_, i) => activeOut[i]).map(({ type }) => type);
  const numIns = program.inputs.length;
  const { program: joint } = traceFlat(
    (args) => {
      const { outs, pull } = pullInTrace(program, args.slice(0, numIns), active, activeOut);
      return [...outs, ...pull(args.slice(numIns))];
    },
    [...program.inputs.map(({ type }) => type), ...outTypes],
    "vjp",
  );
  return split(simplify(joint), numIns, program.outputs.length);
}
