import { describe, expect, test } from "vitest";
import { expectNear } from "../../../test/support/near.js";
import { np, random, type Tensor } from "../../index.js";
import { type ModelConfig, modelViolations } from "./config.js";
import { countedTokens, LanguageModel, tokenPositions } from "./languageModel.js";
import { crossEntropy } from "./loss.js";

const config: ModelConfig = {
  kind: "llama",
  vocabSize: 11,
  width: 16,
  numLayers: 2,
  numHeads: 4,
  numKvHeads: 2,
  mlpWidth: 24,
  tieEmbeddings: false,
  ropeBase: 10_000,
  normEpsilon: 1e-6,
  dtype: "float32",
  remat: "none",
  documentEnd: 0,
};

const row = (...tokens: readonly number[]) => np.array([[...tokens]], "int32");

describe("packed documents", () => {
  test("have positions that begin again after the end of the one before", async () => {
    const tokens = np.array(
      [
        [5, 3, 0, 7, 0, 0, 2],
        [0, 1, 2, 3, 4, 5, 6],
      ],
      "int32",
    );
    const positions = await tokenPositions(config, tokens).data();
    expect(Array.from(positions)).toEqual([0, 1, 2, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
  });

  test("do not see each other: each has the logits that it has alone", async () => {
    const model = LanguageModel(config);
    const documents = [row(5, 3, 9, 0), row(7, 0), row(1, 2, 3, 4, 0)];
    const packed = np.concatenate(documents, 1);
    const variables = model.init(random.key(0), packed);
    const together = model.apply(variables, packed);
    const alone = np.concatenate(
      documents.map((tokens) => model.apply(variables, tokens)),
      1,
    );
    expectNear(await together.data(), await alone.data(), 1e-5);
    const { documentEnd: _, ...plain } = config;
    const unpacked = LanguageModel(plain).apply(variables, packed);
    expect(await np.allclose(unpacked, together).data()).toEqual(new Uint8Array([0]));
  });

  test.each(["float32", "bfloat16"] as const)(
    "are not predicted from the one before, in %s",
    async (dtype) => {
      const tokens = row(5, 3, 0, 7, 2);
      const logits = random.normal(random.key(1), [1, 5, 11]).astype(dtype);
      const targets = row(3, 0, 7, 2, 1);
      const counted = countedTokens(config, tokens);
      const { loss } = crossEntropy(logits, targets, 0.1, counted);
      const keep = (x: Tensor) => np.concatenate([x.get(":", np.s(0, 2)), x.get(":", np.s(3, 5))], 1);
      const without = crossEntropy(keep(logits), keep(targets), 0.1);
      expectNear(await loss.data(), await without.loss.data(), 1e-6);
    },
  );

  test("need a token of the vocabulary and blocks without a state", () => {
    const text = (changed: Partial<ModelConfig>) =>
      modelViolations({ ...config, ...changed }).map(({ text }) => text);
    expect(text({})).toEqual([]);
    expect(text({ documentEnd: 11 }).join()).toContain("use a token from 0 to 10");
    expect(text({ kind: "mlstm", width: 16, mlpWidth: 16 }).join()).toContain("goes on across documents");
  });
});
