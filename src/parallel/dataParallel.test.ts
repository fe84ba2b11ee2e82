import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MLP } from "../../test/conformance/goldens/models.js";
import { agreement, expectClose, expectTreeClose } from "../../test/support/goldens.js";
import { forAll, messagesOf, normal } from "../../test/support/parallelChecks.js";
import { compileProgram } from "../compiler/compile.js";
import { simulateDevices } from "../engines/index.js";
import {
  costAnalysis,
  grad,
  jit,
  Mesh,
  np,
  P,
  random,
  shardMap,
  type Tensor,
  valueAndGrad,
} from "../index.js";
import * as nn from "../nn/index.js";
import { partitionCall } from "../spmd/run/call.js";
import {
  gatherArrayWithMeanGrads,
  gatherParams,
  initSharded,
  shardModuleParams,
  shardParams,
  syncGradients,
} from "./index.js";

const engine = simulateDevices(8);

/** Runs a function on the devices of a mesh that needs no arguments. */
function onDevices<R>(mesh: Mesh, fn: () => R): R {
  return shardMap(fn, { mesh, inSpecs: P(), outSpecs: P(), checkReplication: false })();
}

describe("fully sharded data parallelism", () => {
  test("equals the unsharded model in parameters, loss and gradients, whatever the sizes", async () => {
    await forAll(
      {
        data: fc.constantFrom(1, 2),
        fsdp: fc.constantFrom(2, 3, 4),
        inputs: fc.integer({ min: 1, max: 9 }),
        hidden: fc.integer({ min: 1, max: 12 }),
        out: fc.integer({ min: 1, max: 6 }),
        minWeightSize: fc.constantFrom(0, 10, 40, 2 ** 18),
        seed: fc.nat({ max: 1000 }),
      },
      async ({ data, fsdp, inputs, hidden, out, minWeightSize, seed }) => {
        const mesh = Mesh.create({ data, fsdp }, { engine });
        const rows = P(["data", "fsdp"]);
        const [x, t] = [normal(seed, 2 * data * fsdp, inputs), normal(seed + 1, 2 * data * fsdp, out)];
        const config = { hidden, out };
        const plain = MLP(config);
        const sharded = shardModuleParams(MLP, "fsdp", { minWeightSize })(config);
        const lossOf = (model: typeof plain) => (variables: nn.Variables, input: Tensor, target: Tensor) =>
          np.mean(np.square(np.subtract(model.apply(variables, input), target)));

        const variables = initSharded(sharded.init, { mesh, inSpecs: [P(), rows] })(random.key(seed), x);
        const specs = nn.getPartitionSpec(variables);
        const step = shardMap(
          (params: nn.Variables, input: Tensor, target: Tensor) => {
            const [loss, grads] = valueAndGrad(lossOf(sharded))(params, input, target);
            const all = mesh.axisNames;
            return { loss: syncGradients(loss, all), grads: syncGradients(grads, all) };
          },
          {
            mesh,
            inSpecs: [specs, rows, rows],
            outSpecs: { loss: P(), grads: specs },
            checkReplication: false,
          },
        );
        const actual = jit(step)(variables, x, t);

        const whole = plain.init(random.key(seed), x);
        await expectTreeClose(nn.unbox(variables), whole);
        const [loss, grads] = valueAndGrad(lossOf(plain))(whole, x, t);
        await expectClose(actual.loss, loss);
        await expectTreeClose(nn.unbox(actual.grads), grads, agreement.gradient);
      },
    );
  });

  test("needs less memory a device the more devices there are", () => {
    const measured = [1, 2, 4].map((fsdp) => {
      const mesh = Mesh.create({ fsdp }, { engine });
      const model = shardModuleParams(MLP, "fsdp", { minWeightSize: 0 })({ hidden: 256, out: 64 });
      const x = np.zeros([4, 64]);
      const variables = initSharded(model.init, { mesh, inSpecs: [P(), P("fsdp")] })(random.key(0), x);
      const specs = nn.getPartitionSpec(variables);
      const step = shardMap(
        (params: nn.Variables, input: Tensor) =>
          syncGradients(grad((v: nn.Variables) => np.mean(np.square(model.apply(v, input))))(params), "fsdp"),
        { mesh, inSpecs: [specs, P("fsdp")], outSpecs: specs, checkReplication: false },
      );
      const { program } = partitionCall(step, [variables, x], {});
      const { inputBytes, outputBytes } = costAnalysis(step)(variables, x);
      return {
        inputBytes,
        memoryBytes: compileProgram(program, { mesh }).arenaBytes + inputBytes + outputBytes,
      };
    });
    const [whole, half, quarter] = measured;
    if (!whole || !half || !quarter) throw new Error("three sizes were measured");
    const parameterBytes = 4 * (64 * 256 + 256 + 2 * 256 + 256 * 64 + 64);
    expect([whole, half, quarter].map(({ inputBytes }, i) => inputBytes - (4 * 64 * 4) / 2 ** i)).toEqual([
      parameterBytes,
      parameterBytes / 2,
      parameterBytes / 4,
    ]);
    expect(half.memoryBytes).toBeLessThan(whole.memoryBytes);
    expect(quarter.memoryBytes).toBeLessThan(half.memoryBytes);
  });

  test("works around a function that calls modules", async () => {
    const mesh = Mesh.create({ fsdp: 2 }, { engine });
    const Model = nn.module("Model", () => (x: Tensor) => {
      const layer = shardModuleParams((input: Tensor) => nn.Dense({ features: 4 })(input), "fsdp", {
        minWeightSize: 0,
      });
      return layer(x);
    });
    const variables = initSharded(Model().init, { mesh })(random.key(1), np.ones([1, 3]));
    expect(nn.getPartitionSpec(variables)).toMatchObject({
      params: { Dense_0: { kernel: P(null, "fsdp"), bias: P("fsdp") } },
    });
  });

  test("gathers in the type it is told", () => {
    const mesh = Mesh.create({ fsdp: 2 }, { engine });
    const whole = onDevices(mesh, () =>
      gatherArrayWithMeanGrads(np.ones([2, 2]), -1, "fsdp", { gatherDtype: "bfloat16" }),
    );
    expect([whole.dtype, whole.shape]).toEqual(["bfloat16", [2, 4]]);
  });
});

