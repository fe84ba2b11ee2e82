import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { silent, temporaryFolder, tinyConfig, tinyModel, writeText } from "../../../test/support/runs.js";
import { randomNumbers } from "../../../test/support/vmapChecks.js";
import { devicePut, Mesh, np, random, Tensor, tree } from "../../index.js";
import { range } from "../../ir/shape.js";
import {
  adamw,
  castFloats,
  type GradientTransformation,
  type LossScaleOptions,
  sgd,
} from "../../optim/index.js";
import { runSchedule } from "../config/optimizer.js";
import { runMesh, runTrainingFunctions } from "../config/setup.js";
import { openCheckpoint } from "../files/checkpoints/checkpoint.js";
import { onHost, restoreRun } from "../folder/savedRun.js";
import { readMetrics } from "../report/metrics.js";
import { DivergedError, problemOf } from "../step/health.js";
import type { ParamDtype } from "../step/parameterUpdates.js";
import type { LanguageModelState } from "../step/state.js";
import { createTraining } from "../step/training.js";
import { trainRun } from "./trainRun.js";

interface Types {
  readonly dtype?: ParamDtype;
  readonly paramDtype?: ParamDtype;
  readonly kind?: "llama" | "mlstm";
  readonly lossScale?: LossScaleOptions;
  readonly axes?: Readonly<Record<string, number>>;
  readonly optimizer?: GradientTransformation;
}

function start({ dtype = "float32", kind = "llama", axes = {}, optimizer, ...rest }: Types) {
  const training = createTraining({
    model: { ...tinyModel, dtype, kind },
    optimizer: optimizer ?? adamw({ learningRate: 5e-3 }),
    mesh: Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes }),
    ...rest,
  });
  let state = training.init(0);
  const tokens = random.randint(random.key(1), [4, 9], 0, tinyModel.vocabSize);
  const step = async () => {
    const [next, metrics] = training.step(state, await devicePut(tokens, training.batchSharding));
    state = next;
    const isSkipped = !Number.isFinite(await metrics.gradientNorm.item());
    return { loss: await metrics.loss.item(), scale: (await metrics.lossScale?.item()) ?? 1, isSkipped };
  };
  return { step, state: () => state };
}

async function curve(types: Types, numSteps = 20): Promise<number[]> {
  const { step } = start(types);
  const losses: number[] = [];
  for (let i = 0; i < numSteps; i++) losses.push((await step()).loss);
  return losses;
}

const bitsOf = async (values: unknown) => {
  const tensors = tree.leaves(values).filter((leaf) => leaf instanceof Tensor);
  return Promise.all(tensors.map((leaf) => leaf.storage("test").download("test")));
};
const masterOf = ({ optimizer }: LanguageModelState) =>
  (optimizer as { readonly master: LanguageModelState["params"] }).master;

/** All numbers of a tree, one after the other. */
async function numbersOf(values: unknown): Promise<number[]> {
  const tensors = tree.leaves(castFloats(values, "float32")).filter((leaf) => leaf instanceof Tensor);
  return (await Promise.all(tensors.map(async (x) => Array.from(await x.data(), Number)))).flat();
}

const distance = (a: readonly number[], b: readonly number[]) =>
  Math.hypot(...a.map((x, i) => x - (b[i] ?? Number.NaN)));

describe("16-bit numbers", () => {
  const exact = { llama: curve({}), mlstm: curve({ kind: "mlstm" }) };
  const everyday = [
    { kind: "llama", dtype: "bfloat16", paramDtype: "bfloat16" },
    { kind: "llama", dtype: "float16" },
    { kind: "mlstm", dtype: "float16", paramDtype: "float16" },
  ] as const;
  const others = [
    { kind: "llama", dtype: "bfloat16" },
    { kind: "mlstm", dtype: "bfloat16" },
  ] as const;
  test.each([...everyday, ...(process.env.CASES === "all" ? others : [])])(
    "learn as float32 does: %o",
    async (types) => {
      const [want, got] = [await exact[types.kind], await curve(types)];
      expect(got).not.toEqual(want);
      expect(got.at(-1)).toBeLessThan((got[0] ?? 0) - 0.4);
      got.forEach((loss, i) => {
        expect(Math.abs(loss / (want[i] ?? 0) - 1), `step ${i}`).toBeLessThan(0.02);
      });
    },
  );
});

