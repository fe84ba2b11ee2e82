import { byteSize, type DType } from "../../ir/dtype.js";
import type { OpParams } from "../../ir/ops.js";
import type { Eqn, EqnParts } from "../../ir/program.js";
import { at, range, rowMajorStrides, type Shape, sizeOf, type TensorType } from "../../ir/shape.js";
import type { ViewOp } from "../lowering.js";

/** Where a buffer lies. */
export type BufferKind =
  /** In the arena; the memory plan says where. */
  | { readonly kind: "temporary" }
  | { readonly kind: "input"; readonly index: number }
  | { readonly kind: "output"; readonly index: number }
  | { readonly kind: "constant"; readonly offset: number }
  /** Wherever a dynamic slot points, in the memory of the parents. */
  | { readonly kind: "dynamic"; readonly slot: number; readonly parents: readonly Buffer[] };

/** A block of memory that steps read and write. */
export class Buffer {
  /** Another buffer whose memory this one uses. */
  sharedWith: Buffer | undefined;

  constructor(
    readonly id: number,
    readonly bytes: number,
    public kind: BufferKind,
    /** How many loops, whiles and conds are around the steps that define it. */
    readonly depth: number,
  ) {}

  /** The buffer that owns the memory of this one. */
  root(): Buffer {
    return this.sharedWith ? this.sharedWith.root() : this;
  }
}

/** Whether the memory of two buffers may overlap. */
export function mayOverlap(a: Buffer, b: Buffer): boolean {
  const owners = (buffer: Buffer): readonly Buffer[] => {
    const root = buffer.root();
    return root.kind.kind === "dynamic" ? root.kind.parents.flatMap(owners) : [root];
  };
  return owners(a).some((owner) => owners(b).includes(owner));
}

/** An address inside a buffer, in bytes from its start. */
export interface Ref {
  readonly buffer: Buffer;
  readonly offset: number;
}

/** How a tensor lies in a buffer: offset and distances in elements. */
export interface View {
  readonly buffer: Buffer;
  readonly dtype: DType;
  readonly shape: Shape;
  readonly offset: number;
  readonly strides: readonly number[];
}

/** A dense row-major tensor at the start of a buffer. */
export function denseView(buffer: Buffer, type: TensorType): View {
  const { dtype, shape } = type;
  return { buffer, dtype, shape, offset: 0, strides: rowMajorStrides(shape) };
}

/** The address of a view's first element. */
export function refOf(view: View): Ref {
  return { buffer: view.buffer, offset: view.offset * byteSize(view.dtype) };
}

/** Whether the elements lie one after the other in row-major order. */
export function isDense(view: View): boolean {
  let step = 1;
  for (let d = view.shape.length - 1; d >= 0; d--) {
    const n = at(view.shape, d);
    if (n !== 1 && view.strides[d] !== step) return false;
    step *= n;
  }
  return true;
}

/** The view that an op turns another into; undefined when the elements do not lie at regular distances. */
type ViewRule<K extends ViewOp> = (params: OpParams[K], source: View, shape: Shape) => View | undefined;

const viewRules: { readonly [K in ViewOp]: ViewRule<K> } = {
  transpose: ({ permutation }, source, shape) => ({
    ...source,
    shape,
    strides: permutation.map((p) => at(source.strides, p)),
  }),
  broadcastInDim: ({ dims }, source, shape) => {
    const strides = shape.map(() => 0);
    dims.forEach((d, i) => {
      if (source.shape[i] !== 1) strides[d] = at(source.strides, i);
    });
    return { ...source, shape, strides };
  },
  slice: ({ starts, strides: steps }, source, shape) => ({
    ...source,
    shape,
    offset: starts.reduce((sum, start, d) => sum + start * at(source.strides, d), source.offset),
    strides: source.strides.map((s, d) => s * at(steps, d)),
  }),
  reverse: ({ dims }, source, shape) => ({
    ...source,
    offset: dims.reduce((sum, d) => sum + (at(shape, d) - 1) * at(source.strides, d), source.offset),
    strides: source.strides.map((s, d) => (dims.includes(d) ? -s : s)),
  }),
  reshape: (_, source, shape) => reshapeView(source, shape),
};

/** The view that an equation turns another into; undefined when the elements do not lie at regular distances. */
export function applyView<K extends ViewOp>(eqn: Eqn<K>, source: View): View | undefined {
  const { op, params, outs }: EqnParts<K> = eqn;
  const rule: ViewRule<K> = viewRules[op];
  return rule(params, source, at(outs, 0).type.shape);
}

/** The same elements in another shape; undefined when a new dim would have no regular distance. */
export function reshapeView(source: View, shape: Shape): View | undefined {
  if (sizeOf(shape) === 0) return { ...source, shape, strides: rowMajorStrides(shape) };
  // Runs of dims that lie in memory as one, innermost last.
  const runs: { size: number; stride: number }[] = [];
  source.shape.forEach((n, d) => {
    if (n === 1) return;
    const stride = at(source.strides, d);
    const last = runs.at(-1);
    if (last && last.stride === stride * n) {
      last.size *= n;
      last.stride = stride;
    } else {
      runs.push({ size: n, stride });
    }
  });
  const strides = new Array<number>(shape.length).fill(0);
  let run = runs.pop();
  let used = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    const n = at(shape, d);
    if (n === 1) continue;
    if (run && used === run.size) {
      run = runs.pop();
      used = 1;
    }
    if (!run || (run.size / used) % n !== 0) return undefined;
    strides[d] = run.stride * used;
    used *= n;
  }
  return { ...source, shape, strides };
}

/** The view of a block: `sizes` elements from `starts` on. */
export function blockView(source: View, starts: readonly number[], sizes: Shape): View {
  const offset = range(sizes.length).reduce(
    (sum, d) => sum + at(starts, d) * at(source.strides, d),
    source.offset,
  );
  return { ...source, shape: sizes, offset };
}

/** The block of a concatenation's result that holds one of its operands. */
export function joinedBlock(whole: View, eqn: Eqn<"concatenate">, index: number): View {
  const { dim } = eqn.params;
  const start = eqn.ins.slice(0, index).reduce((sum, atom) => sum + at(atom.type.shape, dim), 0);
  const { shape } = at(eqn.ins, index).type;
  const starts = shape.map(() => 0).with(dim, start);
  return blockView(whole, starts, shape);
}
