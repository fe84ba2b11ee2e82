/** Fits times as non-negative weighted sums of features. */
import { at, range } from "../../ir/shape.js";

/** A measured time, with the features it may depend on. */
export interface TimeSample {
  readonly features: readonly number[];
  readonly seconds: number;
}

/** Predicts the time in seconds from features. */
export type TimeModel = (features: readonly number[]) => number;

/** Maximum number of passes of coordinate descent. */
const rounds = 2000;

/**
 * Finds the non-negative weights that minimise the sum of squared relative errors of all samples, by coordinate
 * descent; without samples every predicted time is 0.
 */
export function fitTimes(samples: readonly TimeSample[]): TimeModel {
  const usable = samples.filter(({ seconds }) => seconds > 0);
  const width = usable[0]?.features.length ?? 0;
  const weights = range(width).map(() => 0);
  const rows = usable.map(({ features, seconds }) => features.map((feature) => feature / seconds));
  // Rows are divided by their time, so every prediction should be 1.
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
