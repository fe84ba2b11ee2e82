import { describe, expect, test } from "vitest";
import {
  type BatchesOptions,
  openBatches,
  packDocuments,
  type RowSource,
  tokensInMemory,
} from "../../index.js";
import { endedBy, tokenMarks, tokenRange } from "../tokens/tokens.js";
import { cutRows, packLengths, pairRows } from "./rows.js";

/** Documents of given lengths; every token is its document times 100 plus its position. */
function documents(lengths: readonly number[], unscored: (position: number) => boolean = () => false) {
  const tokens = lengths.flatMap((n, d) => Array.from({ length: n }, (_, i) => d * 100 + i));
  const marks = lengths.flatMap((n) =>
    Array.from(
      { length: n },
      (_, i) => (i === 0 ? tokenMarks.start : 0) | (unscored(i) ? tokenMarks.unscored : 0),
    ),
  );
  return tokensInMemory(Int32Array.from(tokens), 10_000, Uint8Array.from(marks));
}

const plain = (row: Awaited<ReturnType<RowSource["read"]>>) => ({
  tokens: [...row.tokens],
  segmentIds: [...(row.documents?.segmentIds ?? [])],
  positions: [...(row.documents?.positions ?? [])],
  lossMask: [...(row.documents?.lossMask ?? [])],
});

describe("rows", () => {
  test("that are cut from a stream know where documents begin", async () => {
    const rows = cutRows(
      documents([3, 4, 2], (i) => i === 1),
      4,
      true,
    );
    expect(rows.numRows).toBe(2);
    expect(plain(await rows.read(0))).toEqual({
      tokens: [0, 1, 2, 100, 101],
      segmentIds: [1, 1, 1, 2],
      positions: [0, 1, 2, 0],
      lossMask: [0, 1, 0, 0],
    });
    expect(plain(await rows.read(1))).toEqual({
      tokens: [101, 102, 103, 200, 201],
      segmentIds: [1, 1, 1, 2],
      positions: [0, 1, 2, 0],
      lossMask: [1, 1, 0, 0],
    });
  });

  test("of whole documents are padded, and documents that are too long are cut off", async () => {
    const rows = await packDocuments(documents([3, 9, 2]), 5);
    expect(rows.numRows).toBe(2);
    expect(plain(await rows.read(0))).toEqual({
      tokens: [0, 1, 2, 200, 201, 0],
      segmentIds: [1, 1, 1, 2, 2],
      positions: [0, 1, 2, 0, 1],
      lossMask: [1, 1, 0, 1, 0],
    });
    expect(plain(await rows.read(1))).toEqual({
      tokens: [100, 101, 102, 103, 104, 105],
      segmentIds: [1, 1, 1, 1, 1],
      positions: [0, 1, 2, 3, 4],
      lossMask: [1, 1, 1, 1, 1],
    });
  });

  test("hold every document once and little padding", () => {
    const lengths = Array.from({ length: 5000 }, (_, i) => 1 + ((i * 7919) % 97));
    const rows = packLengths(lengths, 128);
    expect(rows.flat().sort((a, b) => a - b)).toEqual(lengths.map((_, i) => i));
    for (const row of rows)
      expect(row.reduce((sum, i) => sum + (lengths[i] ?? 0), 0)).toBeLessThanOrEqual(128);
    const used = lengths.reduce((sum, n) => sum + n, 0) / (rows.length * 128);
    expect(used).toBeGreaterThan(0.97);
  });

  test("of pairs stay together in any order", async () => {
    const rows = await pairRows(documents([2, 3, 4, 1, 2, 2]), 4);
    const batches = openBatches(rows, { sequenceLength: 4, batchSize: 2, seed: 3 });
    const seen: number[] = [];
    for (let i = 0; i < 6; i++) {
      const { inputs } = await batches.next();
      const [first = 0, second = 0] = [inputs[0], inputs[4]];
      expect(first % 200).toBe(0);
      expect(second).toBe(first + 100);
      seen.push(first);
    }
    expect(seen.slice(0, 3).sort()).toEqual([0, 200, 400]);
    const options = { sequenceLength: 4, batchSize: 2, numRanks: 2 };
    expect(() => openBatches(rows, options)).toThrow("parts groups of 2: use a multiple of 4");
    await expect(pairRows(documents([2, 3, 4]), 4)).rejects.toThrow("which are not pairs");
  });

  test("of a source without marks are one document, or end with a token", async () => {
    const source = tokensInMemory(Int32Array.of(5, 6, 9, 7, 9, 9, 8), 10);
    const [one, three] = [await packDocuments(source, 9), await packDocuments(endedBy(source, 9), 9)];
    expect((await one.read(0)).documents?.segmentIds.slice(0, 7)).toEqual(Int32Array.of(1, 1, 1, 1, 1, 1, 1));
    expect((await three.read(0)).documents?.segmentIds.slice(0, 7)).toEqual(
      Int32Array.of(1, 1, 1, 2, 2, 3, 4),
    );
    const part = endedBy(source, 9).readMarks?.(3, 4);
    expect(await part).toEqual(Uint8Array.of(1, 0, 1, 1));
    const range = tokenRange(endedBy(source, 9), 2, 6);
    expect(await range.readMarks?.(1, 3)).toEqual(Uint8Array.of(1, 0, 1));
  });
});

