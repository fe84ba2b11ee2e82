/** A source of random choices that is the same for the same seed. */
export class Draw {
  private state: number;

  constructor(seed: number) {
    this.state = Math.imul(seed + 1, 0x9e3779b9) | 0;
  }

  /** A number from 0 up to 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** An integer from `low` up to, not including, `high`. */
  int(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    const item = list[this.int(0, list.length)];
    if (item === undefined) throw new Error("there is nothing to pick from");
    return item;
  }

  /** The size of a dim. */
  size(): number {
    return this.int(1, 5);
  }

  /** A shape with at least `minRank` dims. */
  shape(minRank = 1): number[] {
    return Array.from({ length: this.int(minRank, 4) }, () => this.int(2, 5));
  }

  /** A dim of a tensor, counted from either end. */
  dim(rank: number): number {
    return this.int(-rank, rank);
  }

  /** Dims to reduce: one, several or all. */
  dims(rank: number): number | number[] | null {
    if (this.chance(0.2)) return null;
    if (this.chance(0.5)) return this.dim(rank);
    const some = Array.from({ length: rank }, (_, d) => d).filter(() => this.chance(0.5));
    return some.length === 0 ? [0] : some;
  }

  permutation(n: number): number[] {
    const list = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = this.int(0, i + 1);
      [list[i], list[j]] = [list[j] ?? 0, list[i] ?? 0];
    }
    return list;
  }
}
