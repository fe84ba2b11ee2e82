import type { Engine } from "../../ir/engine.js";
import type { GoldenCase } from "./cases.js";
import { Mismatch } from "./compare.js";

/** Computes what a case describes on an engine and throws a {@link Mismatch} where the result differs. */
export type AreaRunner = (golden: GoldenCase, engine: Engine) => Promise<void>;

/** Makes all comparisons of a case and then throws the one with the largest difference. */
export async function expectAll(...comparisons: readonly (() => Promise<void> | void)[]): Promise<void> {
  let worst: Mismatch | undefined;
  for (const compare of comparisons) {
    try {
      await compare();
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error;
      if (!worst || error.difference > worst.difference) worst = error;
    }
  }
  if (worst) throw worst;
}