describe("mixtures", () => {
  const sources = [
    documents(Array.from({ length: 40 }, () => 6)),
    tokensInMemory(
      Int32Array.from({ length: 60 }, () => 7777),
      10_000,
    ),
  ];
  const options = { sequenceLength: 5, weights: [3, 1], seed: 5, separate: true } as const;

  test("have the shares of their weights in any run of rows, and go through each source in turn", async () => {
    const batches = openBatches(sources, { ...options, batchSize: 8 });
    const firsts: number[] = [];
    for (let i = 0; i < 12; i++) {
      const { inputs } = await batches.next();
      const rows = Array.from({ length: 8 }, (_, r) => inputs[r * 5] ?? 0);
      expect(rows.filter((token) => token === 7777)).toHaveLength(2);
      firsts.push(...rows.filter((token) => token !== 7777));
    }
    // One pass over the first source is 47 rows of 5 tokens.
    expect(new Set(firsts.slice(0, 47)).size).toBe(47);
  });

  test.each([
    ["texts", sources],
    ["whole documents", undefined],
  ] as const)(
    "of %s continue in the middle of an epoch on another number of ranks with the same batches",
    async (_, given) => {
      const mixed = given ?? [
        await packDocuments(documents([2, 3, 4, 2, 1, 5, 2, 2, 3, 1]), 5),
        ...sources.slice(1),
      ];
      const read = async (
        numRanks: number,
        batchSize: number,
        from: BatchesOptions["position"] | null,
        count: number,
      ) => {
        const ranks = Array.from({ length: numRanks }, (_, rank) =>
          openBatches(mixed, { ...options, batchSize, rank, numRanks, ...(from && { position: from }) }),
        );
        const rows: string[] = [];
        for (let i = 0; i < count; i++) {
          for (const batches of ranks) {
            const { inputs, targets, documents: own, shape } = await batches.next();
            for (let r = 0; r < shape[0]; r++) {
              const part = (x: ArrayLike<number> = []) => Array.from(x).slice(r * 5, r * 5 + 5);
              rows.push(
                JSON.stringify(
                  [inputs, targets, own?.segmentIds, own?.positions, own?.lossMask].map((x) => part(x)),
                ),
              );
            }
          }
        }
        return { rows, position: ranks[0]?.position() ?? null };
      };
      const whole = await read(1, 4, null, 12);
      const first = await read(1, 4, null, 3);
      const second = await read(2, 4, first.position, 4);
      const third = await read(4, 8, second.position, 1);
      const fourth = await read(1, 2, third.position, 6);
      expect([...first.rows, ...second.rows, ...third.rows, ...fourth.rows]).toEqual(whole.rows);
      const changed = { ...options, weights: [1, 1], batchSize: 4, position: first.position };
      expect(() => openBatches(mixed, changed)).toThrow("the position belongs to another stream");
    },
  );

  test("need a positive weight for every source", () => {
    for (const weights of [[1], [1, 0], [1, -1], [1, Number.NaN]]) {
      expect(() => openBatches(sources, { ...options, batchSize: 4, weights })).toThrow(
        "weights must be 2 positive numbers",
      );
    }
    expect(() => openBatches([], { ...options, batchSize: 4 })).toThrow("there are no sources");
  });
});
