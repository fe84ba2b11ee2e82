import type { OpParams } from "../../ir/ops.js";
import type { Atom, Var } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import type { Rewriter } from "./rewriter.js";

/** A product of integers as a broadcast product and its sum over the contracted dims. */
export function integerDot(r: Rewriter, x: Atom, y: Atom, p: OpParams["dotGeneral"], out: Var): void {
  const free = (v: Atom, used: readonly number[]) =>
    range(v.type.shape.length).filter((d) => !used.includes(d));
  const lhsFree = free(x, [...p.lhsBatch, ...p.lhsContract]);
  const rhsFree = free(y, [...p.rhsBatch, ...p.rhsContract]);
  const size = (v: Atom, dims: readonly number[]) => dims.map((d) => at(v.type.shape, d));
  const shape = [...size(x, p.lhsBatch), ...size(x, lhsFree), ...size(y, rhsFree), ...size(x, p.lhsContract)];
  const batch = range(p.lhsBatch.length);
  const left = range(lhsFree.length).map((i) => batch.length + i);
  const right = range(rhsFree.length).map((i) => batch.length + left.length + i);
  const contract = range(p.lhsContract.length).map((i) => batch.length + left.length + right.length + i);
  const type = tensorType(x.type.dtype, shape);
  const spread = (v: Atom, order: readonly number[], dims: readonly number[]): Var =>
    r.make("broadcastInDim", [r.transpose(v, order)], type, { shape, dims });
  const a = spread(x, [...p.lhsBatch, ...lhsFree, ...p.lhsContract], [...batch, ...left, ...contract]);
  const b = spread(y, [...p.rhsBatch, ...rhsFree, ...p.rhsContract], [...batch, ...right, ...contract]);
  if (contract.length === 0) r.emit("mul", [a, b], [out], {});
  else r.emit("reduceSum", [r.make("mul", [a, b], type, {})], [out], { dims: contract });
}
