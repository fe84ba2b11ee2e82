import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { grad, jit, Mesh, np, random, type Tensor, tree } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import { loadAdapters, loadPretrained, readSafetensors, saveAdapters } from "shardwise/train";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { crossEntropy } from "../../src/train/models/loss.js";

const fixtures = new URL("./fixtures/", import.meta.url).pathname;
let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "shardwise-adapters-"));
});
afterAll(() => rm(root, { recursive: true, force: true }));

const json = async (path: string) => JSON.parse(await readFile(join(fixtures, path), "utf8"));
const load = (mesh?: Mesh) =>
  loadPretrained(join(fixtures, "llama3"), { dtype: "float32", ...(mesh && { mesh }) });
const readTokens = async () => np.array((await json("llama3/expected.json")).tokens, "int32");
const expectClose = async (got: Tensor, want: readonly number[]) => {
  const values = await got.data();
  for (const [i, value] of want.entries()) expect(Number(values[i])).toBeCloseTo(value, 5);
};

describe.each(["lora", "dora"])("adapters that PEFT wrote (%s)", (kind) => {
  test("give its logits, beside the model and merged into it, and are written back as they were", async () => {
    const folder = join(fixtures, `llama3-${kind}`);
    const want: number[] = await json(`llama3-${kind}/expected.json`);
    const tokens = await readTokens();
    for (const mesh of [undefined, Mesh.create({ fsdp: 2, model: 2 })]) {
      const pretrained = await load(mesh);
      const { model, adapters, options } = await loadAdapters(folder, pretrained);
      expect(options).toMatchObject({ rank: 2, alpha: 6, dora: kind === "dora" });
      const onMesh = mesh ? { mesh } : {};
      const logits = jit((a: typeof adapters) => model.apply(pretrained.params, a, tokens), onMesh)(adapters);
      await expectClose(logits, want);
      const merged = model.merge(pretrained.params, adapters);
      await expectClose(pretrained.model.apply(merged, tokens), want);
      if (mesh) continue;
      const out = join(root, kind);
      await saveAdapters(out, { ...pretrained, adapters, options });
      const [before, after] = await Promise.all(
        [folder, out].map((path) => readSafetensors(join(path, "adapter_model.safetensors"))),
      );
      expect(new Map([...(after?.tensors ?? [])].sort())).toEqual(
        new Map([...(before?.tensors ?? [])].sort()),
      );
      expect((await loadAdapters(out, pretrained)).options).toEqual(options);
      if (kind === "lora") {
        const back = model.unmerge(merged, adapters);
        await expectClose(pretrained.model.apply(back, tokens), (await json("llama3/expected.json")).logits);
      }
    }
  });
});

describe("nn.lora", () => {
  test.each([false, true])(
    "starts as the model itself and trains only its adapters (dora: %s)",
    async (dora) => {
      const { model, params } = await load();
      const tokens = await readTokens();
      const adapted = nn.lora(model, { rank: 3, targets: ["query", "value", "up"], dora });
      const adapters = adapted.init(random.key(5), params, tokens);
      await expectClose(adapted.apply(params, adapters, tokens), (await json("llama3/expected.json")).logits);
      const loss = (own: typeof adapters) =>
        crossEntropy(adapted.apply(params, own, tokens.get("...", np.s(0, 7))), tokens.get("...", np.s(1, 8)))
          .loss;
      const optimizer = optim.adamw({ learningRate: 0.05 });
      const start = optimizer.init(adapters);
      const step = jit((own: typeof adapters, state: typeof start) => {
        const [updates, next] = optimizer.update(grad(loss)(own), state, own);
        return [optim.applyUpdates(own, updates), next] as const;
      });
      let [now, state]: readonly [typeof adapters, typeof start] = [adapters, start];
      for (let i = 0; i < 8; i++) [now, state] = step(now, state);
      expect(await loss(now).item()).toBeLessThan((await loss(adapters).item()) - 0.3);
      expect(adapted.count(adapters)).toBe(
        tree.leaves(adapters).reduce<number>((n, leaf) => n + (leaf as Tensor).size, 0),
      );
      // The merged model computes the same as the model beside its adapters.
      const values = [...(await adapted.apply(params, now, tokens).data())].map(Number);
      await expectClose(model.apply(adapted.merge(params, now), tokens), values);
    },
  );

  test("refuses targets that no layer has, a rank that is none and what PEFT cannot say", async () => {
    const { model, params, ...rest } = await load();
    const tokens = await readTokens();
    expect(() =>
      nn.lora(model, { rank: 2, targets: ["q_proj"] }).init(random.key(0), params, tokens),
    ).toThrow("[nn.lora] no linear layer of the module matches the targets q_proj");
    expect(() => nn.lora(model, { rank: 0 })).toThrow(
      "[nn.lora] rank must be an integer of at least 1, got 0",
    );
    await expect(loadAdapters(root, { model, params, ...rest })).rejects.toThrow(
      "has no adapter_config.json",
    );
    const gpt2 = await loadPretrained(join(fixtures, "gpt2"));
    const adapters = nn
      .lora(gpt2.model, { rank: 1, targets: ["query"] })
      .init(random.key(0), gpt2.params, tokens);
    await expect(saveAdapters(join(root, "x"), { ...gpt2, adapters, options: { rank: 1 } })).rejects.toThrow(
      "holds several kernels",
    );
  });
});
