import { oneDeviceEngine } from "#engines/oneDevice";
import { traceKey } from "../../ir/ambient.js";
import type { Engine } from "../../ir/engine.js";
import { sameSpec } from "../../ir/mesh.js";
import { at, sameNumbers, type TensorType } from "../../ir/shape.js";
import type { Placement } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import { leafTensor } from "../../trace/trace.js";
import type { Structure } from "../../trace/tree.js";
import { everyLeafLike, outlineOf } from "../../trace/treeLike.js";
import type { CallArgs, CallPlacement, TracedCall } from "./call.js";
import type { CompiledCall } from "./execute.js";

/** A compiled call, with everything that distinguishes it from others. */
export interface KnownCall {
  readonly compiled: CompiledCall;
  readonly captures: readonly Tensor[];
  readonly outStructure: Structure;
  /** For every argument its structure; a static one is a part of it. */
  readonly args: readonly Structure[];
  readonly leaves: readonly KnownLeaf[];
  /** What surrounded the call. */
  readonly ambient: string;
  /** The engine that it runs on where that is the process's own. */
  readonly ownEngine: Engine | undefined;
}

interface KnownLeaf {
  readonly type: TensorType;
  /** Where the tensor lies; a number lies nowhere. */
  readonly placement: Placement | undefined;
}

/** Maximum number of calls to cache for one function: loops usually alternate between one or two. */
const MAX_CALLS = 4;

/**
 * Calls that were made before, recognised by looking at the arguments. The keys by which all calls are kept are texts,
 * and to write one takes as long as to start a program.
 */
export class KnownCalls {
  private readonly calls: KnownCall[] = [];

  /** The call that these arguments make again, and its inputs: captured tensors, then arguments. */
  find(args: readonly unknown[]): { readonly call: KnownCall; readonly inputs: Tensor[] } | undefined {
    const ambient = traceKey();
    for (const call of this.calls) {
      const inputs = call.ambient === ambient ? inputsOf(call, args) : undefined;
      if (inputs) return { call, inputs };
    }
    return undefined;
  }

  /** Adds a call, evicting the oldest one. */
  add(
    args: readonly unknown[],
    flat: CallArgs,
    traced: TracedCall,
    { isAnywhere, target }: CallPlacement,
    compiled: CompiledCall,
  ): void {
    const { structure, dynamic, tensors } = flat;
    const children = structure.kind === "array" ? structure.children : [];
    const known: KnownCall = {
      compiled,
      captures: traced.captures,
      outStructure: traced.outStructure,
      args: args.map((value, i): Structure => {
        const place = dynamic.indexOf(i);
        return place < 0 ? { kind: "static", value } : outlineOf(at(children, place));
      }),
      leaves: tensors.map((tensor) => ({ type: tensor.type, placement: placementOf(tensor) })),
      ambient: traceKey(),
      ownEngine: isAnywhere ? target.engine : undefined,
    };
    this.calls.unshift(known);
    if (this.calls.length > MAX_CALLS) this.calls.pop();
  }
}

function placementOf({ node }: Tensor): Placement | undefined {
  return node.kind === "array" ? node.storage.placement : undefined;
}

function inputsOf(call: KnownCall, args: readonly unknown[]): Tensor[] | undefined {
  const { leaves, captures } = call;
  if (args.length !== call.args.length) return undefined;
  const inputs = [...captures];
  const visit = (leaf: unknown): boolean => {
    const known = leaves[inputs.length - captures.length];
    if (known === undefined) return false;
    if (leaf instanceof Tensor) {
      if (!isLike(leaf, known)) return false;
      inputs.push(leaf);
      return true;
    }
    if (typeof leaf !== "number" || known.placement || !known.type.weak) return false;
    inputs.push(leafTensor(leaf, "jit", ""));
    return true;
  };
  for (let i = 0; i < args.length; i++) {
    if (!everyLeafLike(args[i], at(call.args, i), visit)) return undefined;
  }
  if (call.ownEngine !== undefined && oneDeviceEngine() !== call.ownEngine) return undefined;
  return inputs;
}

function isLike(tensor: Tensor, { type, placement }: KnownLeaf): boolean {
  const { node } = tensor;
  if (node.kind === "literal") return placement === undefined && isSameType(tensor.type, type);
  if (node.kind !== "array" || placement === undefined) return false;
  return isSameType(tensor.type, type) && isSamePlacement(node.storage.placement, placement);
}

function isSameType(a: TensorType, b: TensorType): boolean {
  if (a === b) return true;
  const isSame = a.dtype === b.dtype && a.weak === b.weak && a.varying === b.varying;
  return isSame && sameNumbers(a.shape, b.shape);
}

/** Stricter than it must be: a mesh that is another object may still be the same. */
function isSamePlacement(a: Placement, b: Placement): boolean {
  if (a === b) return true;
  return (
    a.engine === b.engine &&
    a.mesh === b.mesh &&
    (a.devices === b.devices || sameNumbers(a.devices, b.devices)) &&
    (a.spec === b.spec || sameSpec(a.spec, b.spec))
  );
}