describe("shardParams", () => {
  const mesh = Mesh.create({ fsdp: 4 }, { engine });

  test("warns of a parameter that the axis splits already, with its path", async () => {
    const { warnings } = await messagesOf(() =>
      onDevices(mesh, () => {
        const params = { layer: { kernel: new nn.Partitioned(np.ones([8, 2]), [null, "fsdp"]) } };
        const { layer } = shardParams(params, "fsdp", 0);
        return layer.kernel.value;
      }),
    );
    expect(warnings).toEqual([
      '[shardParams] the parameter "layer/kernel" [8,2] with names (null, "fsdp") is split over axis "fsdp" already: it stays as it is',
    ]);
  });

  test("tells of a parameter that is too small, or that the axis cannot split", async () => {
    const { infos, warnings } = await messagesOf(() =>
      onDevices(mesh, () => shardParams({ bias: np.ones([8]), odd: np.ones([7, 5]) }, "fsdp", 8)),
    );
    expect(warnings).toEqual([]);
    expect(infos).toEqual([
      '[shardParams] the parameter "bias" [8] with names (null) stays whole: it has 8 elements, and more than 8 are split over axis "fsdp"',
      '[shardParams] the parameter "odd" [7,5] with names (null, null) stays whole: axis "fsdp" of size 4 divides none of its free dims',
    ]);
  });

  test("names the module of a parameter", async () => {
    const Outer = nn.module(
      "Outer",
      () => (x: Tensor) => shardModuleParams(MLP, "fsdp")({ hidden: 2, out: 1 })(x),
    );
    const { infos } = await messagesOf(() =>
      initSharded(Outer().init, { mesh })(random.key(0), np.ones([1, 2])),
    );
    expect(infos[0]).toContain('"params/Dense_0/bias" of the module /Map_variablesMLP_0 [2]');
  });

  test("leaves dims alone that other axes split, and undoes in gatherParams", async () => {
    const both = Mesh.create({ fsdp: 2, model: 2 }, { engine });
    const value = normal(3, 4, 8);
    const result = shardMap(
      (whole: Tensor) => {
        const params = { w: new nn.Partitioned(whole, [null, "model"]) };
        const parts = shardParams(params, "fsdp", 0);
        expect(parts.w.names).toEqual(["fsdp", "model"]);
        expect(parts.w.value.shape).toEqual([2, 4]);
        const gathered = gatherParams(parts, "fsdp");
        expect(gathered.w.names).toEqual([null, "model"]);
        return gathered.w.value;
      },
      { mesh: both, inSpecs: P(null, "model"), outSpecs: P(null, "model"), checkReplication: false },
    )(value);
    await expectClose(result, value, agreement.exact);
  });

  test.each<[string, () => unknown, string]>([
    [
      "an unknown axis",
      () => shardParams({ w: np.ones([4]) }, "data"),
      '[shardParams] unknown axis "data": the axes here are "fsdp"',
    ],
    [
      "an unknown axis in gatherParams",
      () => gatherParams({ w: np.ones([4]) }, "data"),
      '[gatherParams] unknown axis "data"',
    ],
    [
      "an unknown axis in syncGradients",
      () => syncGradients({ w: np.ones([4]) }, ["fsdp", "data"]),
      '[syncGradients] unknown axis "data"',
    ],
    [
      "a leaf that is not a parameter",
      () => shardParams({ a: { w: "text" } }, "fsdp"),
      '[shardParams] the leaf at "a/w" is not a parameter',
    ],
    [
      "an axis that is not the innermost of a dim",
      () => gatherParams({ w: new nn.Partitioned(np.ones([4]), [["fsdp", "model"]]) }, "fsdp"),
      'dim 0 of the parameter "w" is split over ["fsdp","model"]: gather "model", the innermost axis, before "fsdp"',
    ],
  ])("refuses %s", (_what, call, message) => {
    expect(() =>
      onDevices(mesh, () => {
        call();
        return np.ones([]);
      }),
    ).toThrow(message);
  });
});
