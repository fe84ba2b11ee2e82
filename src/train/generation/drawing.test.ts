import { describe, expect, test } from "vitest";
import { createThreadsEngine } from "../../engines/index.js";
import { Mesh, np } from "../../index.js";
import { range } from "../../ir/shape.js";
import { Drawer } from "./drawing.js";
import type { Sampling } from "./sampling.js";

const plain: Sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 };
const drawer = new Drawer();
const numDraws = 4000;

/** Draws from the same logits again and again; the last token is padding. */
async function tokensOf(
  logits: readonly number[],
  changes: Partial<Sampling>,
  { seen = [], seed = 0, count = numDraws }: { seen?: readonly number[]; seed?: number; count?: number } = {},
): Promise<number[]> {
  const row = np.array([[...logits, 50]], "float32");
  const draws = range(count).map((index) => ({ sampling: { ...plain, ...changes }, seed, index, seen }));
  const drawn = drawer.draw(np.repeat(row, count, 0), logits.length, draws);
  return (await drawn.read()).map(({ token }) => token);
}

/** Expects tokens to be drawn as often as their weights say, within four standard deviations, and others never. */
async function expectShares(
  weights: readonly number[],
  changes: Partial<Sampling>,
  seen?: readonly number[],
): Promise<void> {
  const logits = [1, 3, 2, 4].map((weight) => Math.log(weight));
  const tokens = await tokensOf(logits, changes, seen && { seen });
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  for (const [token, weight] of weights.entries()) {
    const share = weight / total;
    const count = tokens.filter((drawn) => drawn === token).length;
    const spread = 4 * Math.sqrt(numDraws * share * (1 - share));
    expect(Math.abs(count - numDraws * share), `token ${token}: ${count}`).toBeLessThanOrEqual(spread);
  }
}

describe("a token", () => {
  test("is drawn as often as it is likely", async () => {
    await expectShares([1, 3, 2, 4], {});
    await expectShares([1, 9, 4, 16], { temperature: 0.5 });
    await expectShares([0, 0, 0, 1], { temperature: 0 });
    await expectShares([0, 0, 0, 1], { temperature: 1e-30 });
    await expectShares([1, 1, 1, 1], { temperature: Number.POSITIVE_INFINITY });
  });

  test("is drawn as often as it should among very many that are unlikely, but not together", async () => {
    const [share, rows, size] = [0.005, 50, 100_000];
    const logits = new Float32Array(size).fill(Math.log(share / (size - 1)));
    logits[0] = Math.log(1 - share);
    const row = np.array(logits).reshape([1, size]);
    const engine = createThreadsEngine({ numDevices: 1 });
    const onThreads = new Drawer(Mesh.create({ data: 1 }, { engine }));
    let count = 0;
    for (let step = 0; step < 50; step++) {
      const draws = range(rows).map((i) => ({ sampling: plain, seed: 1, index: rows * step + i, seen: [] }));
      const drawn = await onThreads.draw(np.repeat(row, rows, 0), size, draws).read();
      count += drawn.filter(({ token }) => token > 0).length;
    }
    await engine.close();
    // 12.5 within two and a half standard deviations.
    expect(count).toBeGreaterThanOrEqual(4);
    expect(count).toBeLessThanOrEqual(21);
  }, 60_000);

  test("is drawn from those that the limits leave", async () => {
    await expectShares([0, 3, 0, 4], { topK: 2 });
    await expectShares([1, 3, 2, 4], { topK: 99 });
    await expectShares([1, 3, 2, 4], { topK: 2 ** 32 + 1 });
    await expectShares([0, 9, 4, 16], { temperature: 0.5, topK: 3 });
    await expectShares([0, 0, 0, 1], { topP: 0.35 });
    await expectShares([0, 3, 0, 4], { topP: 0.6 });
    await expectShares([0, 3, 2, 4], { topP: 0.75 });
    await expectShares([1, 3, 2, 4], { topP: 0.95 });
    await expectShares([0, 3, 0, 4], { minP: 0.7 });
    // Of the three that topK leaves, the first two have 7/9.
    await expectShares([0, 3, 0, 4], { topK: 3, topP: 0.77 });
    await expectShares([0, 3, 2, 4], { topK: 3, topP: 0.79 });
  });

  test("that the text has already is less likely with a penalty", async () => {
    // log 4 / 2 = log 2.
    await expectShares([1, 3, 2, 2], { repetitionPenalty: 2 }, [3, 3]);
    expect(
      await tokensOf([-1, -1.5], { temperature: 0, repetitionPenalty: 2 }, { seen: [0], count: 1 }),
    ).toEqual([1]);
    // A token that only devices know counts, too.
    const draws = [
      { sampling: { ...plain, temperature: 0, repetitionPenalty: 2 }, seed: 0, index: 0, seen: [] },
    ];
    const drawn = drawer.draw(np.array([[3, 2, 9]]), 2, draws, np.array([[0]], "int32"));
    expect(await drawn.read()).toEqual([{ token: 1, logit: 2 }]);
  });

  test("is the same alone and beside rows that are drawn otherwise, and another with another seed", async () => {
    const logits = range(30).map((i) => Math.sin(i));
    const kinds: Partial<Sampling>[] = [
      { topP: 0.7 },
      { topK: 5 },
      { temperature: 0 },
      { minP: 0.4, temperature: 1.5 },
      { repetitionPenalty: 1.7 },
      {},
    ];
    const draws = kinds.map((own, i) => ({
      ...{ sampling: { ...plain, ...own }, seed: i === 5 ? -(2 ** 40) - 7 : 3, index: i, seen: [i, 2 * i] },
    }));
    const row = np.array([logits]);
    const together = await drawer.draw(np.repeat(row, 6, 0), 30, draws).read();
    for (const [i, draw] of draws.entries()) {
      expect(await drawer.draw(row, 30, [draw]).read(), `row ${i}`).toEqual([together[i]]);
    }
    const [a, b] = [await tokensOf(logits, {}, { seed: 1 }), await tokensOf(logits, {}, { seed: 2 })];
    expect(a).not.toEqual(b);
  });

  test("has a logit that is not finite if logits are not", async () => {
    for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY]) {
      for (const temperature of [0, 1]) {
        const draws = [{ sampling: { ...plain, temperature, topP: 0.5 }, seed: 0, index: 0, seen: [] }];
        const [drawn] = await drawer.draw(np.array([[1, wrong, 0, 0]]), 3, draws).read();
        expect(Number.isFinite(drawn?.logit)).toBe(false);
        expect([0, 1, 2]).toContain(drawn?.token);
      }
    }
  });
});
