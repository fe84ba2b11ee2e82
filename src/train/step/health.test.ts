import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { createThreadsEngine } from "../../engines/threads/engine.js";
import { devicePut, Mesh, np, Tensor, tree } from "../../index.js";
import { adamw } from "../../optim/index.js";
import type { RunConfig } from "../config/runConfig.js";
import { checkpointFolder } from "../config/setup.js";
import { openCheckpoint, openCheckpoints } from "../files/checkpoints/checkpoint.js";
import type { RunOptions } from "../run/runOptions.js";
import { trainRun } from "../run/trainRun.js";
import { DivergedError, diverged } from "./health.js";
import type { LanguageModelState } from "./state.js";
import { createTraining } from "./training.js";

const folder = temporaryFolder();
writeText(folder.path);
const threads = createThreadsEngine({ numDevices: 2, memoryBytes: 2 ** 26 });
afterAll(async () => {
  await threads.close();
  folder.remove();
});

async function failureOf(config: RunConfig, options: Partial<RunOptions> = {}): Promise<DivergedError> {
  const run = trainRun({ ...options, config, stream: silent, finish: false });
  const failure = await run.catch((error: unknown) => error);
  if (failure instanceof DivergedError) return failure;
  throw failure;
}

async function hashes(checkpoint: string): Promise<readonly string[]> {
  return (await openCheckpoint(checkpoint)).manifest.files.map(({ sha256 }) => sha256);
}

async function bits(values: unknown): Promise<readonly unknown[]> {
  const leaves = tree.leaves(values).filter((leaf) => leaf instanceof Tensor);
  return Promise.all(leaves.map((leaf) => leaf.storage("bits").download("bits")));
}

const wild = {
  steps: 40,
  "optimizer.kind": "sgd",
  "optimizer.learningRate": 1e30,
  "optimizer.warmup": 2,
  "optimizer.clip": 0,
};

describe("a run with an enormous learning rate", () => {
  for (const { name, engine } of [
    ...(process.env.CASES === "all" ? [{ name: "reference" }] : []),
    { name: "threads", engine: threads },
  ]) {
    test(`names the first tensor and saves the state before the step, on the ${name} engine`, async () => {
      const out = join(folder.path, `wild-${name}`);
      const config = tinyConfig(folder.path, { ...wild, out, "mesh.data": 2 });
      const options = engine ? { engine } : {};
      const { message, step } = await failureOf(config, options);
      expect(step).toBe(3);
      expect(message).toMatch(
        /^\[train\] step 3: the norm of the gradients is NaN; the first tensor that is not finite is mul f32\[2,8,8\] in norm, on device 0, with infinite values \(\S+languageModel\.ts:\d+:\d+\); /,
      );
      const saved = join(checkpointFolder(out), "step-00000002");
      expect(message).toContain(
        `; the state before this step is finite and was saved: the last good checkpoint is ${saved}: `,
      );
      // The same bits as those of a run that ends there by itself.
      const stop = new AbortController();
      const other = tinyConfig(folder.path, { ...wild, out: `${out}-stopped`, "mesh.data": 2 });
      const stopped = await trainRun({
        ...options,
        config: other,
        stream: silent,
        finish: false,
        signal: stop.signal,
        onStep: () => stop.abort(),
      });
      expect(stopped.step).toBe(2);
      expect(await hashes(saved)).toEqual(await hashes(stopped.checkpoint));
      expect((await openCheckpoint(saved)).manifest.data).toEqual(
        (await openCheckpoint(stopped.checkpoint)).manifest.data,
      );
      // It can be loaded, and nothing newer than it is saved again.
      const again = await failureOf(config, { ...options, resume: true });
      expect(again.message).toBe(
        message.replace(
          "the state before this step is finite and was saved: the last good checkpoint",
          "the last good checkpoint",
        ),
      );
      expect((await openCheckpoints(checkpointFolder(out)).list()).map((one) => one.step)).toEqual([2]);
    });
  }
});

test("the error names the checkpoint before the one that was saved too", () => {
  const { message } = diverged({
    step: 9,
    problem: "the loss is NaN",
    origin: undefined,
    kept: "step-5",
    rescued: "step-8",
  });
  expect(message).toContain(
    "[train] step 9: the loss is NaN; the state before this step is finite and was saved: the last good checkpoint is step-8, the one before it step-5: resume from it",
  );
});

describe("a run whose loss explodes without being infinite", () => {
  test("names the largest gradient and the device of the largest weight", async () => {
    const config = tinyConfig(folder.path, {
      ...wild,
      out: join(folder.path, "exploded"),
      checkpointEvery: 2,
      "optimizer.learningRate": 100,
      "mesh.fsdp": 2,
    });
    const { message } = await failureOf(config);
    expect(message).toMatch(
      /step 3: the loss exploded: [\d.]+ is over 4 x [\d.]+, the loss of guessing; the largest gradient is that of params\/\S+, with norm [\d.e+]+ of [\d.e+]+; the largest of its weights, \S+, is on device [01]; the last good checkpoint is \S+step-00000002: /,
    );
  });
});

