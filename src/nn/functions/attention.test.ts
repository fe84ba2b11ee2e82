import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { expectNear } from "../../../test/support/near.js";
import { grad, jit, np, random, type Tensor, vmap } from "../../index.js";
import { at } from "../../ir/shape.js";
import * as nn from "../index.js";

interface Sizes {
  readonly batch: number;
  readonly length: number;
  readonly keyLength: number;
  readonly keyHeads: number;
  readonly groups: number;
  readonly headDim: number;
}

/** Which options a drawn case uses. */
interface Choice {
  readonly causal: boolean;
  readonly window: boolean;
  readonly bias: boolean;
  readonly mask: boolean;
  readonly segments: boolean;
  readonly positions: boolean;
  readonly softcap: boolean;
  readonly sinks: boolean;
}

const none: Choice = {
  causal: false,
  window: false,
  bias: false,
  mask: false,
  segments: false,
  positions: false,
  softcap: false,
  sinks: false,
};

const draw = (seed: number, shape: readonly number[]) => random.normal(random.key(seed), [...shape]);

function operands({ batch, length, keyLength, keyHeads, groups, headDim }: Sizes) {
  const keys = [batch, keyLength, keyHeads, headDim];
  return [draw(1, [batch, length, keyHeads * groups, headDim]), draw(2, keys), draw(3, keys)] as const;
}

function optionsOf({ batch, length, keyLength, keyHeads, groups }: Sizes, choice: Choice) {
  const heads = keyHeads * groups;
  const integers = (seed: number, n: number, below: number) =>
    random.randint(random.key(seed), [batch, n], 0, below);
  return {
    causal: choice.causal,
    ...(choice.window && { window: [2, 1] as const }),
    ...(choice.bias && { bias: draw(4, [1, heads, length, keyLength]) }),
    ...(choice.mask && { mask: np.greater(draw(5, [batch, 1, length, keyLength]), -0.5) }),
    ...(choice.segments && {
      segmentIds: { query: integers(6, length, 2), key: integers(7, keyLength, 2) },
    }),
    ...(choice.positions && {
      positions: { query: integers(8, length, 5), key: integers(9, keyLength, 5) },
    }),
    ...(choice.softcap && { softcap: 1.5 }),
    ...(choice.sinks && { sinks: draw(10, [heads]) }),
  };
}

/** The same with all scores at once. */
function plainly([q, k, v]: readonly [Tensor, Tensor, Tensor], options: nn.AttentionCallOptions) {
  const [, length = 0, heads = 0, headDim = 1] = q.shape;
  const [, keyLength = 0, keyHeads = 1] = k.shape;
  const all = (x: Tensor) => np.repeat(x, heads / keyHeads, 2);
  let scores = np.einsum("bthd,bshd->bhts", q, all(k)).mul(1 / Math.sqrt(headDim));
  if (options.softcap) scores = np.tanh(scores.div(options.softcap)).mul(options.softcap);
  if (options.bias) scores = scores.add(options.bias);
  const pair = (x: nn.QueryKey | undefined, otherwise: readonly [Tensor, Tensor]) =>
    x && !("shape" in x) ? ([x.query, x.key] as const) : otherwise;
  const indices = [np.arange(length).reshape([1, -1]), np.arange(keyLength).reshape([1, -1])] as const;
  const [rows, columns] = pair(options.positions, indices);
  const distance = np.subtract(np.expandDims(rows, -1), np.expandDims(columns, -2));
  const hide = (isSeen: Tensor) => {
    scores = np.where(isSeen, scores, Number.NEGATIVE_INFINITY);
  };
  if (options.causal) hide(np.expandDims(np.greaterEqual(distance, 0), 1));
  if (options.window) {
    hide(np.expandDims(np.logicalAnd(np.lessEqual(distance, 2), np.greaterEqual(distance, -1)), 1));
  }
  if (options.segmentIds) {
    const [a, b] = pair(options.segmentIds, indices);
    hide(np.expandDims(np.equal(np.expandDims(a, -1), np.expandDims(b, -2)), 1));
  }
  if (options.mask) hide(options.mask);
  const sinks = options.sinks ? np.exp(options.sinks).reshape([1, heads, 1, 1]) : 0;
  const exps = np.exp(scores);
  const sum = np.sum(exps, -1, { keepdims: true }).add(sinks);
  const weights = np.where(np.greater(sum, 0), np.divide(exps, np.where(np.greater(sum, 0), sum, 1)), 0);
  const output = np.einsum("bhts,bshd->bthd", weights, all(v));
  return { output, logSumExp: np.transpose(np.squeeze(np.log(sum), -1), [0, 2, 1]) };
}

