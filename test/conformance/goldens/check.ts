import type { Engine } from "../../../src/ir/engine.js";
import type { GoldenCase } from "./cases.js";
import { Mismatch } from "./compare.js";

/** Computes what a case describes on an engine and throws a {@link Mismatch} where the result differs. */
export type AreaRunner = (golden: GoldenCase, engine: Engine) => Promise<void>;

/**
 * A runner that chooses by how the names of cases begin: with a key of the table, after which the name ends or
 * goes on with `_` or a digit; of several keys the longest counts.
 */
export function byName(table: Readonly<Record<string, AreaRunner>>): AreaRunner {
  const keys = Object.keys(table).sort((a, b) => b.length - a.length);
  return async (golden, engine) => {
    const found = keys.find(
      (key) => golden.name.startsWith(key) && /^(_|\d|$)/.test(golden.name.slice(key.length)),
    );
    const run = found === undefined ? undefined : table[found];
    if (!run) throw new Mismatch(`the name of the case begins with none of ${keys.join(", ")}`);
    return run(golden, engine);
  };
}

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
