import { describe, expect, test } from "vitest";
import {
  type AttentionArgument,
  type AttentionKernel,
  argumentBytes,
  attentionScratchBytes,
  attentionUnits,
  backwardScratch,
  forwardScratch,
  type HeadStrides,
  packedFeatures,
} from "./attentionKernel.js";

const forward: readonly AttentionArgument[] = ["query", "key", "value", "mixed", "logSums"];
const backward: readonly AttentionArgument[] = [
  ...(["query", "key", "value", "logSums", "mixedCotangent", "mixed", "logSumsCotangent"] as const),
  ...(["queryCotangent", "keyCotangent", "valueCotangent"] as const),
];

/** Rows with gaps behind them, and batch elements with larger ones. */
const rows = (length: number, heads: number, headSize: number): HeadStrides => ({
  batch: 4 * (length * heads * headSize + 100),
  row: 4 * (heads * headSize + 7),
  head: 4 * headSize,
});

function kernelOf(args: readonly AttentionArgument[]): AttentionKernel {
  const [queries, keys] = [rows(500, 6, 20), rows(300, 2, 20)];
  return {
    ...{ kind: "attention", batch: 3, length: 500, heads: 6, keyLength: 300, keyHeads: 2, headSize: 20 },
    ...{ scale: 1, before: -1, ahead: -1, args },
    strides: {
      ...{ query: queries, mixed: queries, mixedCotangent: queries, queryCotangent: queries },
      ...{ key: keys, value: keys, keyCotangent: keys, valueCotangent: keys },
    },
    tile: { lanes: 16, rows: 14, columns: 32 },
  };
}

describe("an attention kernel", () => {
  test("touches an argument from its first to its last number", () => {
    const bytes = (name: AttentionArgument) => argumentBytes(kernelOf(backward), backward.indexOf(name));
    const query = 4 * (2 * (500 * 120 + 100) + 499 * 127 + 5 * 20 + 20);
    const key = 4 * (2 * (300 * 40 + 100) + 299 * 47 + 20 + 20);
    const sums = 4 * 3 * 6 * 500;
    expect(backward.map(bytes)).toEqual([
      ...[query, key, key, sums, query, query, sums],
      ...[query, key, key],
    ]);
    const { strides: _, ...rest } = kernelOf(forward);
    expect(argumentBytes({ ...rest, strides: {} }, 0)).toBe(0);
  });

  test("is shared as blocks of queries of every head, its cotangents as heads of keys", () => {
    expect(attentionUnits(kernelOf(forward))).toBe(3 * 6 * 3);
    expect(attentionUnits({ ...kernelOf(forward), length: 448 })).toBe(3 * 6 * 2);
    expect(attentionUnits(kernelOf(backward))).toBe(3 * 2);
  });

  test("packs features as whole vectors", () => {
    const features = [1, 16, 17, 64].map((headSize) => packedFeatures({ ...kernelOf(forward), headSize }));
    expect(features).toEqual([16, 16, 32, 64]);
  });

  test("has parts of scratch memory one behind the other, on lines of the cache", () => {
    for (const args of [forward, backward]) {
      const kernel = kernelOf(args);
      const { at, bytes } = args === forward ? forwardScratch(kernel) : backwardScratch(kernel);
      const starts = Object.values(at);
      expect(starts[0]).toBe(0);
      expect([...starts, bytes].every((place, i) => place % 64 === 0 && place > (starts[i - 1] ?? -1))).toBe(
        true,
      );
      expect(attentionScratchBytes(kernel)).toBe(bytes);
    }
    // Queries and strips of the forward pass: 224 and 14; of 20 features, in rows of 32.
    const row = 4 * 32;
    expect(attentionScratchBytes(kernelOf(forward))).toBe(
      237 * row + 224 * row + 224 * 80 + 224 * row + 14 * 1024 + 32 * row + 224 * 68,
    );
    const values = Math.ceil((4 * (3 * 500 + 14)) / 64) * 64;
    expect(attentionScratchBytes(kernelOf(backward))).toBe(
      2 * 125 * row + 2 * 224 * 80 + 224 * row + 2 * 112 * 1024 + 32 * row + 2 * 224 * row + 2 * values,
    );
  });
});
