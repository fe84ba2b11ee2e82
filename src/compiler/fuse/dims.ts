import { zip } from "../../ir/collections.js";
import { sizeOf } from "../../ir/shape.js";

/**
 * One loop of a fusion group. Groups learn step by step how the dims of their tensors are related, so a loop can be
 * split in two (a tensor is reshaped) or unified with another one (groups merge).
 */
export class Dim {
  private parts: readonly [Dim, Dim] | undefined;
  private same: Dim | undefined;

  constructor(readonly size: number) {}

  /** The loop that this one was unified with. */
  private current(): Dim {
    if (this.same?.same) this.same = this.same.current();
    return this.same ?? this;
  }

  /** Appends the loops that this one currently consists of, outermost first. */
  addTo(loops: Dim[]): void {
    const dim = this.current();
    if (dim.parts) for (const part of dim.parts) part.addTo(loops);
    else loops.push(dim);
  }

  /** Splits an unsplit loop into an outer one and an inner one of the given size. */
  split(innerSize: number): readonly [Dim, Dim] {
    this.parts = [new Dim(this.size / innerSize), new Dim(innerSize)];
    return this.parts;
  }

  /** Unifies this loop with another one of the same size. */
  become(other: Dim): void {
    this.same = other;
  }
}

/** The loops that one tensor dim is made of, outermost first; none for size 1. */
export type DimList = readonly Dim[];

/** For every dim of a tensor its loops; undefined where any loops of the right size would do. */
export type IndexMap = readonly (DimList | undefined)[];

/** The current loops of a list. */
export function expand(list: DimList): Dim[] {
  const loops: Dim[] = [];
  for (const dim of list) dim.addTo(loops);
  return loops;
}

/** Fresh loops for a tensor of this shape. */
export function freshMap(shape: readonly number[]): DimList[] {
  return shape.map((n) => (n === 1 ? [] : [new Dim(n)]));
}

const listSize = (list: DimList): number => sizeOf(list.map((dim) => dim.size));

/**
 * Splits the loops of two lists of the same total size until they pair up one to one.
 *
 * @returns the pairs, innermost first, or undefined where the sizes do not divide
 */
export function align(a: DimList, b: DimList): (readonly [Dim, Dim])[] | undefined {
  const [left, right] = [expand(a), expand(b)];
  if (listSize(left) !== listSize(right)) return undefined;
  const pairs: (readonly [Dim, Dim])[] = [];
  for (;;) {
    const [x, y] = [left.pop(), right.pop()];
    if (!x || !y) return x || y ? undefined : pairs;
    if (x === y || x.size === y.size) {
      pairs.push([x, y]);
    } else if (x.size > y.size && x.size % y.size === 0) {
      const [outer, inner] = x.split(y.size);
      left.push(outer);
      pairs.push([inner, y]);
    } else if (y.size > x.size && y.size % x.size === 0) {
      const [outer, inner] = y.split(x.size);
      right.push(outer);
      pairs.push([x, inner]);
    } else {
      return undefined;
    }
  }
}

/** Whether two lists are the same loops in the same order. */
export function sameLoops(a: DimList, b: DimList): boolean {
  const left = expand(a);
  const right = expand(b);
  return left.length === right.length && left.every((dim, i) => dim === right[i]);
}

/**
 * Divides a list of loops among sizes, outermost first, splitting loops where a size ends inside one.
 *
 * @returns one list per size, or undefined where the sizes do not divide
 */
export function distribute(list: DimList, sizes: readonly number[]): DimList[] | undefined {
  const rest = expand(list);
  if (listSize(rest) !== sizeOf(sizes)) return undefined;
  const result: DimList[] = [];
  for (const size of [...sizes].reverse()) {
    const taken: Dim[] = [];
    let missing = size;
    while (missing > 1) {
      const dim = rest.pop();
      if (!dim) return undefined;
      if (missing % dim.size === 0) {
        taken.unshift(dim);
        missing /= dim.size;
      } else if (dim.size % missing === 0) {
        const [outer, inner] = dim.split(missing);
        rest.push(outer);
        taken.unshift(inner);
        missing = 1;
      } else {
        return undefined;
      }
    }
    result.unshift(taken);
  }
  return result;
}

/** Which loop of one group is which of another, from a value that both see. */
export function pairLoops(own: readonly DimList[], map: readonly DimList[]): Map<Dim, Dim> | undefined {
  const pairs = new Map<Dim, Dim>();
  for (const [list, other] of zip(own, map)) {
    const aligned = align(list, other);
    if (!aligned) return undefined;
    for (const [from, to] of aligned) pairs.set(from, to);
  }
  return pairs;
}
