/** Byte pair encoding's inner loop: merging pairs of symbols by priority. */
import { at } from "../../../ir/shape.js";

/** What a pair of symbols merges to, and its priority: the lowest rank first. */
export interface Merge {
  readonly rank: number;
  readonly joined: number;
}

/** The merge of two adjacent symbols, if there is one. */
export type PairOf = (left: number, right: number) => Merge | undefined;

/** Merges the pair with the highest priority until no pair is left; changes `symbols`. */
export function mergePairs(symbols: number[], pairOf: PairOf): number[] {
  return symbols.length <= 32 ? mergeShort(symbols, pairOf) : mergeLong(symbols, pairOf);
}

function mergeShort(symbols: number[], pairOf: PairOf): number[] {
  for (;;) {
    let best = -1;
    let found: Merge | undefined;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const pair = pairOf(at(symbols, i), at(symbols, i + 1));
      if (pair && (!found || pair.rank < found.rank)) {
        found = pair;
        best = i;
      }
    }
    if (!found) return symbols;
    symbols.splice(best, 2, found.joined);
  }
}

/** The same with a heap, so that a text without spaces does not take quadratic time. */
function mergeLong(symbols: number[], pairOf: PairOf): number[] {
  const n = symbols.length;
  const next = Int32Array.from(symbols, (_, i) => (i + 1 < n ? i + 1 : -1));
  const previous = Int32Array.from(symbols, (_, i) => i - 1);
  // An entry is rank · n + position, so that the smallest has the highest priority and is then the leftmost.
  const heap: number[] = [];
  const pairAt = (i: number) => {
    const right = next[i] ?? -1;
    return right < 0 ? undefined : pairOf(at(symbols, i), at(symbols, right));
  };
  const push = (i: number) => {
    const pair = pairAt(i);
    if (pair) pushHeap(heap, pair.rank * n + i);
  };
  for (let i = 0; i < n; i++) push(i);
  for (let entry = popHeap(heap); entry !== undefined; entry = popHeap(heap)) {
    const i = entry % n;
    const pair = at(symbols, i) < 0 ? undefined : pairAt(i);
    if (!pair || pair.rank !== Math.floor(entry / n)) continue;
    const right = next[i] ?? -1;
    symbols[i] = pair.joined;
    symbols[right] = -1;
    const after = next[right] ?? -1;
    next[i] = after;
    if (after >= 0) previous[after] = i;
    push(i);
    const before = previous[i] ?? -1;
    if (before >= 0) push(before);
  }
  return symbols.filter((token) => token >= 0);
}

/** Pushes a number onto a binary min-heap. */
export function pushHeap(heap: number[], value: number): void {
  let i = heap.length;
  heap.push(value);
  while (i > 0) {
    const parent = (i - 1) >> 1;
    const above = at(heap, parent);
    if (above <= value) break;
    heap[i] = above;
    i = parent;
  }
  heap[i] = value;
}

/** Pops the smallest number of a binary min-heap. */
export function popHeap(heap: number[]): number | undefined {
  const top = heap[0];
  const last = heap.pop();
  if (top === undefined || last === undefined || heap.length === 0) return top;
  let i = 0;
  for (;;) {
    let child = 2 * i + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && at(heap, child + 1) < at(heap, child)) child++;
    if (at(heap, child) >= last) break;
    heap[i] = at(heap, child);
    i = child;
  }
  heap[i] = last;
  return top;
}
