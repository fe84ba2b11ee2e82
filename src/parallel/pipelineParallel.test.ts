import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Stack } from "../../test/conformance/goldens/models.js";
import { agreement, expectClose, expectTreeClose } from "../../test/support/goldens.js";
import { forAll, normal } from "../../test/support/parallelChecks.js";
import { simulateDevices } from "../engines/index.js";
import {
  grad,
  jit,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  random,
  shardMap,
  type Tensor,
  tree,
  valueAndGrad,
} from "../index.js";
import { range } from "../ir/shape.js";
import { printProgram } from "../ir/text/print.js";
import * as nn from "../nn/index.js";
import { executePipeline, initSharded, ModelParallelismWrapper, PipelineModule } from "./index.js";

const engine = simulateDevices(8);

const pipelineOf = (n: number, numMicrobatches: number) =>
  PipelineModule({
    modelAxisName: "pipe",
    numMicrobatches,
    moduleFn: () =>
      ModelParallelismWrapper({ modelAxisName: "pipe", moduleFn: (config) => Stack({ n, ...config }) }),
  });

describe("a pipeline", () => {
  test("says in its program what its loops are, forward and backward, with modules and without", () => {
    const mesh = Mesh.create({ pipe: 2 }, { engine });
    const x = normal(0, 4, 3);
    const model = pipelineOf(1, 4);
    const variables = initSharded(model.init, { mesh })(random.key(0), x);
    const options = { numMicrobatches: 4, modelAxisName: "pipe" };
    const runs = [
      (given: nn.Variables, input: Tensor) => model.apply(given, input),
      (_: nn.Variables, input: Tensor) => executePipeline((state: Tensor) => np.tanh(state), input, options),
    ];
    for (const run of runs) {
      const loss = (given: nn.Variables, input: Tensor) => lax.psum(np.sum(run(given, input)), "pipe");
      const inSpecs = [nn.getPartitionSpec(variables), P()] as const;
      const mapped = shardMap(loss, { mesh, inSpecs, outSpecs: P(), checkReplication: false });
      const text = printProgram(makeProgram(grad(mapped, { argnums: 1 }))(variables, x));
      expect(text).toContain("role: forward(2, 4, 1)");
      expect(text).toContain("role: backward(2, 4, 1)");
    }
  });

  test("equals the stages one after the other in value and gradient, whatever the sizes", async () => {
    await forAll(
      {
        numStages: fc.constantFrom(1, 2, 3, 4),
        numMicrobatches: fc.integer({ min: 1, max: 5 }),
        size: fc.integer({ min: 1, max: 2 }),
        width: fc.integer({ min: 1, max: 4 }),
        n: fc.constantFrom(1, 2),
        seed: fc.nat({ max: 1000 }),
      },
      async ({ numStages, numMicrobatches, size, width, n, seed }) => {
        const mesh = Mesh.create({ pipe: numStages }, { engine });
        const model = pipelineOf(n, numMicrobatches);
        const x = normal(seed, numMicrobatches * size, width);
        const weights = normal(seed + 1, ...x.shape);
        const variables = initSharded(model.init, { mesh })(random.key(seed), x);
        const specs = nn.getPartitionSpec(variables);
        const piped = shardMap(
          (given: nn.Variables, input: Tensor) => lax.psum(model.apply(given, input), "pipe"),
          { mesh, inSpecs: [specs, P()], outSpecs: P(), checkReplication: false },
        );
        const stage = Stack({ n });
        const plain = (given: nn.Variables, input: Tensor) =>
          range(numStages).reduce((h, s) => {
            const own = tree.map((p: Tensor) => lax.indexInDim(p, s, 0, false), nn.unbox(given));
            const { params } = own as { params: { ModelParallelismWrapper_0: { sharded: nn.VariableTree } } };
            return stage.apply({ params: params.ModelParallelismWrapper_0.sharded }, h);
          }, input);
        const run = (fn: typeof plain) => {
          const loss = (given: nn.Variables, input: Tensor): [Tensor, Tensor] => {
            const y = fn(given, input);
            return [np.sum(np.multiply(np.tanh(y), weights)), y];
          };
          const [[, y], grads] = jit(valueAndGrad(loss, { hasAux: true, argnums: [0, 1] }), { mesh })(
            variables,
            x,
          );
          return { y, grads };
        };
        const [actual, expected] = [run(piped), run(plain)];
        await expectClose(actual.y, expected.y, { rtol: 1e-5, atol: 1e-5 });
        await expectTreeClose(actual.grads, expected.grads, agreement.gradient);
      },
    );
  });

  const mesh = Mesh.create({ pipe: 2 }, { engine });
  const onStages = (fn: () => Tensor) =>
    shardMap(() => np.expandDims(fn(), 0), { mesh, inSpecs: P(), outSpecs: P("pipe") })();

  test("gives results on the last stage and zeros elsewhere", async () => {
    const y = onStages(() =>
      executePipeline((x: Tensor) => np.add(x, 1), np.ones([4]), {
        numMicrobatches: 2,
        modelAxisName: "pipe",
      }),
    );
    expect(await y.js()).toEqual([
      [0, 0, 0, 0],
      [3, 3, 3, 3],
    ]);
  });

  test("passes further arguments on to the stages", async () => {
    const Scaled = nn.module(
      "Scaled",
      () =>
        (x: Tensor, factor: Tensor, { shift }: { shift: number }) =>
          x.mul(factor).add(shift),
    );
    const model = PipelineModule({ modelAxisName: "pipe", numMicrobatches: 2, moduleFn: () => Scaled() });
    const y = onStages(() => model.apply({}, np.ones([2]), np.array(3), { shift: 1 }));
    expect(await y.js()).toEqual([
      [0, 0],
      [13, 13],
    ]);
  });

  test("takes trees of tensors", async () => {
    const y = onStages(() => {
      const out = executePipeline(
        ({ h, mask }: { h: Tensor; mask: Tensor }) => ({ h: h.add(mask), mask }),
        { h: np.zeros([4, 2]), mask: np.arange(4).astype("float32").reshape([4, 1]) },
        { numMicrobatches: 4, modelAxisName: "pipe" },
      );
      return out.h;
    });
    await expectClose(
      lax.indexInDim(y, 1, 0, false),
      np
        .array([0, 2, 4, 6], "float32")
        .reshape([4, 1])
        .mul(np.ones([2])),
    );
  });

  test("drops other elements in every microbatch", async () => {
    const Dropping = nn.module(
      "Dropping",
      () => (x: Tensor) => nn.Dropout({ rate: 0.5, deterministic: false })(x),
    );
    const model = PipelineModule({ modelAxisName: "pipe", numMicrobatches: 4, moduleFn: () => Dropping() });
    const rngs = { dropout: random.key(3) };
    const y = onStages(() => model.with({ rngs }).apply({}, np.ones([4, 32])));
    const rows = ((await y.js()) as number[][][])[1]?.map((row) => row.join());
    expect(new Set(rows).size).toBe(4);
  });

  test.each<[string, () => Tensor, string]>([
    [
      "a batch that does not split",
      () => pipelineOf(1, 4).init(random.key(0), np.ones([30, 2])).params as never,
      "[executePipeline] batch 30 does not split into 4 microbatches (30 / 4 = 7.5): use a batch that is a multiple of 4",
    ],
    [
      "no microbatches",
      () => executePipeline((x: Tensor) => x, np.ones([4]), { numMicrobatches: 0, modelAxisName: "pipe" }),
      "numMicrobatches must be an integer of at least 1, got 0",
    ],
    [
      "a stage that changes the shape",
      () =>
        executePipeline((x: Tensor) => np.concatenate([x, x], 1), np.ones([4, 2]), {
          numMicrobatches: 2,
          modelAxisName: "pipe",
        }),
      "[executePipelineStep] the stage turns f32[2,2] into f32[2,4]: every stage must keep shape and type",
    ],
    [
      "a missing axis",
      () => executePipeline((x: Tensor) => x, np.ones([4]), { numMicrobatches: 2, modelAxisName: "stage" }),
      '[executePipeline] unknown axis "stage": the axes here are "pipe"',
    ],
  ])("refuses %s", (_what, call, message) => {
    expect(() => onStages(call)).toThrow(message);
  });
});
