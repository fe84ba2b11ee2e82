import { TreeError } from "../ir/errors.js";
import type { TensorType } from "../ir/shape.js";
import { type Traced, traceFlat } from "./builder.js";
import { Tensor } from "./tensor.js";
import { flatten, flattenWithPath, type Structure, unflatten } from "./tree.js";

/** Arguments of a function taken apart: every leaf a tensor. */
export interface FlatArgs {
  readonly tensors: readonly Tensor[];
  readonly structure: Structure;
}

/** A function of trees traced into a program over the leaves. */
export interface TracedTree extends Traced {
  readonly outStructure: Structure;
}

/** Takes arguments apart into tensors; numbers and booleans become scalar tensors. */
export function flattenArgs(args: unknown, caller: string): FlatArgs {
  const tensors = flattenWithPath(args).map(({ path, leaf }) => leafTensor(leaf, caller, path));
  return { tensors, structure: flatten(args).structure };
}

/** A leaf of an argument or result as a tensor. */
export function leafTensor(leaf: unknown, caller: string, path: string): Tensor {
  if (leaf instanceof Tensor) return leaf;
  if (typeof leaf === "number") return Tensor.scalar(leaf, "float32");
  if (typeof leaf === "boolean") return Tensor.scalar(leaf, "bool");
  const what = typeof leaf === "object" && leaf !== null ? leaf.constructor.name : typeof leaf;
  throw new TreeError(
    `[${caller}] the leaf at "${path}" is a ${what}, not a tensor or number: pass it as a static argument or close over it`,
  );
}

/** Traces a function of trees for arguments of the given types. */
export function traceTree<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  structure: Structure,
  types: readonly TensorType[],
  caller: string,
): TracedTree {
  let outStructure: Structure | undefined;
  const traced = traceFlat(
    (leaves) => {
      const args = unflatten<A>(structure, leaves);
      const out = fn(...args);
      if (out instanceof Promise) {
        throw new TreeError(
          `[${caller}] the function is async; a function of tensors must return its results at once`,
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
