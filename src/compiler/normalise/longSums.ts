import type { ReduceOp } from "../../ir/opFacts.js";
import { type Atom, newVar, type Var } from "../../ir/program.js";
import { at, range, sizeOf, tensorType } from "../../ir/shape.js";
import type { Rewriter } from "./rewriter.js";

/**
 * Maximum number of float32 terms in one sum. A kernel may add all of them one after the other, and such a sum of equal
 * terms stops growing at 2^24 of them: 33 million ones would be 16,777,216.
 */
const maxTerms = 2 ** 22;

/** Sizes of the parts of a dim that is too long by itself. */
const [minPart, maxPart] = [2 ** 8, 2 ** 16];

/** A sum over some dims, divided into sums over fewer elements where there are too many for one. */
export function sumInParts(r: Rewriter, x: Atom, dims: readonly number[], out: Var): void {
  const { dtype, shape } = x.type;
  const sizes = (list: readonly number[]) => list.map((d) => at(shape, d));
  if (dtype !== "float32" || sizeOf(sizes(dims)) <= maxTerms) {
    r.emit("reduceSum", [x], [out], { dims });
    return;
  }
  const sorted = [...dims].sort((a, b) => a - b);
  const first = sorted.findIndex((_, i) => sizeOf(sizes(sorted.slice(i))) <= maxTerms);
  const inner = first < 0 ? [] : sorted.slice(first);
  const next = at(sorted, sorted.length - inner.length - 1);
  if (sizeOf(sizes(inner)) < minPart && at(shape, next) > maxPart) {
    cutDim(r, x, sorted, next, out);
    return;
  }
  const kept = range(shape.length).filter((d) => !inner.includes(d));
  const sums = r.make("reduceSum", [x], tensorType(dtype, sizes(kept)), { dims: inner });
  const rest = sorted.slice(0, first).map((d) => kept.indexOf(d));
  sumInParts(r, sums, rest, out);
}

/** A sum over dims, one of which is divided into parts that are summed first. */
function cutDim(r: Rewriter, x: Atom, dims: readonly number[], dim: number, out: Var): void {
  const { dtype, shape } = x.type;
  const n = at(shape, dim);
  const part = range(maxPart + 1).findLast((size) => size >= minPart && n % size === 0);
  if (part !== undefined) {
    const cut = shape.toSpliced(dim, 1, n / part, part);
    const places = dims.flatMap((d) => (d === dim ? [d, d + 1] : [d < dim ? d : d + 1]));
    sumInParts(r, r.reshape(x, cut), places, out);
    return;
  }
  // The remainder after the whole parts is summed separately.
  const whole = n - (n % maxPart);
  const [head, tail] = [
    [0, whole],
    [whole, n],
  ].map(([start = 0, limit = n]) => {
    const params = {
      starts: shape.map(() => 0).with(dim, start),
      limits: shape.with(dim, limit),
      strides: shape.map(() => 1),
    };
    const piece = r.make("slice", [x], tensorType(dtype, shape.with(dim, limit - start)), params);
    const sum = newVar(out.type);
    sumInParts(r, piece, dims, sum);
    return sum;
  });
  if (head && tail) r.emit("add", [head, tail], [out], {});
}

/** The results that keep a GPU busy, and the fewest terms that are worth a result. */
const [busyResults, fewestTerms] = [2 ** 17, 512];

/**
 * A reduction to few results on a GPU, which gives each to a few threads: first to many results along the outermost of
 * its dims. Rows that lie in one piece have a workgroup each, and stay whole in the kernel that reads them.
 *
 * @returns whether it was worth it
 */
export function reduceInParts(
  r: Rewriter,
  op: ReduceOp,
  x: Atom,
  dims: readonly number[],
  out: Var,
): boolean {
  const { dtype, shape } = x.type;
  const numResults = sizeOf(out.type.shape);
  const numTerms = sizeOf(shape) / Math.max(1, numResults);
  if (numResults > (dims.includes(shape.length - 1) ? 64 : busyResults / 4)) return false;
  const dim = Math.min(...dims);
  const most = Math.min(busyResults / numResults, numTerms / fewestTerms);
  const size = at(shape, dim);
  const parts = range(Math.floor(Math.min(most, size)) + 1).findLast((n) => n > 1 && size % n === 0);
  if (parts === undefined) return false;
  const cut = r.reshape(x, shape.toSpliced(dim, 1, parts, size / parts));
  const inner = dims.map((d) => d + 1);
  const kept = cut.type.shape.filter((_, d) => !inner.includes(d));
  const partial = newVar(tensorType(dtype, kept));
  if (op === "reduceSum") sumInParts(r, cut, inner, partial);
  else r.emit(op, [cut], [partial], { dims: inner });
  r.emit(op, [partial], [out], { dims: [dim] });
  return true;
}
