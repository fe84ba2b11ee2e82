/** Direct preference optimisation: its loss against JAX, its training on meshes, and runs on pairs. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import { temporaryFolder, tinyConfig, tinyModel } from "../../../test/support/runs.js";
import { devicePut, grad, Mesh, np, random, type Tensor } from "../../index.js";
import { sgd } from "../../optim/index.js";
import { createTraining, dpoLoss, logProbabilities, trainRun } from "../index.js";
import type { StepRecord } from "../report/reportPage.js";

interface Golden {
  readonly logits: number[][][];
  readonly targets: number[][];
  readonly mask: number[][];
  readonly reference: number[][];
  readonly scores: number[][];
  readonly cases: readonly { beta: number; labelSmoothing: number; loss: number; gradient: number[][][] }[];
}

const golden: Golden = JSON.parse(readFileSync("test/pretrained/fixtures/dpo.json", "utf8"));
const column = (x: Tensor, i: number) => x.get(":", i);

describe("the loss", () => {
  const [targets, mask] = [np.array(golden.targets, "int32"), np.array(golden.mask, "float32")];
  const scoresOf = (logits: Tensor) =>
    np.sum(logProbabilities(logits, targets).mul(mask), 1).reshape([-1, 2]);

  test("sums the log-probabilities of what is scored, as JAX does", async () => {
    await expectClose(scoresOf(np.array(golden.logits, "float32")), np.array(golden.scores, "float32"), {
      rtol: 1e-5,
      atol: 1e-5,
    });
  });

  test.each(golden.cases)(
    "with beta $beta and smoothing $labelSmoothing is that of its formula in JAX",
    async (one) => {
      const reference = np.array(golden.reference, "float32");
      const loss = (logits: Tensor) => {
        const scores = scoresOf(logits);
        const pairs = {
          chosen: column(scores, 0),
          rejected: column(scores, 1),
          referenceChosen: column(reference, 0),
          referenceRejected: column(reference, 1),
        };
        const { beta, labelSmoothing } = one;
        return np.mean(dpoLoss(pairs, { beta, labelSmoothing }));
      };
      const logits = np.array(golden.logits, "float32");
      expect(await loss(logits).item()).toBeCloseTo(one.loss, 5);
      await expectClose(grad(loss)(logits), np.array(one.gradient, "float32"), { rtol: 1e-4, atol: 1e-6 });
    },
  );

  test("rejects what is no option or tensor", () => {
    const zero = np.zeros([1]);
    const pairs = { chosen: zero, rejected: zero, referenceChosen: zero, referenceRejected: zero };
    expect(() => dpoLoss(pairs, { labelSmoothing: 0.7 })).toThrow("labelSmoothing");
    expect(() => dpoLoss({ ...pairs, chosen: 7 as never })).toThrow("chosen must be a tensor");
  });
});

test("a step on pairs is the same in parts and on meshes, and its loss starts at log 2", {
  timeout: 60_000,
}, async () => {
  const [pairs, length] = [4, 8];
  const tokens = random.randint(random.key(1), [pairs, 2, length + 1], 0, 16);
  const lossMask = random.bernoulli(random.key(2), 0.6, [pairs, 2, length]);
  const segmentIds = np.ones([pairs, 2, length], { dtype: "int32" });
  const positions = np.broadcastTo(np.arange(length), [pairs, 2, length]);
  const stepOn = async (axes: Readonly<Record<string, number>>, options: object) => {
    const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
    const dpo = { beta: 0.5 };
    const training = createTraining({
      model: tinyModel,
      mesh,
      optimizer: sgd({ learningRate: 1 }),
      dpo,
      ...options,
    });
    const put = (reference: Tensor) =>
      devicePut({ tokens, lossMask, segmentIds, positions, reference }, training.batchSharding);
    const state = training.init(0);
    const reference = training.logProbabilities(state, await put(np.zeros([pairs, 2])));
    const batch = await put(np.array(await reference.js(), "float32"));
    const [after, metrics] = training.step(state, batch);
    const loss = await metrics.loss.item();
    const later = await training.evaluate(after, batch).item();
    return { loss, later, logits: training.logits(after, tokens.get(":", 0)), reference };
  };
  const alone = await stepOn({}, {});
  expect(alone.loss).toBeCloseTo(Math.LN2, 5);
  expect(alone.later).toBeLessThan(Math.LN2 - 0.001);
  for (const [axes, options] of [
    [{ data: 2 }, { accumulate: 2 }],
    [{ pipe: 2 }, { pipeline: { microbatches: 2, repeats: 1 } }],
  ] as const) {
    const split = await stepOn(axes, options);
    expect(split.later).toBeCloseTo(alone.later, 4);
    await expectTreeClose(split.reference, alone.reference, { rtol: 1e-5, atol: 1e-5 });
    await expectTreeClose(split.logits, alone.logits, { rtol: 1e-3, atol: 1e-5 });
  }
});

test("a run on pairs learns them, keeps its reference, and continues with it", {
  timeout: 120_000,
}, async () => {
  const folder = temporaryFolder();
  const source = join(folder.path, "pairs.jsonl");
  const records = Array.from({ length: 20 }, (_, i) => ({ prompt: `${i}? `, chosen: "yes", rejected: "no" }));
  writeFileSync(source, records.map((record) => `${JSON.stringify(record)}\n`).join(""));
  const changes = {
    "data.source": source,
    "data.sequence": 16,
    "dpo.beta": 0.5,
    "model.numLayers": 2,
    steps: 6,
    evalEvery: 3,
  };
  const train = async (out: string, mesh: number, more: object, stopAfter = 99) => {
    const stop = new AbortController();
    const losses: number[] = [];
    const onStep = ({ step, loss }: StepRecord) => {
      losses.push(loss);
      if (step >= stopAfter) stop.abort();
    };
    const config = tinyConfig(folder.path, { ...changes, "mesh.data": mesh, out: join(folder.path, out) });
    const options = { stream: { write: () => true }, signal: stop.signal, onStep, finish: false };
    const outcome = await trainRun({ config, ...options, ...more });
    return { losses, evaluations: outcome.evaluations };
  };
  const whole = await train("whole", 1, {});
  expect(whole.losses[0]).toBeCloseTo(Math.LN2, 5);
  expect(whole.evaluations.at(-1)?.loss).toBeLessThan(0.6);
  const first = await train("parts", 1, {}, 2);
  rmSync(source);
  const second = await train("parts", 2, { resume: true });
  const both = [...first.losses, ...second.losses];
  expect(both).toHaveLength(6);
  both.forEach((loss, i) => {
    expect(loss).toBeCloseTo(whole.losses[i] ?? 0, 4);
  });
  writeFileSync(source, records.map((record) => `${JSON.stringify(record)}\n`).join(""));
  const plain = tinyConfig(folder.path, { ...changes, "dpo.beta": 0, out: join(folder.path, "plain") });
  await expect(trainRun({ config: plain, stream: { write: () => true } })).rejects.toThrow(
    "set dpo.beta, such as 0.1",
  );
  folder.remove();
});
