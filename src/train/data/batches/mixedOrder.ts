/** The order of several sources in a mixture. */
import { at } from "../../../ir/shape.js";

/**
 * Which source has a place of a mixture: the one that is furthest behind its share. The first n places have n times a
 * source's share of it, to within one place.
 */
export class MixedOrder {
  readonly shares: readonly number[];
  /** The next place to be decided, and how many places each source has before it. */
  private place = 0;
  private counts: number[];

  constructor(shares: readonly number[]) {
    this.shares = shares;
    this.counts = shares.map(() => 0);
  }

  get isMixed(): boolean {
    return this.shares.length > 1;
  }

  /** The source of a place, and how many of its own places come before. */
  at(place: number): { readonly source: number; readonly ordinal: number } {
    if (!this.isMixed) return { source: 0, ordinal: place };
    this.goTo(place);
    const source = this.nextSource();
    return { source, ordinal: at(this.counts, source) };
  }

  /** How many places a source has before one. */
  countBefore(place: number, source: number): number {
    if (!this.isMixed) return place;
    this.goTo(place);
    return at(this.counts, source);
  }

  private nextSource(): number {
    const behind = this.shares.map((share, i) => share * (this.place + 1) - at(this.counts, i));
    return behind.reduce((best, value, i) => (value > at(behind, best) + 1e-9 ? i : best), 0);
  }

  private goTo(place: number): void {
    if (place < this.place) {
      this.place = 0;
      this.counts = this.shares.map(() => 0);
    }
    for (; this.place < place; this.place++) {
      const source = this.nextSource();
      this.counts[source] = at(this.counts, source) + 1;
    }
  }
}
