import fc from "fast-check";
import { type Logger, setLogger } from "../../src/parallel/index.js";
import * as random from "../../src/random/index.js";
import type { Tensor } from "../../src/trace/tensor.js";

/** Normal numbers of a seed. */
export function normal(seed: number, ...shape: readonly number[]): Tensor {
  return random.normal(random.key(seed), shape);
}

/** Runs a property on a few random inputs, the same in every run. */
export async function forAll<T extends Record<string, unknown>>(
  arbitraries: { [K in keyof T]: fc.Arbitrary<T[K]> },
  property: (input: T) => Promise<void>,
  numRuns = 8,
): Promise<void> {
  await fc.assert(fc.asyncProperty(fc.record(arbitraries) as fc.Arbitrary<T>, property), {
    numRuns,
    seed: 7,
  });
}

/** The messages that a function causes. */
export async function messagesOf(
  fn: () => unknown,
): Promise<{ readonly infos: readonly string[]; readonly warnings: readonly string[] }> {
  const infos: string[] = [];
  const warnings: string[] = [];
  const collect: Logger = { info: (text) => infos.push(text), warn: (text) => warnings.push(text) };
  const before = setLogger(collect);
  try {
    await fn();
  } finally {
    setLogger(before);
  }
  return { infos, warnings };
}
