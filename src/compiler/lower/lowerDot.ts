import { byteSize, type DType } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { isCollective } from "../../ir/opFacts.js";
import type { Atom, Eqn, Var } from "../../ir/program.js";
import { at, bytesOf, range, rowMajorStrides } from "../../ir/shape.js";
import { isView } from "../lowering.js";
import { isDense, refOf, type View } from "../plan/planBuffers.js";
import type { GemmBatch, GemmStep } from "../steps.js";
import type { LoweringFrame } from "./frame.js";

/** One dim of a contraction with its distances in the two operands and the result; 0 where it does not occur. */
interface ContractionDim {
  readonly size: number;
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/** A contraction as dims of four kinds, each outermost first. */
interface Contraction {
  readonly batch: readonly ContractionDim[];
  readonly rows: readonly ContractionDim[];
  readonly columns: readonly ContractionDim[];
  readonly sums: readonly ContractionDim[];
}

/** How one operand goes into a GEMM. */
export interface MatrixLayout {
  readonly transposed: boolean;
  readonly leading: number;
}

/**
 * Emits a matrix product; operands are read in their own layout wherever the GEMM can. A product that is only added to
 * a value that nothing else needs, such as the gradient of a weight in a loop, is accumulated in place.
 */
export function lowerDot(frame: LoweringFrame, eqn: Eqn<"dotGeneral">): void {
  const [x, y, out] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.outs, 0)];
  const sum = accumulation(frame, eqn, out);
  const target = sum?.target ?? resultView(frame, eqn, out);
  let a = frame.view(x);
  let b = frame.view(y);
  let plan = planGemm(contraction(eqn, a, b, target));
  if (!plan) {
    // An operand with an unsuitable layout is copied to the one that suits the product best.
    a = packed(frame, x, [...eqn.params.lhsBatch], eqn.params.lhsContract, a);
    plan = planGemm(contraction(eqn, a, b, target));
  }
  if (!plan) {
    b = packed(frame, y, [...eqn.params.rhsBatch], eqn.params.rhsContract, b);
    plan = planGemm(contraction(eqn, a, b, target));
  }
  if (!plan) throw new Error("[lowerDot] a product of dense operands has no layout");
  const { m, n, k } = plan;
  const batchCount = plan.batch.reduce((count, dim) => count * dim.count, 1);
  const flops = (2 * k + (sum ? 1 : 0)) * m * n * batchCount;
  const bytes = bytesOf(x.type) + bytesOf(y.type) + (sum ? 2 : 1) * bytesOf(out.type);
  const info = frame.compilation.info(sum ? [eqn.op, "add"] : [eqn.op], eqn.source, flops, bytes);
  const dtype = productType(x.type.dtype);
  const [left, right] = plan.isSwapped ? [b, a] : [a, b];
  frame.steps.push({
    op: "gemm",
    dtype,
    a: refOf(left),
    b: refOf(right),
    c: refOf(target),
    m,
    n,
    k,
    transposeA: plan.a.transposed,
    transposeB: plan.b.transposed,
    lda: plan.a.leading,
    ldb: plan.b.leading,
    ldc: plan.ldc,
    alpha: 1,
    beta: sum ? 1 : 0,
    batch: plan.batch.map((dim) => inBytes(dim, byteSize(dtype), byteSize(out.type.dtype))),
    info,
  });
  frame.define(sum?.result ?? out, target);
}

/** A sum that a product accumulates into the memory of the other summand. */
interface Accumulation {
  readonly result: Var;
  /** Where the other summand is, and the sum will be. */
  readonly target: View;
}

/** The sum that a product can be added to, which then needs no kernel of its own. */
function accumulation(frame: LoweringFrame, eqn: Eqn<"dotGeneral">, out: Var): Accumulation | undefined {
  const reader = frame.onlyReader(out);
  if (reader?.op !== "add" || !frame.isSingletonKernel(reader)) return undefined;
  const [other] = reader.ins.filter((atom) => atom.kind === "var" && atom.id !== out.id);
  // A summand that is needed afterwards would have to be copied, which takes as long as adding.
  if (other?.kind !== "var" || !frame.isComputed(other) || frame.onlyReader(other) !== reader)
    return undefined;
  // A summand from other devices can arrive while the product runs, as long as the product does not need it.
  if (arrives(frame, other)) return undefined;
  const view = frame.view(other);
  const { kind, bytes } = view.buffer;
  if (!isDense(view) || (kind.kind !== "dynamic" && bytes !== bytesOf(out.type))) return undefined;
  const result = at(reader.outs, 0);
  frame.beginUpdates(result);
  const target = frame.target(result);
  const [x, y] = [at(eqn.ins, 0), at(eqn.ins, 1)];
  if (!planGemm(contraction(eqn, frame.view(x), frame.view(y), target))) return undefined;
  // If the summand is not used again, the memory plan gives both one place, and nothing is copied.
  frame.copy(view, target, "add", reader.source);
  frame.skip(reader);
  return { result, target };
}

