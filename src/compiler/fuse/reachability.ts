/**
 * Afterwards, at any time, the sets contain every unit that a unit waits for, directly or indirectly, under the
 * name of the unit it has been merged into; there are no cycles.
 *
 * Unchanged by a link or a merge is everything that was recorded before: no dependency is forgotten.
 */

import { at } from "../../ir/shape.js";

/** Which units of a program wait for which, kept complete while units are merged. */
export class Reachability {
  private readonly sets: Uint32Array[] = [];
  private readonly merged: number[] = [];
  private words = 8;

  /** Adds a unit that depends on nothing yet. */
  add(): number {
    const unit = this.sets.length;
    if (unit >= this.words * 32) this.grow();
    this.sets.push(new Uint32Array(this.words));
    this.merged.push(unit);
    return unit;
  }

  private grow(): void {
    this.words *= 2;
    this.sets.forEach((set, i) => {
      const wider = new Uint32Array(this.words);
      wider.set(set);
      this.sets[i] = wider;
    });
  }

  /** The unit that a unit has become part of. */
  current(unit: number): number {
    const next = at(this.merged, unit);
    return next === unit ? unit : this.current(next);
  }

  /** Whether `unit` needs the results of `other`, directly or not. */
  depends(unit: number, other: number): boolean {
    return hasBit(at(this.sets, unit), other);
  }

  /** Records that `unit` reads results of `other`, which does not depend on `unit`. */
  depend(unit: number, other: number): void {
    if (unit === other) return;
    const dependencies = at(this.sets, unit);
    if (hasBit(dependencies, other)) return;
    const added = at(this.sets, other).slice();
    setBit(added, other);
    unite(dependencies, added);
    for (const set of this.sets) if (hasBit(set, unit)) unite(set, added);
  }

  /** Whether neither of two units waits for the other. */
  areIndependent(a: number, b: number): boolean {
    return !this.depends(a, b) && !this.depends(b, a);
  }

  /** Makes `other` part of `unit`. */
  merge(unit: number, other: number): void {
    const dependencies = at(this.sets, unit);
    unite(dependencies, at(this.sets, other));
    clearBit(dependencies, unit);
    clearBit(dependencies, other);
    this.merged[other] = unit;
    this.sets.forEach((set, u) => {
      if (u !== unit && u !== other && (hasBit(set, unit) || hasBit(set, other))) {
        unite(set, dependencies);
        setBit(set, unit);
        clearBit(set, other);
      }
    });
  }

  /** The given units in an order in which each comes after all it depends on; ties keep the order of creation. */
  order(units: readonly number[]): number[] {
    const done = new Set<number>();
    const result: number[] = [];
    const requested = new Set(units);
    const visit = (unit: number): void => {
      if (done.has(unit) || !requested.has(unit)) return;
      done.add(unit);
      const set = at(this.sets, unit);
      for (let w = 0; w < set.length; w++) {
        let bits = set[w] ?? 0;
        while (bits !== 0) {
          const low = bits & -bits;
          visit(this.current(w * 32 + (31 - Math.clz32(low))));
          bits ^= low;
        }
      }
      result.push(unit);
    };
    units.forEach(visit);
    return result;
  }
}

function hasBit(set: Uint32Array, bit: number): boolean {
  return (((set[bit >>> 5] ?? 0) >>> (bit & 31)) & 1) === 1;
}

function setBit(set: Uint32Array, bit: number): void {
  set[bit >>> 5] = (set[bit >>> 5] ?? 0) | (1 << (bit & 31));
}

function clearBit(set: Uint32Array, bit: number): void {
  set[bit >>> 5] = (set[bit >>> 5] ?? 0) & ~(1 << (bit & 31));
}

function unite(target: Uint32Array, source: Uint32Array): void {
  for (let i = 0; i < source.length; i++) target[i] = (target[i] ?? 0) | (source[i] ?? 0);
}
