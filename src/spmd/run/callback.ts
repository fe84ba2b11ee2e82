/** Host callbacks that programs call while they run. */

import { need, oneOf } from "../../ir/arguments.js";
import { HostFunction } from "../../ir/callbacks.js";
import { getOrInsert } from "../../ir/collections.js";
import { isComplex } from "../../ir/dtype.js";
import { DTypeError, TreeError, ValueError } from "../../ir/errors.js";
import type { CallbackBatching, CallbackKind } from "../../ir/ops.js";
import { Recent } from "../../ir/recent.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, isTyped } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import { elementsOf, type FromHost, HostArray, type OnHost } from "../../trace/hostArray.js";
import { flattenArgs } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";

/** A function of host arrays. */
type AnyFunction = (...args: never[]) => unknown;

/** What programs know about a function. */
interface Called {
  readonly fn: AnyFunction;
  /** The function of the library that users called, for messages. */
  readonly caller: string;
  readonly kind: CallbackKind;
  readonly batching: CallbackBatching;
}

/** Maximum number of argument structures to cache for a function. */
const maxStructures = 64;

/** A function with arguments of one structure is one host callback, so that programs that call it are alike. */
const known = new WeakMap<AnyFunction, Recent<HostFunction>>();

function hostFunction(called: Called, args: tree.Structure, results: tree.Structure): HostFunction {
  const { fn, kind } = called;
  const own = getOrInsert(known, fn, () => new Recent<HostFunction>(maxStructures));
  const key = [kind, ...[args, results].map(tree.formatStructure)].join(" ");
  return own.get(key, () => newHostFunction(called, args, results));
}

function newHostFunction(
  { fn, caller, kind }: Called,
  args: tree.Structure,
  results: tree.Structure,
): HostFunction {
  const name = fn.name || caller;
  const call = fn as (...all: unknown[]) => unknown;
  return new HostFunction(name, (ins, types) => {
    const arrays = ins.map(({ type, data }) => new HostArray(type, data));
    const given = call(...tree.unflatten<unknown[]>(args, arrays));
    if (given instanceof Promise) {
      throw new ValueError(
        `[${caller}] ${name} is async, and programs wait for what they call: return the values at once`,
      );
    }
    if (kind === "debug") return [];
    return partsAt(results, given, caller).map((part, i) =>
      elementsOf(part, at(types, i), caller, `result ${i}`),
    );
  });
}

/** What stands in a value at the places of a structure's leaves. */
function partsAt(structure: tree.Structure, value: unknown, caller: string): unknown[] {
  const unlike = () =>
    new TreeError(
      `[${caller}] the function must return ${tree.formatStructure(structure)}, as it was declared`,
    );
  switch (structure.kind) {
    case "leaf":
      return [value];
    case "none":
    case "static":
      return [];
    case "array": {
      if (!Array.isArray(value) || value.length !== structure.children.length) throw unlike();
      return structure.children.flatMap((child, i) => partsAt(child, value[i], caller));
    }
    case "object": {
      if (typeof value !== "object" || value === null) throw unlike();
      const fields = new Map<string, unknown>(Object.entries(value));
      if (!structure.keys.every((key) => fields.has(key))) throw unlike();
      return structure.keys.flatMap((key, i) => partsAt(at(structure.children, i), fields.get(key), caller));
    }
    case "class": {
      const flat = tree.flatten(value);
      if (!tree.sameStructure(flat.structure, structure)) throw unlike();
      return flat.leaves;
    }
  }
}

/** Records or makes a call of a host callback; gives tensors like `results`. */
export function callFromProgram<R>(called: Called, results: R, args: readonly unknown[]): R {
  const { fn: given, caller, kind, batching } = called;
  need("function", given, "fn", caller);
  need("list", args, "args", caller);
  const flat = flattenArgs(args, caller);
  const { leaves, structure } = tree.flatten(results, isTyped);
  const types = leaves.map((leaf) => {
    if (isTyped(leaf) && !isComplex(leaf.dtype)) return { dtype: leaf.dtype, shape: leaf.shape };
    if (isTyped(leaf)) {
      throw new DTypeError(
        `[${caller}] a host callback cannot return ${leaf.dtype}: declare its real and imaginary parts`,
      );
    }
    throw new TreeError(
      `[${caller}] results are declared as a tree of tensors or ShapeDtypeStruct(shape, dtype), got ${String(leaf)}`,
    );
  });
  const fn = hostFunction(called, flat.structure, structure);
  const outs = bind("callback", flat.tensors, { fn, kind, batching, results: types, once: [] });
  return tree.unflatten<R>(structure, outs);
}

const pureCallbackOptions = schema({
  /**
   * What `vmap` does: `"sequential"` calls for one element after the other; `"expandDims"` and `"broadcastAll"` call once
   * with whole batches as dim 0, where arguments without a batch have size 1 there or are repeated. Refused by default.
   */
  vmapMethod: optional(oneOf("sequential", "expandDims", "broadcastAll")),
});

/** Options of {@link pureCallback}. */
export interface PureCallbackOptions extends OptionsOf<typeof pureCallbackOptions> {}

/**
 * Calls a function of JavaScript from a program and gives what it returns. It must always return the same for the same
 * arguments, and do nothing else: it may be called more often than the program says, or not at all.
 *
 * @param fn is given arrays of the host, and returns numbers, nested or typed arrays at once
 * @param results what it returns: a tree of `ShapeDtypeStruct`s or of tensors whose types count
 *
 * @example
 * ```ts
 * const type = ShapeDtypeStruct([2], "float32");
 * pureCallback((x) => Array.from(x.data, Math.cbrt), type, [np.array([8, 27])]); // [2, 3]
 * ```
 */
export function pureCallback<const A extends readonly unknown[], R>(
  fn: (...args: OnHost<A>) => FromHost<R>,
  results: R,
  args: A,
  options?: PureCallbackOptions,
): R {
  const { vmapMethod: batching = "never" } = pureCallbackOptions.read(options, "pureCallback");
  return callFromProgram({ fn, caller: "pureCallback", kind: "pure", batching }, results, args);
}

/**
 * Calls a function of JavaScript that does something, such as reading the next batch, and gives what it returns. Every
 * run of a program calls it as often as the program says, on each device in its order; under `vmap` for one element
 * after the other. Where several devices run one program over whole tensors, the first of them calls.
 *
 * @example
 * ```ts
 * let calls = 0;
 * const next = jit(() => ioCallback(() => ++calls, ShapeDtypeStruct([], "int32"), []));
 * [await next().js(), await next().js()]; // [1, 2]
 * ```
 */
export function ioCallback<const A extends readonly unknown[], R>(
  fn: (...args: OnHost<A>) => FromHost<R>,
  results: R,
  args: A,
): R {
  return callFromProgram({ fn, caller: "ioCallback", kind: "io", batching: "sequential" }, results, args);
}