const sizes = fc.record({
  batch: fc.integer({ min: 1, max: 2 }),
  length: fc.integer({ min: 1, max: 7 }),
  keyLength: fc.integer({ min: 1, max: 9 }),
  keyHeads: fc.integer({ min: 1, max: 2 }),
  groups: fc.integer({ min: 1, max: 3 }),
  headDim: fc.integer({ min: 1, max: 5 }),
});
const flag = fc.boolean();
const choices = fc.record<Choice>({
  causal: flag,
  window: flag,
  bias: flag,
  mask: flag,
  segments: flag,
  positions: flag,
  softcap: flag,
  sinks: flag,
});

describe("attention", () => {
  test("gives what all scores at once give, for any lengths, heads and options", async () => {
    await fc.assert(
      fc.asyncProperty(sizes, choices, async (size, choice) => {
        const [args, options] = [operands(size), optionsOf(size, choice)];
        const [got, want] = [nn.attention(...args, options), plainly(args, options)];
        expectNear(await got.output.data(), await want.output.data(), 1e-5, "the output");
        expectNear(await got.logSumExp.data(), await want.logSumExp.data(), 1e-5, "the log-sum-exp");
      }),
      { numRuns: 40, seed: 7 },
    );
  }, 60_000);

  test("gives a query that sees no key 0, −∞ and no gradient", async () => {
    const [q, k, v] = operands({ batch: 1, length: 2, keyLength: 3, keyHeads: 1, groups: 1, headDim: 2 });
    const mask = np
      .array([
        [false, false, false],
        [true, false, true],
      ])
      .reshape([1, 1, 2, 3]);
    const { output, logSumExp } = nn.attention(q, k, v, { mask });
    expect((await output.data()).slice(0, 2)).toEqual(new Float32Array([0, 0]));
    expect((await logSumExp.data())[0]).toBe(Number.NEGATIVE_INFINITY);
    const loss = (x: Tensor) => np.sum(nn.attention(x, x, x, { window: [0, null], mask: nothing }).output);
    const nothing = np.zeros([1, 1, 2, 2], "bool");
    expect(Array.from(await grad(loss)(q).data())).toEqual([0, 0, 0, 0]);
  });

  test("takes no queries", async () => {
    const [q, k] = [np.zeros([2, 0, 2, 4]), draw(1, [2, 5, 1, 4])];
    const { output, logSumExp } = nn.attention(q, k, k, {});
    expect([output.shape, logSumExp.shape]).toEqual([
      [2, 0, 2, 4],
      [2, 0, 2],
    ]);
    const gradient = grad((x: Tensor) => np.sum(nn.attention(q, x, x, { causal: true }).output))(k);
    expect(Array.from(await gradient.data())).toEqual(new Array(40).fill(0));
  });

  test("takes one token, and tokens without a batch", async () => {
    const x = draw(1, [1, 2, 4]);
    const { output, logSumExp } = nn.attention(x, x, x, { causal: true });
    expectNear(await output.data(), await x.data(), 1e-6);
    expect([output.shape, logSumExp.shape]).toEqual([
      [1, 2, 4],
      [1, 2],
    ]);
  });

  test("spreads NaN of a token to the queries that see it, and to no other sequence or head", async () => {
    const size = { batch: 2, length: 4, keyLength: 4, keyHeads: 2, groups: 1, headDim: 2 };
    const [q, k, v] = operands(size);
    const isOne = np.zeros([2, 4, 2, 2], "bool").at(0, 2, 1).set(true);
    const { output } = nn.attention(q, np.where(isOne, Number.NaN, k), v, { causal: true });
    const found = await np.any(np.isnan(output), -1).data();
    const seeing = Array.from({ length: 16 }, (_, i) => [5, 7].includes(i));
    expect(Array.from(found, Boolean)).toEqual(seeing);
  });

  test("merges results over parts of the keys by their log-sum-exps, with gradients", async () => {
    const [q, k, v] = operands({ batch: 1, length: 3, keyLength: 6, keyHeads: 1, groups: 2, headDim: 4 });
    const merged = (k: Tensor) => {
      const parts = [0, 3].map((start) => {
        const part = (x: Tensor) => x.get(":", np.s(start, start + 3));
        return nn.attention(q, part(k), part(v));
      });
      const sums = np.stack(parts.map(({ logSumExp }) => logSumExp));
      const weights = np.expandDims(nn.softmax(sums, 0), -1);
      return np.sum(weights.mul(np.stack(parts.map(({ output }) => output))), 0);
    };
    const whole = (k: Tensor) => nn.attention(q, k, v).output;
    expectNear(await merged(k).data(), await whole(k).data(), 1e-5);
    const gradient = (fn: (k: Tensor) => Tensor) => grad((k: Tensor) => np.sum(np.square(fn(k))))(k);
    expectNear(await gradient(merged).data(), await gradient(whole).data(), 1e-5);
  });

  test("drops weights by key, batch element, head and positions", async () => {
    const [q, k] = operands({ batch: 2, length: 5, keyLength: 64, keyHeads: 1, groups: 2, headDim: 4 });
    const ones = np.ones([2, 64, 1, 4]);
    const options = { dropoutRate: 0.25, dropoutKey: random.key(3), scale: 0 };
    const kept = nn.attention(q, k, ones, options).output;
    const shares = await kept.data();
    // 64 weights of 1 / 64, a quarter of which is dropped while the others grow by 4 / 3.
    for (const share of shares) expect((share * 64 * 3) / 4).toBeCloseTo(Math.round((share * 64 * 3) / 4), 4);
    expect(new Set(shares).size).toBeGreaterThan(4);
    const mean = Number(
      await np
        .mean(kept)
        .data()
        .then(([x]) => x),
    );
    expect(Math.abs(mean - 1)).toBeLessThan(0.1);
    const again = await jit(() => nn.attention(q, k, ones, options).output)().data();
    expectNear(again, shares, 1e-6);
    expect(await np.allclose(nn.attention(q, k, ones, { scale: 0 }).output, 1).data()).toEqual(
      new Uint8Array([1]),
    );
  });

  test("says which heads, windows, masks and rates do not fit", () => {
    const [q, k, v] = operands({ batch: 1, length: 2, keyLength: 2, keyHeads: 2, groups: 1, headDim: 2 });
    const threeHeads = draw(1, [1, 2, 3, 2]);
    const call = (options: nn.AttentionCallOptions) => () => nn.attention(q, k, v, options);
    expect(() => nn.attention(threeHeads, k, v)).toThrow(
      "3 query heads cannot share 2 key heads (3 / 2 = 1.5)",
    );
    expect(call({ window: -2 })).toThrow(
      "window must be an integer of at least 0, or [before, after] of such integers or null, got -2",
    );
    expect(call({ mask: np.ones([1, 1, 2, 2]) })).toThrow("the mask must be bool");
    expect(call({ bias: np.ones([1, 3, 2, 2]) })).toThrow("bias must be float [1,2,2,2] (sizes may be 1)");
    expect(call({ dropoutRate: 0.5 })).toThrow("dropoutRate needs a dropoutKey");
    expect(call({ softcap: -1 })).toThrow("softcap must be positive");
  });

  test("is mapped over sequences like a loop", async () => {
    const [q, k, v] = operands({ batch: 3, length: 2, keyLength: 4, keyHeads: 1, groups: 1, headDim: 2 });
    const one = (q: Tensor, k: Tensor, v: Tensor) => nn.attention(q, k, v, { causal: true }).output;
    expectNear(await vmap(one)(q, k, v).data(), await one(q, k, v).data(), 1e-6);
  });

  test.each(["positions", "segments"])("leaves out blocks of keys that nobody sees by %s", async (by) => {
    const [q, k, v] = operands({
      batch: 1,
      length: 300,
      // So many keys are a loop over blocks on every engine.
      keyLength: 2100,
      keyHeads: 1,
      groups: 1,
      headDim: 4,
    });
    const [query, key] = [np.arange(300).add(100), np.arange(2100)];
    const of = (indices: Tensor) => np.floorDivide(indices, 200).reshape([1, -1]).astype("int32");
    const rows = (indices: Tensor) => indices.reshape([1, -1]).astype("int32");
    const options = (keys: Tensor) =>
      by === "positions"
        ? { causal: true, positions: { query: rows(query), key: rows(keys) } }
        : { segmentIds: { query: of(query), key: of(keys) } };
    // Their values would reach the result through weights of 0.
    const bad = np.where(np.less(key, 900).reshape([1, -1, 1, 1]), v, Number.NaN);
    const first = (x: Tensor) => x.get(":", np.s(0, 900));
    const got = jit((a: Tensor, b: Tensor, c: Tensor) => nn.attention(a, b, c, options(key)))(q, k, bad);
    const want = nn.attention(q, first(k), first(v), options(np.arange(900)));
    expectNear(await got.output.data(), await want.output.data(), 1e-5);
    expectNear(await got.logSumExp.data(), await want.logSumExp.data(), 1e-5);
  });

  test.each([
    ["tiles", { length: 130, keyLength: 150, keyHeads: 2, groups: 1, headDim: 8 }, { causal: true }],
    ["shared key heads", { length: 129, keyLength: 129, keyHeads: 2, groups: 2, headDim: 4 }, { bias: true }],
    [
      "windows",
      { length: 200, keyLength: 190, keyHeads: 1, groups: 1, headDim: 4 },
      { window: true, mask: true },
    ],
    [
      "sinks",
      { length: 140, keyLength: 140, keyHeads: 1, groups: 2, headDim: 4 },
      { causal: true, sinks: true },
    ],
    [
      "loops",
      { batch: 1, length: 1030, keyLength: 1030, keyHeads: 1, groups: 1, headDim: 4 },
      { causal: true },
    ],
    [
      "segments",
      { length: 120, keyLength: 90, keyHeads: 1, groups: 1, headDim: 4 },
      { segments: true, softcap: true },
    ],
  ] as const)(
    "gives the same in %s of long sequences, with the same gradients",
    async (_, sizes, chosen) => {
      const size = { batch: 2, ...sizes };
      const args = operands(size);
      const options = optionsOf(size, { ...none, ...chosen });
      const weights = draw(11, [size.batch, size.length, size.keyHeads * size.groups, size.headDim]);
      const gradients = (fn: typeof plainly) =>
        jit(
          grad((q: Tensor, k: Tensor, v: Tensor) => np.sum(fn([q, k, v], options).output.mul(weights)), {
            argnums: [0, 1, 2],
          }),
        )(...args);
      const [got, want] = [gradients((all, given) => nn.attention(...all, given)), gradients(plainly)];
      for (const [i, name] of ["query", "key", "value"].entries()) {
        expectNear(await at(got, i).data(), await at(want, i).data(), 2e-4, `the gradient of the ${name}`);
      }
    },
    60_000,
  );
});
