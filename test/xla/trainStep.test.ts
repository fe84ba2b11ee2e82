/** The texts that a training run hands to XLA on a GPU: layers are functions that are written once. */
import { describe, expect, test } from "vitest";
import { XlaEngine } from "../../src/engines/xla/engine.js";
import { gpuUnrolling } from "../../src/engines/xla/stablehlo/unroll.js";
import type { XlaClient } from "../../src/engines/xla/xlaClient.js";
import { jit, lax, Mesh, np, type Tensor } from "../../src/index.js";
import { range } from "../../src/ir/shape.js";
import { float8DotGeneral } from "../../src/nn/functions/float8DotGeneral.js";
import * as optim from "../../src/optim/index.js";
import type { ModelConfig } from "../../src/train/models/config.js";
import { measurePeak } from "../../src/train/report/peak.js";
import { createTraining } from "../../src/train/step/training.js";

/** A GPU that computes nothing but remembers what it was to compile. */
function recordingClient(texts: string[], flags: object[] = []): XlaClient<number> {
  let numArrays = 0;
  return {
    platform: { name: "cuda", version: "none", deviceKind: "none", kernels: ["attention"] },
    numDevices: 1,
    process: { index: 0, count: 1 },
    isAddressable: () => true,
    upload: () => numArrays++,
    download: async () => new Float32Array(1),
    copy: () => numArrays++,
    destroy: () => {},
    close: async () => {},
    compile: async (text, _devices, settings) => {
      texts.push(text);
      flags.push(settings ?? {});
      const numOutputs = /-> \((.*)\) \{$/m.exec(text)?.[1]?.split(", ").length ?? 0;
      return {
        execute: async (inputs) => ({
          outputs: inputs.map(() => range(numOutputs).map(() => numArrays++)),
          done: Promise.resolve(),
        }),
        destroy: () => {},
      };
    },
  };
}

/** The texts of `init` and `trainStep` for a Llama whose layers keep enough for the backward pass to be unrolled. */
async function textsOf(
  numLayers: number,
  choices: Pick<ModelConfig, "products"> = {},
): Promise<{ readonly init: string; readonly trainStep: string }> {
  const texts: string[] = [];
  const engine = new XlaEngine(recordingClient(texts), { kernels: ["attention"], unrolling: gpuUnrolling });
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1 }, { engine });
  const { init, step } = createTraining({
    model: {
      kind: "llama",
      width: 1024,
      numLayers,
      numHeads: 16,
      numKvHeads: 16,
      mlpWidth: 2816,
      vocabSize: 512,
      dtype: "bfloat16",
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      tieEmbeddings: true,
      remat: "dots",
      ...choices,
    },
    optimizer: optim.adamw({ learningRate: 1e-3 }),
    mesh,
  });
  step(init(0), np.zeros([8, 2049], { dtype: "int32" }));
  await engine.close();
  const named = (name: string) => texts.find((text) => text.startsWith(`module @${name} `)) ?? "";
  return { init: named("init"), trainStep: named("trainStep") };
}

const count = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].length;

/**
 * The float8 types of both factors of every product, or nothing: those that are converted back from it and multiplied by
 * a scalar, both in the type of the product.
 */
