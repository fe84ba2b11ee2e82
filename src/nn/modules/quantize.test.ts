import { grad, jit, np, random, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { describe, expect, test } from "vitest";

const values = async (x: unknown) => Array.from(await (x as Tensor).data(), Number);

describe("nn.quantizeKernels", () => {
  const model = nn.DenseGeneral({ features: [3, 4], axis: [-2, -1], useBias: false });
  const x = random.normal(random.key(1), [2, 4, 128]);
  const params = model.init(random.key(0), x);

  test.each([
    ["int8", 1 / 254],
    ["nf4", 0.16],
  ] as const)("keeps %s kernels near the floats they stand for", async (type, share) => {
    const small = nn.quantizeKernels(model, params, { type }, x);
    const { kernel } = small.params as unknown as { readonly kernel: nn.QuantizedKernel };
    const { codes, scales } = kernel;
    expect(codes.shape).toEqual(type === "int8" ? [4, 128, 3, 4] : [4, 64, 3, 4]);
    expect(scales.shape).toEqual(type === "int8" ? [1, 1, 3, 4] : [4, 8, 3, 4]);
    const [before, after] = [params, nn.dequantizeKernels(small)].map(
      ({ params: own }) => own?.kernel as Tensor,
    );
    const error = np.max(np.abs((before as Tensor).sub(after as Tensor)));
    expect(await error.item()).toBeLessThanOrEqual(
      share * (await np.max(scales).item()) * (type === "int8" ? 127 : 1),
    );
    const [own, plain] = [small, nn.dequantizeKernels(small)].map((p) => jit(() => model.apply(p, x))());
    expect(await values(own)).toEqual(await values(plain));
  });

  test("has the 16 numbers of NF4, the nearest of which each weight takes, and keeps zeros", async () => {
    const dense = nn.Dense({ features: 1, useBias: false });
    const kernel = np.linspace(-1, 1, 16).reshape([16, 1]).at(np.s(8, 12)).set(0);
    const own = nn.quantizeKernels(dense, { params: { kernel } }, {}, np.ones([1, 16]));
    const read = await values(nn.dequantizeKernels(own).params?.kernel);
    const block = [-1, -0.8666667, -0.73333335, -0.6];
    const table = [
      -1, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0, 0.0795803, 0.1609302,
    ];
    const all = [...table, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1];
    const nearest = (v: number) =>
      all.reduce((best, one) => (Math.abs(one - v) < Math.abs(best - v) ? one : best));
    for (const [i, v] of block.entries()) expect(read[i]).toBeCloseTo(nearest(v), 6);
    expect(read.slice(8, 12)).toEqual([0, 0, 0, 0]);
  });

  test.each(["int8", "nf4"] as const)(
    "has the experts of a mixture as %s, with the gradients of floats",
    async (type) => {
      const experts = nn.MoE({ numExperts: 4, features: 8 });
      const rows = random.normal(random.key(1), [2, 3, 16]);
      const whole = experts.init(random.key(0), rows);
      const small = nn.quantizeKernels(experts, whole, { type, targets: ["gate", "down"] }, rows);
      const { gate, up, router } = small.params as unknown as Record<string, nn.QuantizedKernel>;
      expect([gate?.codes.shape, gate?.scales.shape]).toEqual(
        type === "int8"
          ? [
              [4, 16, 8],
              [4, 1, 8],
            ]
          : [
              [4, 8, 8],
              [4, 4, 8],
            ],
      );
      expect([up, router]).toEqual([whole.params?.up, whole.params?.router]);
      const loss = (own: nn.Variables) => (z: Tensor) => np.sum(np.sin(experts.apply(own, z).output));
      const [own, plain] = [small, nn.dequantizeKernels(small)].map((p) => jit(grad(loss(p)))(rows));
      expect(await values(own)).toEqual(await values(plain));
    },
  );

  test("says which layers it cannot quantise", () => {
    const odd = nn.Dense({ features: 2 });
    const wrong = np.ones([1, 6]);
    const own = odd.init(random.key(0), wrong);
    expect(() => nn.quantizeKernels(odd, own, { type: "nf4" }, wrong)).toThrow(
      "inputs is 6: nf4 needs a multiple of 4",
    );
    expect(() => nn.quantizeKernels(odd, own, { targets: ["none"] }, wrong)).toThrow(
      "no linear layer matches",
    );
  });
});

describe("nn.lora beside quantised kernels", () => {
  const Model = nn.module("Model", () => (x: Tensor): Tensor => {
    const Layer = nn.module("Layer", () => (carry: Tensor): [Tensor, null] => [
      np.tanh(nn.Dense({ name: "inner", features: 16 })(carry)),
      null,
    ]);
    const variableAxes = { params: 0, lora: 0 };
    const Layers = nn.scan(Layer, { variableAxes, splitRngs: { params: true, lora: true }, length: 3 });
    return nn.Dense({ name: "last", features: 4 })(Layers({ name: "layers" })(x)[0]);
  });

  test.each([false, true])("has the gradients that floats have (DoRA: %s)", async (dora) => {
    const x = random.normal(random.key(1), [5, 16]);
    const model = Model();
    const params = model.init(random.key(0), x);
    const small = nn.quantizeKernels(model, params, { type: "nf4" }, x);
    const tuned = nn.lora(model, { rank: 2, targets: ["inner"], dora });
    const adapters = tuned.init(random.key(2), small, x);
    const moved = { lora: adapters.lora } as nn.Variables;
    const gradients = (base: nn.Variables) =>
      jit(grad((own: nn.Variables) => np.sum(np.square(tuned.apply(base, own, x)))))(moved);
    const [own, plain] = [small, nn.dequantizeKernels(small)].map((base) => gradients(base));
    const inner = (tree: unknown) =>
      (tree as { lora: { layers: { inner: { b: Tensor } } } }).lora.layers.inner.b;
    const [left, right] = [await values(inner(own)), await values(inner(plain))];
    expect(left.some((v) => v !== 0)).toBe(true);
    for (const [i, v] of left.entries()) expect(v).toBeCloseTo(right[i] ?? 0, 5);
    const merged = tuned.merge(small, adapters);
    const [a, b] = [await values(model.apply(merged, x)), await values(tuned.apply(small, adapters, x))];
    for (const [i, v] of a.entries()) expect(v).toBeCloseTo(b[i] ?? 0, 5);
  });
});