/** Whether a value is the result of a collective, or a view of one. */
function arrives(frame: LoweringFrame, value: Var): boolean {
  const eqn = frame.fused.definitions.get(value.id);
  const source = eqn && isView(eqn) ? at(eqn.ins, 0) : undefined;
  if (source?.kind === "var") return arrives(frame, source);
  return eqn !== undefined && isCollective(eqn.op);
}

function inBytes({ count, strideA, strideB, strideC }: GemmBatch, size: number, sizeC: number): GemmBatch {
  return { count, strideA: strideA * size, strideB: strideB * size, strideC: strideC * sizeC };
}

/** The type of the factors of a matrix product. */
export function productType(dtype: DType): GemmStep["dtype"] {
  if (dtype === "float32" || dtype === "float64" || dtype === "bfloat16" || dtype === "float16") return dtype;
  throw new InternalError(`[lowerDot] there are no products of ${dtype}`);
}

/** Where the result lies: already transposed if its only reader is a transpose that allows it. */
function resultView(frame: LoweringFrame, eqn: Eqn<"dotGeneral">, out: Var): View {
  frame.beginUpdates(out);
  const target = frame.target(out);
  if (planGemm(contraction(eqn, frame.view(at(eqn.ins, 0)), frame.view(at(eqn.ins, 1)), target))) {
    const isBlock = !isDense(target) || target.buffer.bytes !== bytesOf(out.type);
    if (isBlock) return target;
  }
  const dense = frame.temporary(out);
  const readers = frame.readers.get(out.id) ?? [];
  const [reader] = readers;
  const isOutput = frame.program.outputs.some((a) => a.kind === "var" && a.id === out.id);
  if (readers.length !== 1 || isOutput || reader?.op !== "transpose") return dense;
  const { permutation } = reader.params;
  const strides = new Array<number>(permutation.length);
  const order = rowMajorStrides(permutation.map((p) => at(out.type.shape, p)));
  permutation.forEach((p, i) => {
    strides[p] = at(order, i);
  });
  const turned = { ...dense, strides };
  const [x, y] = [frame.view(at(eqn.ins, 0)), frame.view(at(eqn.ins, 1))];
  const plain = planGemm(contraction(eqn, x, y, dense));
  const transposed = planGemm(contraction(eqn, x, y, turned));
  const count = (batch: readonly GemmBatch[]) => batch.reduce((product, dim) => product * dim.count, 1);
  return plain && transposed && count(transposed.batch) <= count(plain.batch) ? turned : dense;
}

/** The operand copied to dense `[batch…, free…, contracted…]`, seen with its dims in their own order. */
function packed(
  frame: LoweringFrame,
  atom: Atom,
  batch: readonly number[],
  contract: readonly number[],
  view: View,
): View {
  const { shape } = atom.type;
  const free = range(shape.length).filter((d) => !batch.includes(d) && !contract.includes(d));
  const order = [...batch, ...free, ...contract];
  const dense = frame.temporary(atom);
  const packedStrides = rowMajorStrides(order.map((d) => at(shape, d)));
  const strides = new Array<number>(shape.length);
  order.forEach((d, i) => {
    strides[d] = at(packedStrides, i);
  });
  const target = { ...dense, strides };
  frame.copy(view, target, "pack");
  return target;
}

