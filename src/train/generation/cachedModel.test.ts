import { expect, test } from "vitest";
import { readNext, readText } from "../../../test/support/logits.js";
import { np, random } from "../../index.js";
import { range } from "../../ir/shape.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { CachedModel } from "./cachedModel.js";

const small: Omit<ModelConfig, "kind"> = {
  ...{ vocabSize: 40, width: 16, numLayers: 1, numHeads: 2, numKvHeads: 2, mlpWidth: 16 },
  ...{ tieEmbeddings: true, ropeBase: 10_000, normEpsilon: 1e-6, dtype: "float32", remat: "none" },
};
const token = (i: number) => (7 * i * i + 3 * i) % 40;

test.each([
  { ...small, kind: "mlstm" },
  { ...small, kind: "xlstm", decoder: { headSize: 8, keySize: 4 } },
] as const)(
  "a prompt that $kind reads in chunks leaves the state that its tokens leave",
  async (config) => {
    const params = LanguageModel(config).init(random.key(1), np.zeros([1, 2], "int32"));
    const open = () => new CachedModel(config, params, { slots: 2, maxLength: 200 });
    const [chunks, steps] = [open(), open()];
    const difference = (a: ArrayLike<number> = [], b: ArrayLike<number> = []) => {
      expect(a.length).toBe(config.vocabSize);
      return Math.max(...Array.from(a, (value, i) => Math.abs(value - (b[i] ?? Number.NaN))));
    };
    const stepwise = async (slot: number, tokens: readonly number[]) => {
      let logits: ArrayLike<number> = [];
      for (const one of tokens) logits = (await readNext(steps, new Map([[slot, one]])))[slot] ?? [];
      return logits;
    };
    // The other slot is in the middle of a text.
    expect(difference(await readText(chunks, 1, [5, 6, 7]), await stepwise(1, [5, 6, 7]))).toBeLessThan(1e-5);
    // The longer ones take two sizes of chunks, and padding.
    for (const length of config.kind === "mlstm" ? [1, 3, 130] : [1, 3, 21]) {
      const prompt = range(length).map(token);
      expect(difference(await readText(chunks, 0, prompt), await stepwise(0, prompt))).toBeLessThan(1e-5);
      const more = new Map([
        [0, 11],
        [1, length % 40],
      ]);
      const [a, b] = [await readNext(chunks, more), await readNext(steps, more)];
      for (const slot of [0, 1]) expect(difference(a[slot], b[slot])).toBeLessThan(1e-5);
      // The next prompt begins with an empty state, or goes on where this one ends.
      if (length !== 3) for (const model of [chunks, steps]) model.forget(0);
    }
    await Promise.all([chunks.close(), steps.close()]);
  },
  60_000,
);