describe("float8 products", () => {
  /** Losses on sequences in which every token has two successors. */
  async function curveOf(products?: "float8"): Promise<number[]> {
    const { step, init, batchSharding } = createTraining({
      model: {
        ...{ ...tinyModel, dtype: "bfloat16", vocabSize: 32, width: 32, mlpWidth: 64 },
        ...(products && { products }),
      },
      optimizer: adamw({ learningRate: 5e-3 }),
      mesh: Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1 }),
    });
    let state = init(0);
    const losses: number[] = [];
    const draw = randomNumbers(2);
    for (const _ of range(20)) {
      const rows = range(8).map(() => {
        let token = Math.floor(32 * draw());
        return range(17).map(() => (token = (5 * token + (draw() < 0.5 ? 3 : 10)) % 32));
      });
      const [next, { loss }] = step(state, await devicePut(np.array(rows, "int32"), batchSharding));
      state = next;
      losses.push(await loss.item());
    }
    return losses;
  }

  test("learn as bfloat16 does", async () => {
    const [want, got] = [await curveOf(), await curveOf("float8")];
    const mean = (losses: readonly number[]) => losses.reduce((sum, loss) => sum + loss) / losses.length;
    expect(got).not.toEqual(want);
    expect(got.at(-1)).toBeLessThan((got[0] ?? 0) - 1);
    expect(Math.abs(mean(got) / mean(want) - 1)).toBeLessThan(0.01);
  });
});

describe("narrow parameters", () => {
  test.each(["bfloat16", "float16"] as const)(
    "of %s are their float32 masters, rounded",
    async (paramDtype) => {
      const run = start({ dtype: paramDtype, paramDtype, axes: { fsdp: 2 } });
      for (let i = 0; i < 4; i++) {
        const { params } = run.state();
        const master = masterOf(run.state());
        expect(await bitsOf(params)).toEqual(await bitsOf(castFloats(master, paramDtype)));
        expect(await bitsOf(params)).not.toEqual(await bitsOf(master));
        await run.step();
      }
    },
  );

  test("have masters that follow float32 training up to the rounding of gradients", async () => {
    const optimizer = sgd({ learningRate: 0.1 });
    const [exact, narrow] = [
      start({ optimizer }),
      start({ optimizer, dtype: "bfloat16", paramDtype: "bfloat16" }),
    ];
    const first = await numbersOf(exact.state().params);
    expect(await numbersOf(masterOf(narrow.state()))).toEqual(first);
    for (let i = 0; i < 4; i++) await Promise.all([exact.step(), narrow.step()]);
    const last = await numbersOf(exact.state().params);
    const moved = distance(last, first);
    expect(distance(await numbersOf(masterOf(narrow.state())), last)).toBeLessThan(0.02 * moved);
    // Rounding alone moves the parameters further than that.
    expect(distance(await numbersOf(narrow.state().params), last)).toBeGreaterThan(0.02 * moved);
  });
});

describe("a loss scale", () => {
  const growthInterval = 5;

  test.each([...(process.env.CASES === "all" ? [{}] : []), { fsdp: 2 }])(
    "that overflows skips the step, falls, and then lets the model learn: %o",
    async (axes) => {
      const run = start({
        dtype: "float16",
        paramDtype: "float16",
        lossScale: { initial: 2 ** 24, growthInterval },
        axes,
      });
      const unscaled = ({ lossScale: _, ...rest }: LanguageModelState) => bitsOf(rest);
      const losses: number[] = [];
      let scale = 2 ** 24;
      let numGood = 0;
      while (losses.length < 12) {
        const before = await unscaled(run.state());
        const told = await run.step();
        expect(told.scale).toBe(scale);
        if (told.isSkipped) expect(await unscaled(run.state())).toEqual(before);
        else losses.push(told.loss);
        numGood = told.isSkipped ? 0 : numGood + 1;
        if (told.isSkipped) scale /= 2;
        if (numGood === growthInterval) scale *= 2;
        numGood %= growthInterval;
      }
      expect(scale).toBeLessThan(2 ** 20);
      expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) - 0.2);
    },
  );

  test("that can fall no further ends the run", () => {
    const values = { loss: 2, crossEntropy: 2, gradientNorm: Number.NaN, gradientSquares: [], numUpdates: 0 };
    expect(problemOf({ ...values, lossScale: 2 }, 16)).toBeUndefined();
    expect(problemOf({ ...values, lossScale: 1 }, 16)).toBe(
      "the norm of the gradients is NaN, at a loss scale of 1, the least: bfloat16 has a wider range than float16",
    );
    expect(problemOf(values, 16)).toBe("the norm of the gradients is NaN");
  });
});

