import { need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { complexType } from "../ir/dtype.js";
import { TreeError } from "../ir/errors.js";
import { at, isTyped, type TensorType } from "../ir/shape.js";
import { type Traced, traceFlat } from "./builder.js";
import { Complex } from "./complexNumber.js";
import { Tensor } from "./tensor.js";
import { flattenDynamic, type OpenedLeaf, type Structure, unflatten } from "./tree.js";

/** Flattened arguments of a function: every leaf a tensor. */
export interface FlatArgs {
  readonly tensors: readonly Tensor[];
  /** The path of each tensor, such as `0/params/kernel`. */
  readonly paths: readonly string[];
  readonly structure: Structure;
}

/** Numbers of arguments; negative ones count from the end. */
export type Argnums = number | readonly number[];

/** A function of trees traced into a program over the leaves. */
export interface TracedTree extends Traced {
  readonly outStructure: Structure;
}

const isFlag = (leaf: unknown) => typeof leaf === "boolean" || typeof leaf === "string";

/**
 * Flattens a tree into tensors; numbers become scalar tensors. Booleans and strings are part of the structure, and a
 * traced function sees them unchanged.
 */
export function flattenArgs(args: unknown, caller: string): FlatArgs {
  const { entries, structure } = flattenDynamic(args, isFlag, openComplex);
  return {
    tensors: entries.map(({ path, leaf }) => leafTensor(leaf, caller, path)),
    paths: entries.map(({ path }) => path),
    structure,
  };
}

/** Complex numbers are traced as their parts and reassembled from the results. */
function openComplex(leaf: unknown): OpenedLeaf | undefined {
  const tensor = leaf instanceof Complex ? Tensor.scalar(leaf, "complex64") : leaf;
  if (!(tensor instanceof Tensor) || !tensor.parts) return undefined;
  return { name: complexNode, children: tensor.parts, rebuild: ([real, imag]) => rejoin(real, imag) };
}

const complexNode = "complex";

/** Complex numbers, or their type; anything else stays a pair. */
function rejoin(real: unknown, imag: unknown): unknown {
  if (real instanceof Tensor && imag instanceof Tensor) return Tensor.complex(real, imag);
  if (isTyped(real) && isTyped(imag)) return { ...real, dtype: complexType(real.dtype) };
  return { real, imag };
}

/** Whether a structure that {@link flattenArgs} made is a tensor of complex numbers. */
export function isComplexNode(structure: Structure): boolean {
  return structure.kind === "class" && structure.name === complexNode;
}

/** For every leaf of a structure that {@link flattenArgs} made, whether it is the imaginary part of complex numbers. */
export function imaginaryLeaves(structure: Structure): boolean[] {
  switch (structure.kind) {
    case "leaf":
      return [false];
    case "none":
    case "static":
      return [];
    default:
      if (isComplexNode(structure)) return [false, true];
      return structure.children.flatMap(imaginaryLeaves);
  }
}

/** Like {@link flattenArgs} for a list of arguments, some of which are static. */
export function flattenCall(
  args: readonly unknown[],
  staticArgnums: Argnums | undefined,
  caller: string,
): FlatArgs & { readonly structure: Extract<Structure, { kind: "array" }> } {
  need("list", args, "the arguments", caller);
  const statics = argumentPositions(staticArgnums, args.length, caller, "staticArgnums");
  const flat = args.map((arg, i) => (statics.includes(i) ? undefined : flattenArgs([arg], caller)));
  const children = flat.map((one, i): Structure => {
    if (!one) return { kind: "static", value: args[i] };
    return one.structure.kind === "array" ? at(one.structure.children, 0) : one.structure;
  });
  return {
    tensors: flat.flatMap((one) => one?.tensors ?? []),
    paths: flat.flatMap((one, i) => (one?.paths ?? []).map((path) => `${i}${path.slice(1)}`)),
    structure: { kind: "array", children },
  };
}

/** Argument numbers as positions; negative ones count from the end, and numbers out of range are refused. */
export function argumentPositions(
  argnums: Argnums | undefined,
  count: number,
  caller: string,
  option: string,
): number[] {
  const list = argnums === undefined ? [] : typeof argnums === "number" ? [argnums] : argnums;
  need("list", list, option, caller);
  return list.map((n) => {
    if (Number.isInteger(n) && n >= -count && n < count) return n < 0 ? n + count : n;
    throw new TreeError(
      `[${caller}] ${option} ${describe(n)} names no argument: the function was called with ${count}${count > 0 ? `, use ${-count} to ${count - 1}` : ""}`,
    );
  });
}

/** A leaf of an argument or result as a tensor. */
export function leafTensor(leaf: unknown, caller: string, path: string): Tensor {
  if (leaf instanceof Tensor) return leaf;
  if (typeof leaf === "number") return Tensor.scalar(leaf, "float32", true);
  if (typeof leaf === "boolean") return Tensor.scalar(leaf, "bool");
  const advice =
    leaf instanceof Promise
      ? "await it first"
      : ArrayBuffer.isView(leaf)
        ? "convert it with np.array(…)"
        : "pass it as a static argument or close over it";
  throw new TreeError(
    `[${caller}] the leaf at "${path}" is ${describe(leaf)}, not a tensor or number: ${advice}`,
  );
}

/** Traces a function of trees for arguments of the given types. */
export function traceTree<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  structure: Structure,
  types: readonly TensorType[],
  caller: string,
): TracedTree {
  need("function", fn, "what is traced", caller);
  let outStructure: Structure | undefined;
  const traced = traceFlat(
    (leaves) => {
      const args = unflatten<A>(structure, leaves);
      const out = fn(...args);
      if (out instanceof Promise) {
        // Its later rejection, when it reads a placeholder, would be unhandled.
        out.catch(() => undefined);
        throw new TreeError(
          `[${caller}] the function is async; a function of tensors must return its results, not a promise`,
        );
      }
      const flat = flattenArgs(out, caller);
      outStructure = flat.structure;
      return flat.tensors;
    },
    types,
    caller,
  );
  if (!outStructure) throw new TreeError(`[${caller}] the function was not called`);
  return { ...traced, outStructure };
}