describe("a run whose update overflows", () => {
  test("does not save what is not finite", async () => {
    const out = join(folder.path, "overflow");
    const config = tinyConfig(folder.path, {
      ...wild,
      out,
      checkpointEvery: 1,
      "optimizer.learningRate": 1e39,
      "optimizer.warmup": 0,
    });
    const { message, step } = await failureOf(config);
    expect(step).toBe(1);
    expect(message).toMatch(
      /^\[train\] step 1: the update led to tensors that are not finite, although its gradients are; the first one is params\/\S+, on device 0; there is no checkpoint from before it: start /,
    );
    expect(await openCheckpoints(checkpointFolder(out)).list()).toEqual([]);
  });
});

describe("a run with weights that overflow in one layer", () => {
  const name = (part: string) => join(folder.path, `poisoned-${part}`);

  /** Makes the gated products of one layer overflow in a copy of a checkpoint. */
  async function poison(from: string, to: string, layer: number): Promise<void> {
    const { manifest, ...checkpoint } = await openCheckpoint(from);
    const state = await (await openCheckpoint(checkpoint.folder)).restoreTree<LanguageModelState>();
    const factors = Array.from({ length: 4 }, (_, i) => (i === layer ? 1e30 : 1));
    const params = tree.mapWithPath(
      (path: string, leaf: unknown) =>
        leaf instanceof Tensor && /mlp\/(gate|up)\/kernel/.test(path)
          ? leaf.mul(np.array(factors).reshape([4, 1, 1]))
          : leaf,
      state.params,
    );
    const { config, data, rng } = manifest;
    const extras = { ...(config ? { config } : {}), ...(data ? { data } : {}), ...(rng ? { rng } : {}) };
    const copies = openCheckpoints(checkpointFolder(to));
    await (await copies.save(manifest.step, { ...state, params }, extras)).committed;
  }

  for (const [axis, place] of [
    ["data", "layers/block/mlp, iteration 2, on device 0"],
    ["pipe", "block/mlp, iterations \\d and 0, on device 1"],
  ] as const) {
    test(`names the layer, with two devices along ${axis}`, async () => {
      const settings = { [`mesh.${axis}`]: 2, steps: 9, checkpointEvery: 2 };
      const stop = new AbortController();
      const healthy = await trainRun({
        config: tinyConfig(folder.path, { ...settings, out: name(axis) }),
        engine: threads,
        stream: silent,
        finish: false,
        signal: stop.signal,
        onStep: () => stop.abort(),
      });
      const out = name(`${axis}-bad`);
      await poison(healthy.checkpoint, out, 2);
      const config = tinyConfig(folder.path, { ...settings, out });
      const { message, step } = await failureOf(config, { resume: true, engine: threads });
      expect(step).toBe(3);
      expect(message).toMatch(
        /step 3: the (loss|norm of the gradients) is NaN; the first tensor .* is mul f32\[/,
      );
      expect(message).toMatch(new RegExp(place));
      expect(message).toContain(
        `the last good checkpoint is ${join(checkpointFolder(out), "step-00000002")}`,
      );
    });
  }
});

test("a step that goes wrong changes nothing, nor does the one under way after it", async () => {
  const model = {
    kind: "llama",
    vocabSize: 16,
    width: 8,
    numLayers: 2,
    numHeads: 2,
    numKvHeads: 2,
    mlpWidth: 16,
    tieEmbeddings: false,
    ropeBase: 10_000,
    normEpsilon: 0,
    dtype: "float32",
    remat: "none",
  } as const;
  const mesh = Mesh.create({ data: 2, fsdp: 1, pipe: 1, model: 1 });
  const training = createTraining({ model, optimizer: adamw({ learningRate: 1e-2 }), mesh });
  const fresh = training.init(0);
  // Without an epsilon nothing but rows with token 9, which is embedded as zeros, divides by zero.
  const params = tree.mapWithPath(
    (path: string, leaf: unknown) =>
      leaf instanceof Tensor && /embedding/.test(path)
        ? leaf.mul(np.where(np.equal(np.arange(16), 9), 0, 1).reshape([16, 1]))
        : leaf,
    fresh.params,
  );
  const state: LanguageModelState = {
    ...fresh,
    params: await devicePut(params, Object(training.shardings).params),
  };
  const batch = (token: number) =>
    devicePut(
      np
        .array([
          [1, 2, 3, 4],
          [5, 6, token, 8],
        ])
        .astype("int32"),
      training.batchSharding,
    );
  const before = await bits(state);
  const [bad, good] = [await batch(9), await batch(7)];
  const [afterBad, told] = training.step(state, bad);
  expect(Number.isFinite(await told.gradientNorm.item())).toBe(false);
  expect(await told.isGood.item()).toBe(0);
  expect(await bits(afterBad)).toEqual(before);
  const found = await training.findNonFinite(afterBad, bad);
  expect(found).toMatchObject({ op: "rsqrt", device: 1, iterations: [0], value: "infinite" });
  expect(await training.findNonFinite(afterBad, good)).toBeUndefined();
  const [afterNext, toldNext] = training.step(afterBad, good, told);
  expect(Number.isFinite(await toldNext.gradientNorm.item())).toBe(true);
  expect(await toldNext.isGood.item()).toBe(0);
  expect(await bits(afterNext)).toEqual(before);
  const [afterGood, toldGood] = training.step(afterNext, good);
  expect(await toldGood.isGood.item()).toBe(1);
  expect(await afterGood.step.item()).toBe(1);
  expect(await bits(afterGood)).not.toEqual(before);
});