describe("a float16 run", () => {
  const folder = temporaryFolder();
  writeText(folder.path);
  afterAll(folder.remove);
  const settings = {
    "model.dtype": "float16",
    "model.paramDtype": "float16",
    "model.numLayers": 2,
    "optimizer.accumulate": 2,
    "optimizer.lossScale": 2 ** 18,
    "data.batch": 8,
    "mesh.pipe": 2,
    steps: 6,
  };

  test("goes on over skipped steps, resumes with the same bits, and loads on another mesh", async () => {
    const options = { stream: silent, finish: false };
    const out = (name: string) => join(folder.path, name);
    const wholeConfig = tinyConfig(folder.path, { ...settings, out: out("whole") });
    const whole = await trainRun({ ...options, config: wholeConfig });
    const told = readMetrics(join(out("whole"), "metrics.jsonl"));
    const steps = told.filter(({ lossScale }) => lossScale !== undefined);
    const isSkipped = steps.map(({ gradientNorm }) => typeof gradientNorm !== "number");
    const numSkipped = (step: number) => isSkipped.slice(0, step).filter(Boolean).length;
    expect(isSkipped[0]).toBe(true);
    expect(isSkipped.at(-1)).toBe(false);
    expect(steps.map(({ lossScale }) => lossScale)).toEqual(steps.map((_, i) => 2 ** (18 - numSkipped(i))));
    // The learning rate goes by updates, of which a skipped step makes none.
    const updates = steps.map((_, i) => i - numSkipped(i));
    const rates = await Promise.all(updates.map((n) => runSchedule(wholeConfig)(n).item()));
    expect(steps.map(({ learningRate }) => learningRate)).toEqual(rates);

    const config = tinyConfig(folder.path, { ...settings, out: out("parts") });
    const stop = new AbortController();
    const first = await trainRun({ ...options, config, signal: stop.signal, onStep: () => stop.abort() });
    expect(first).toMatchObject({ status: "stopped", step: 2 });
    const second = await trainRun({ ...options, config, resume: true });
    const hashes = async (path: string) =>
      (await openCheckpoint(path)).manifest.files.map(({ sha256 }) => sha256);
    expect(await hashes(second.checkpoint)).toEqual(await hashes(whole.checkpoint));

    const other = tinyConfig(folder.path, {
      ...settings,
      "mesh.pipe": 1,
      "mesh.fsdp": 2,
      "optimizer.accumulate": 1,
    });
    const training = runTrainingFunctions(other, 257, runMesh(other));
    const checkpoint = await openCheckpoint(whole.checkpoint);
    const state = await onHost(await restoreRun(checkpoint, training));
    const stored = await checkpoint.read();
    for (const { path, leaf } of tree.flattenWithPath(state)) {
      expect(await bitsOf([leaf]), path).toEqual([stored.get(path)?.data]);
    }
    expect([...stored.keys()]).toContain("lossScale/scale");
    const block = [...stored.keys()].find((path) => /^optimizer\/master\/params\/layers\/block\//.test(path));
    expect(stored.get(block ?? "")).toMatchObject({ dtype: "float32" });
    expect(await bitsOf(state.params)).toEqual(await bitsOf(castFloats(masterOf(state), "float16")));
  });

  test("whose loss overflows, which no scale helps, stops and says so", async () => {
    const config = tinyConfig(folder.path, {
      "model.dtype": "float16",
      "model.numLayers": 1,
      "optimizer.kind": "sgd",
      "optimizer.learningRate": 1e30,
      "optimizer.warmup": 1,
      "optimizer.clip": 0,
      out: join(folder.path, "overflow"),
    });
    const failure = await trainRun({ config, stream: silent }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(DivergedError);
    expect(String(failure)).toMatch(/step \d: the loss is NaN, with which no loss scale helps: bfloat16/);
  });
});