function contraction(eqn: Eqn<"dotGeneral">, a: View, b: View, c: View): Contraction {
  const { lhsBatch, rhsBatch, lhsContract, rhsContract } = eqn.params;
  const free = (view: View, used: readonly number[]) =>
    range(view.shape.length).filter((d) => !used.includes(d));
  const lhsFree = free(a, [...lhsBatch, ...lhsContract]);
  const rhsFree = free(b, [...rhsBatch, ...rhsContract]);
  const inC = (i: number) => at(c.strides, i);
  return {
    batch: lhsBatch.map((d, i) => ({
      size: at(a.shape, d),
      a: at(a.strides, d),
      b: at(b.strides, at(rhsBatch, i)),
      c: inC(i),
    })),
    rows: lhsFree.map((d, i) => ({
      size: at(a.shape, d),
      a: at(a.strides, d),
      b: 0,
      c: inC(lhsBatch.length + i),
    })),
    columns: rhsFree.map((d, i) => ({
      size: at(b.shape, d),
      a: 0,
      b: at(b.strides, d),
      c: inC(lhsBatch.length + lhsFree.length + i),
    })),
    sums: lhsContract.map((d, i) => ({
      size: at(a.shape, d),
      a: at(a.strides, d),
      b: at(b.strides, at(rhsContract, i)),
      c: 0,
    })),
  };
}

/** Merges neighbours that lie in all operands as one dim would. */
function merge(dims: readonly ContractionDim[]): ContractionDim[] {
  const result: ContractionDim[] = [];
  for (const dim of dims) {
    if (dim.size === 1) continue;
    const last = result.at(-1);
    const fits = last && (["a", "b", "c"] as const).every((k) => last[k] === dim[k] * dim.size);
    if (last && fits) result[result.length - 1] = { ...dim, size: last.size * dim.size };
    else result.push(dim);
  }
  return result;
}

/** The contracted dims in an order in which they merge, if there is one: any order gives the same sum. */
function mergeSums(dims: readonly ContractionDim[]): ContractionDim[] {
  return merge([...dims].sort((x, y) => y.a - x.a));
}

const UNIT: ContractionDim = { size: 1, a: 0, b: 0, c: 0 };

interface GemmPlan {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly a: MatrixLayout;
  readonly b: MatrixLayout;
  readonly ldc: number;
  readonly batch: readonly GemmBatch[];
  /** Whether the operands are swapped because the result is transposed. */
  readonly isSwapped: boolean;
}

function planGemm(dims: Contraction): GemmPlan | undefined {
  const sums = mergeSums(dims.sums);
  if (sums.length > 1) return undefined;
  const sum = sums[0] ?? UNIT;
  const rows = merge(dims.rows);
  const columns = merge(dims.columns);
  const batch = merge(dims.batch);
  // The matrix takes the largest dim of each kind; the others run around it.
  const row = largest(rows);
  const column = largest(columns);
  const around = [...batch, ...rows.filter((d) => d !== row), ...columns.filter((d) => d !== column)];
  const isSwapped = !isUnitStride(column.c, column.size) && isUnitStride(row.c, row.size);
  if (!isSwapped && !isUnitStride(column.c, column.size)) return undefined;
  const [outer, inner] = isSwapped ? [column, row] : [row, column];
  const ldc = leading(outer.c, outer.size, inner.size);
  const left = isSwapped
    ? layout(outer.size, outer.b, sum.size, sum.b)
    : layout(outer.size, outer.a, sum.size, sum.a);
  const right = isSwapped
    ? layout(sum.size, sum.a, inner.size, inner.a)
    : layout(sum.size, sum.b, inner.size, inner.b);
  if (!left || !right || ldc === undefined) return undefined;
  return {
    m: outer.size,
    n: inner.size,
    k: sum.size,
    a: left,
    b: right,
    ldc,
    batch: around.map(({ size, a, b, c }) => ({
      count: size,
      strideA: isSwapped ? b : a,
      strideB: isSwapped ? a : b,
      strideC: c,
    })),
    isSwapped,
  };
}

function largest(dims: readonly ContractionDim[]): ContractionDim {
  return dims.reduce((best, dim) => (dim.size > best.size ? dim : best), UNIT);
}

function isUnitStride(stride: number, size: number): boolean {
  return size === 1 || stride === 1;
}

/** The leading dimension for `count` rows at this distance, each `length` long. */
function leading(stride: number, count: number, length: number): number | undefined {
  if (count === 1) return Math.max(1, length);
  return stride >= length && stride > 0 ? stride : undefined;
}

/** How a matrix of `rows` × `columns` with these distances goes into a GEMM. */
export function layout(
  rows: number,
  rowStride: number,
  columns: number,
  columnStride: number,
): MatrixLayout | undefined {
  if (isUnitStride(columnStride, columns)) {
    const ld = leading(rowStride, rows, columns);
    if (ld !== undefined) return { transposed: false, leading: ld };
  }
  if (isUnitStride(rowStride, rows)) {
    const ld = leading(columnStride, columns, rows);
    if (ld !== undefined) return { transposed: true, leading: ld };
  }
  return undefined;
}
