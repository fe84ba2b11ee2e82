import { isFloat } from "../../ir/dtype.js";
import { type ControlOp, isControlEqn } from "../../ir/opFacts.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at, range, sizeOf, type TensorType } from "../../ir/shape.js";
import { atSource, Environment, inline, rebind, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { extrasOf, Threading } from "../../transforms/rewrite/threadBodies.js";

/** How bad the worst element of a value is. */
export const status = { finite: 0, infinite: 1, nan: 2 } as const;

/**
 * Where the statuses of a program's values are in the vector that the watched program returns. A loop's body has one
 * part of it per iteration.
 */
export interface StatusLayout {
  readonly program: Program;
  /** The length of the vector, or of one iteration's part. */
  readonly size: number;
  /** Values by id; those without an entry are always finite, or the same as a value outside of the body. */
  readonly slots: ReadonlyMap<number, Slot>;
  /** The parts of equations that carry programs. */
  readonly inner: ReadonlyMap<Eqn<ControlOp>, Inner>;
}

/** The offset of a status, or another value of the same program that has the same status. */
export type Slot = { readonly offset: number } | { readonly like: Atom };

/**
 * The part of an equation with programs inside: of a scan its iterations; of a `while` the first iteration in
 * which a carry got worse (−1 for none) and that iteration; of a `cond` the branch taken and its statuses.
 */
export interface Inner {
  readonly offset: number;
  readonly layouts: readonly StatusLayout[];
}

/** A program that returns the status of its values, and how to read the result. */
export interface WatchedProgram {
  /** From the same inputs to one int32 vector. */
  readonly program: Program;
  readonly layout: StatusLayout;
}

/** Makes the program that computes the status of every float of a per-device program instead of its results. */
export function watch(program: Program): WatchedProgram {
  return watchLevel(
    program,
    () => true,
    (_, statuses) => [statuses],
  );
}

/** Whether values of a type can be non-finite. */
function isWatched({ dtype, shape }: TensorType): boolean {
  return isFloat(dtype) && sizeOf(shape) > 0;
}

const int = (value: number) => Tensor.scalar(value, "int32");

/** The status of a tensor's worst element. */
function statusOf(x: Tensor): Tensor {
  const ofElements = ops.select(
    ops.finite(x),
    int(status.finite),
    ops.select(ops.compare("eq", x, x), int(status.infinite), int(status.nan)),
  );
  return ops.reduceMax(ofElements, range(x.ndim));
}

/**
 * Watches one program: that of a function or a body.
 *
 * @param isOwn whether an input needs a status of its own, because no value outside has the same
 * @param results what the watched program returns
 */
function watchLevel(
  program: Program,
  isOwn: (input: number) => boolean,
  results: (outputs: readonly Tensor[], statuses: Tensor) => readonly Tensor[],
): WatchedProgram {
  const level = new Level();
  const types = program.inputs.map(({ type }) => type);
  const traced = traceFlat(
    (tensors) => {
      const values = new Environment(program.inputs, tensors);
      for (const [i, input] of program.inputs.entries()) if (isOwn(i)) level.watch(input, at(tensors, i));
      for (const eqn of program.eqns) atSource(eqn.source, () => level.apply(eqn, values));
      return results(values.read(program.outputs), level.statuses());
    },
    types,
    "watch",
  );
  return { program: traced.program, layout: { program, ...level.places } };
}

/** Collects the statuses of one program while it is traced again. */
class Level {
  private readonly parts: Tensor[] = [];
  private readonly slots = new Map<number, Slot>();
  private readonly inner = new Map<Eqn<ControlOp>, Inner>();
  private size = 0;

  get places(): Omit<StatusLayout, "program"> {
    const { size, slots, inner } = this;
    return { size, slots, inner };
  }

  /** All statuses added so far as one vector. */
  statuses(): Tensor {
    return this.parts.length === 0
      ? ops.zeros({ dtype: "int32", shape: [0] })
      : ops.concatenate(this.parts, 0);
  }

  private put(vector: Tensor): number {
    const offset = this.size;
    this.parts.push(vector);
    this.size += at(vector.shape, 0);
    return offset;
  }

  watch(variable: Var, tensor: Tensor): void {
    if (!isWatched(variable.type)) return;
    this.slots.set(variable.id, { offset: this.put(ops.reshape(statusOf(tensor), [1])) });
  }

  apply(eqn: Eqn, values: Environment): void {
    const outs = isControlEqn(eqn) ? this.control(eqn, values.read(eqn.ins)) : undefined;
    if (outs) values.define(eqn.outs, outs);
    else rebind(filled(eqn), values);
    eqn.outs.forEach((out, i) => {
      const like = sameStatus(eqn, i);
      if (like) this.slots.set(out.id, { like });
      else this.watch(out, at(values.read([out]), 0));
    });
  }

  /** The results of an equation with watched programs inside; undefined when there is nothing to watch. */
  private control(eqn: Eqn<ControlOp>, ins: readonly Tensor[]): readonly Tensor[] | undefined {
    switch (eqn.op) {
      case "scan":
        return this.scan(eqn, ins);
      case "while":
        return this.while(eqn, ins);
      case "cond":
        return this.cond(eqn, ins);
    }
  }

  private scan(eqn: Eqn<"scan">, ins: readonly Tensor[]): readonly Tensor[] | undefined {
    const { body, length, numConsts } = eqn.params;
    const { program, layout } = watchLevel(body, (i) => i >= numConsts, withStatuses);
    if (layout.size === 0 || length === 0) return undefined;
    const { own, added } = new Threading(eqn, ins).bind([program], { ys: 1 });
    this.putInner(eqn, [layout], ops.reshape(at(added.ys ?? [], 0), [length * layout.size]));
    return own;
  }

  private while(eqn: Eqn<"while">, ins: readonly Tensor[]): readonly Tensor[] | undefined {
    const { program, layout } = watchLevel(eqn.params.body, () => true, withStatuses);
    const { size } = layout;
    if (size === 0) return undefined;
    const none = ops.zeros({ dtype: "int32", shape: [size] });
    const threading = new Threading(eqn, ins, { carry: extrasOf([int(0), int(-1), none]) });
    const { own, added } = threading.apply((_, { own: given, added: { carry = [] } }) => {
      const [count, first, kept] = [at(carry, 0), at(carry, 1), at(carry, 2)];
      const outs = inline(program, given);
      const after = outs.slice(0, -1);
      const before = given.slice(eqn.params.numBodyConsts);
      const isFirst = ops.and(anyWorse(before, after), ops.compare("lt", first, 0));
      const statuses = ops.select(ops.broadcastInDim(isFirst, [size], []), at(outs, after.length), kept);
      return {
        own: after,
        added: { carry: [ops.add(count, 1), ops.select(isFirst, count, first), statuses] },
      };
    }, "watch");
    const [, first, kept] = added.carry ?? [];
    if (!first || !kept) return undefined;
    this.putInner(eqn, [layout], ops.concatenate([ops.reshape(first, [1]), kept], 0));
    return own;
  }

  private cond(eqn: Eqn<"cond">, ins: readonly Tensor[]): readonly Tensor[] | undefined {
    const { branches } = eqn.params;
    const layouts = branches.map((branch) => watchBranch(branch, 0, 0).layout);
    const size = Math.max(...layouts.map((layout) => layout.size));
    if (size === 0) return undefined;
    const watched = branches.map((branch, i) => watchBranch(branch, i, size));
    const programs = watched.map(({ program }) => program);
    const { own, added } = new Threading(eqn, ins).bind(programs, { ys: 1 });
    const taken = watched.map(({ layout }) => layout);
    this.putInner(eqn, taken, at(added.ys ?? [], 0));
    return own;
  }

  private putInner(eqn: Eqn<ControlOp>, layouts: readonly StatusLayout[], vector: Tensor): void {
    this.inner.set(eqn, { offset: this.put(vector), layouts });
  }
}

const withStatuses = (outs: readonly Tensor[], statuses: Tensor): Tensor[] => [...outs, statuses];

/** Whether the status of one of the values got worse. */
function anyWorse(before: readonly Tensor[], after: readonly Tensor[]): Tensor {
  const worse = after.map((x, i) =>
    isWatched(x.type)
      ? ops.compare("gt", statusOf(x), statusOf(at(before, i)))
      : Tensor.scalar(false, "bool"),
  );
  return worse.reduce((any, one) => ops.or(any, one), Tensor.scalar(false, "bool"));
}

/** A branch that also returns its number and its statuses, filled up to the size of the largest branch. */
function watchBranch(branch: Program, index: number, size: number): WatchedProgram {
  return watchLevel(
    branch,
    () => false,
    (outs, statuses) => {
      const rest = Math.max(0, size - at(statuses.shape, 0));
      const parts = [ops.full([1], index, "int32"), statuses, ops.zeros({ dtype: "int32", shape: [rest] })];
      const filled = parts.filter(({ shape }) => shape[0] !== 0);
      return [...outs, ops.concatenate(filled, 0)];
    },
  );
}

/** A check of all elements would also read uninitialised ones. */
function filled(eqn: Eqn): Eqn {
  if (eqn.op !== "broadcastInDim") return eqn;
  const { shape, dims } = eqn.params;
  return { ...eqn, params: { shape, dims } };
}

/** The operand whose elements are those of a result, so that both are finite or neither is. */
function sameStatus(eqn: Eqn, result: number): Atom | undefined {
  const out = at(eqn.outs, result);
  if (!isWatched(out.type)) return undefined;
  switch (eqn.op) {
    case "neg":
    case "abs":
    case "name":
    case "stopGradient":
    case "pvary":
    case "reshape":
    case "transpose":
    case "reverse":
    case "broadcastInDim":
    case "shardingConstraint":
      return at(eqn.ins, 0);
    case "optimizationBarrier":
      return at(eqn.ins, result);
    case "convert": {
      const operand = at(eqn.ins, 0);
      const { dtype } = operand.type;
      const isWider = out.type.dtype === "float64" || dtype === "float16" || dtype === "bfloat16";
      return isFloat(dtype) && isWider && out.type.dtype !== "float16" && out.type.dtype !== "bfloat16"
        ? operand
        : undefined;
    }
    default:
      return undefined;
  }
}
