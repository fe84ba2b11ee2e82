/** Times as sums of what they grow with, none of which can be negative. */
import { at, range } from "../../ir/shape.js";

/** What a time may grow with, and the time. */
export interface TimeSample {
  readonly features: readonly number[];
  readonly seconds: number;
}

/** The time that features suggest. */
export type Fit = (features: readonly number[]) => number;

/** How often every weight is improved. */
const rounds = 2000;

/**
 * The weights from 0 up for which the relative errors of all samples are least, by improving one weight after the
 * other; without samples everything takes no time.
 */
export function fitTimes(samples: readonly TimeSample[]): Fit {
  const usable = samples.filter(({ seconds }) => seconds > 0);
  const width = usable[0]?.features.length ?? 0;
  const weights = range(width).map(() => 0);
  const rows = usable.map(({ features, seconds }) => features.map((feature) => feature / seconds));
  // With relative errors, every row should give 1.
  const errors = rows.map(() => -1);
  const squares = weights.map((_, i) => rows.reduce((sum, row) => sum + at(row, i) ** 2, 0));
  for (let round = 0; round < rounds; round++) {
    let moved = 0;
    for (const i of range(width)) {
      if (at(squares, i) === 0) continue;
      const slope = rows.reduce((sum, row, r) => sum + at(row, i) * at(errors, r), 0);
      const next = Math.max(0, at(weights, i) - slope / at(squares, i));
      const step = next - at(weights, i);
      if (step === 0) continue;
      weights[i] = next;
      rows.forEach((row, r) => {
        errors[r] = at(errors, r) + at(row, i) * step;
      });
      moved = Math.max(moved, Math.abs(step) * Math.sqrt(at(squares, i)));
    }
    if (moved < 1e-9) break;
  }
  return (features) => weights.reduce((sum, weight, i) => sum + weight * (features[i] ?? 0), 0);
}