function float8Products(text: string): (readonly [string, string])[] {
  const lines = new Map(
    [...text.matchAll(/^ +(%\d+) = (.*)$/gm)].map(([, name = "", line = ""]) => [name, line]),
  );
  const lineOf = (name: string | undefined) => lines.get(name ?? "") ?? "";
  const typeOf = (factor: string): string => {
    const [, rounded, scale] = /^stablehlo\.multiply (%\d+), (%\d+) : \S+xbf16>$/.exec(lineOf(factor)) ?? [];
    const isScalar = /^stablehlo\.broadcast_in_dim %\d+, dims = \[\] : \(tensor<bf16>\)/.test(lineOf(scale));
    const [, narrow] =
      /^stablehlo\.convert (%\d+) : \(tensor<\S+xf8\w+>\) -> \S+xbf16>$/.exec(lineOf(rounded)) ?? [];
    const [, type = ""] =
      /^stablehlo\.convert %\d+ : \(\S+xbf16>\) -> \S+xf8(\w+)>$/.exec(lineOf(narrow)) ?? [];
    return isScalar ? type : "";
  };
  return [...text.matchAll(/stablehlo\.dot_general (%[\d#]+), (%[\d#]+),/g)].map(([, x = "", y = ""]) => [
    typeOf(x),
    typeOf(y),
  ]);
}

describe("the texts of a training run", () => {
  test("have each layer as two calls, whatever the number of layers, and initialise in a loop", async () => {
    const [few, many] = [await textsOf(4), await textsOf(24)];
    for (const op of ["dot_general", "custom_call", "rsqrt", "dynamic_slice"]) {
      const pattern = new RegExp(`stablehlo\\.${op}\\b`, "g");
      expect(count(few.trainStep, pattern), op).toBeGreaterThan(0);
      expect(count(many.trainStep, pattern), op).toBe(count(few.trainStep, pattern));
    }
    expect(count(few.trainStep, /func\.call @step_/g)).toBe(2 * 4);
    expect(count(many.trainStep, /func\.call @step_/g)).toBe(2 * 24);
    expect(count(many.trainStep, /stablehlo\.while/g)).toBe(0);
    // A layer adds its two calls, its index twice, and the place of each of its results in a stack.
    const lines = ({ trainStep }: typeof few) => trainStep.split("\n").length;
    expect((lines(many) - lines(few)) / 20).toBeLessThanOrEqual(2 + 2 + 18);
    // Gradients of weights are stacked in bfloat16, as products give them, by each step back, and widened together.
    const fills = [...few.trainStep.matchAll(/func\.call @fill_(bfloat16|float32)_4_(\w+)\(/g)];
    const gradients = fills.filter(([, , shape]) =>
      /^(1024_16_64|16_64_1024|1024_2816|2816_1024)$/.test(shape ?? ""),
    );
    expect(gradients.map(([, dtype]) => dtype)).toEqual(Array(7 * 4).fill("bfloat16"));
    // Their norm and the update both read them, so each stack is filled before.
    const stacks =
      /stablehlo\.optimization_barrier %\d+ : tensor<4x(1024x16x64|16x64x1024|1024x2816|2816x1024)xbf16>/g;
    expect(count(few.trainStep, stacks)).toBe(7);
    // What keeps XLA's rewriting from other values costs a step nothing: it adds no constant 0 to tensors.
    expect(count(few.trainStep, /stablehlo\.compare EQ, .* FLOAT/g)).toBe(0);
    expect(count(few.init, /stablehlo\.while/g)).toBe(1);
    expect(many.init.split("\n")).toHaveLength(few.init.split("\n").length);
  });

  test("overwrite as many inputs as they have outputs, so that a CUDA graph of a step is never updated", async () => {
    const { trainStep } = await textsOf(2);
    const [, parameters = "", results = ""] = /@main\((.*)\) -> \((.*)\) \{$/m.exec(trainStep) ?? [];
    expect(count(parameters, /tf\.aliasing_output = /g)).toBe(results.split(", ").length);
    const flags: object[] = [];
    const engine = new XlaEngine(recordingClient([], flags), { unrolling: { minBytes: 0, maxEqns: 1000 } });
    const mesh = Mesh.create({ data: 1 }, { engine });
    const sumOf = (weights: Tensor, x: Tensor): [Tensor, Tensor] => {
      const [sum] = lax.scan((sum: Tensor, w: Tensor): [Tensor, null] => [sum.add(w), null], x, weights);
      return [weights.add(sum), sum];
    };
    for (const size of [1, 1 << 20]) {
      await jit(sumOf, { mesh, donate: 0 })(np.ones([2, size]), np.ones([size]))[0].ready();
    }
    await engine.close();
    const noGraph = expect.objectContaining({ xla_gpu_graph_min_graph_size: 1_000_000 });
    const graph = expect.not.objectContaining({ xla_gpu_graph_min_graph_size: 1_000_000 });
    // The first program, what copies its input and its output, and the second program, which would copy too much.
    expect(flags).toEqual([graph, noGraph, noGraph, noGraph]);
  });

  test("contain no product to measure devices by, of which whole runs tell nothing", async () => {
    const texts: string[] = [];
    const engine = new XlaEngine(recordingClient(texts));
    expect(await measurePeak(Mesh.create({ data: 1 }, { engine }))).toBeUndefined();
    await engine.close();
    expect(texts).toEqual([]);
  });

  test("multiply float8 factors in the form that XLA has float8 products for", async () => {
    const { trainStep } = await textsOf(2, { products: "float8" });
    const products = float8Products(trainStep);
    const numberOf = (x: string, y: string) =>
      products.filter((types) => types[0] === x && types[1] === y).length;
    // A layer has seven weights; the embedding table is multiplied as it is.
    expect(numberOf("E4M3FN", "E4M3FN")).toBe(7);
    expect(numberOf("E5M2", "E4M3FN")).toBe(7);
    expect(numberOf("E4M3FN", "E5M2")).toBe(7);
    expect(numberOf("", "")).toBe(3);
    expect(products).toHaveLength(24);
    expect(float8Products((await textsOf(2)).trainStep)).toEqual(products.map(() => ["", ""]));
  });

  test("are compiled without merging float8 products, which would become others", async () => {
    const flags: object[] = [];
    const engine = new XlaEngine(recordingClient([], flags), { unrolling: gpuUnrolling });
    const mesh = Mesh.create({ data: 1 }, { engine });
    const x = np.ones([16, 16], "bfloat16");
    const dims = { lhsContract: [1], rhsContract: [0] };
    for (const multiply of [np.matmul, (a: Tensor, b: Tensor) => float8DotGeneral(a, b, dims)]) {
      await jit((a: Tensor, b: Tensor) => multiply(a, b), { mesh })(x, x).ready();
    }
    await engine.close();
    const setting = { xla_disable_hlo_passes: "dot-merger" };
    expect(flags).toEqual([expect.not.objectContaining(setting), expect.objectContaining(setting)]);
  });
});
