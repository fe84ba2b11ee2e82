import { describe, expect, test } from "vitest";
import { GoldenLayer } from "../../test/conformance/goldens/areas/circularPipeline.js";
import { simulateDevices } from "../engines/simulateDevices.js";
import { Mesh, np, P, random, type Tensor } from "../index.js";
import * as nn from "../nn/index.js";
import { CircularPipeline, type CircularPipelineConfig } from "./circularPipeline.js";

const embed = 4;
type Settings = Omit<CircularPipelineConfig, "layers">;
const pipelineWith = (config: Settings) =>
  CircularPipeline({ layers: GoldenLayer({ parent: null }), ...config });

describe("bad configurations are reported all at once, before anything runs", () => {
  test("of counts that do not fit", () => {
    const mesh = Mesh.create({ stage: 4 }, { engine: simulateDevices() });
    const config: Settings = {
      mesh,
      numStages: 6,
      numPipelineMicrobatches: 5,
      numPipelineRepeats: 2,
      numLayers: 10,
      logicalAxisRules: [["mlp", "modle"]],
    };
    expect(() => pipelineWith(config)).toThrow(
      [
        "[CircularPipeline]",
        "  numPipelineMicrobatches 5 is not a multiple of the 6 stages (5 / 6 = 0.8333333333333334): use 6",
        "  5 microbatches are too few to go round 6 stages 2 times: the first comes back after 6 x 1 = 6 iterations, use at least that many",
        "  numLayers 10 is not stages x repeats x layers per stage (6 x 2 x 1 = 12)",
        '  6 stages do not spread over the 4 devices of mesh axis "stage" (6 / 4 = 1.5): use a multiple of 4',
        '  the rule for "mlp" names axis "modle", which is not in Mesh {stage: 4} on reference',
      ].join("\n"),
    );
  });

  test("of numbers that are none", () => {
    expect(() => pipelineWith({ numPipelineMicrobatches: 0, numPipelineRepeats: 1.5 })).toThrow(
      "numPipelineMicrobatches must be an integer of at least 1, got 0\n  numPipelineRepeats must be",
    );
  });

  test("of arguments that do not fit", () => {
    const mesh = Mesh.create({ data: 2, stage: 2 }, { engine: simulateDevices() });
    const pipeline = pipelineWith({ mesh, numPipelineMicrobatches: 4 });
    const ids = np.zeros([3, 2]).astype("int32");
    expect(() => pipeline.init(random.key(0), np.zeros([6, 2, 4]), ids, ids)).toThrow(
      [
        "[CircularPipeline]",
        "  batch 6 does not split into 4 microbatches (6 / 4 = 1.5): use a batch that is a multiple of 4",
        "  segmentIds [3,2] must have the batch of the inputs, 6, in dim 0",
        "  positions [3,2] must have the batch of the inputs, 6, in dim 0",
      ].join("\n"),
    );
    expect(() => pipeline.init(random.key(0), np.zeros([4, 2, 4]))).toThrow(
      'microbatches of 1 (4 / 4) do not split over "data" (1 / 2 = 0.5): use a batch that is a multiple of 8',
    );
  });

  test("of too few microbatches for delayed rounds", () => {
    const config = { numStages: 4, numPipelineMicrobatches: 4, numPipelineRepeats: 2 };
    expect(() => pipelineWith({ ...config, pipelineDelayActivationForwarding: true })).toThrow(
      "too few to go round 4 stages 2 times with delayed forwarding",
    );
  });

  test("of weights gathered both once and once a repeat", () => {
    const config = { numStages: 2, pipelineFsdpAgOnce: true, pipelineFsdpAgPerRepeat: true };
    expect(() => pipelineWith(config)).toThrow("exclude each other");
  });

  test("of a mesh without an axis for the stages", () => {
    const mesh = Mesh.create({ data: 2 }, { engine: simulateDevices() });
    expect(() => pipelineWith({ mesh, numStages: 2 })).toThrow(
      '[CircularPipeline] Mesh {data: 2} on reference has no axis "stage" for the stages',
    );
    expect(pipelineWith({ mesh, stageAxisName: "data" }).settings.numStages).toBe(2);
  });

  test("of rules that do not split the stages", () => {
    const mesh = Mesh.create({ stage: 2, model: 2 }, { engine: simulateDevices() });
    expect(() => pipelineWith({ mesh, logicalAxisRules: [["layers", "stage"]] })).toThrow(
      '[CircularPipeline] no rule splits "activation_stage" over "stage", the axis of the stages: add ["activation_stage", "stage"]',
    );
  });

  test("of a class in the place of layers", () => {
    const layers = GoldenLayer as unknown as CircularPipelineConfig["layers"];
    expect(() => CircularPipeline({ layers, numStages: 2 })).toThrow(
      "[CircularPipeline] layers is the class GoldenLayer: give an instance, GoldenLayer({ parent: null })",
    );
    const none = (x: Tensor) => x;
    expect(() => CircularPipeline({ layers: none as unknown as typeof layers })).toThrow(
      "[CircularPipeline] layers must be a module, got function",
    );
  });
});

describe("what does not fit a pipeline is refused with its name", () => {
  const base: Settings = { numStages: 2, numPipelineMicrobatches: 4, numPipelineRepeats: 2 };
  const x = np.zeros([4, embed]);

  test.each([
    ["shape", (h: Tensor) => np.concatenate([h, h], -1), "f32[1,4] into f32[1,8]"],
    ["data type", (h: Tensor) => h.astype("float16"), "f32[1,4] into f16[1,4]"],
  ])("layers that change the %s, at init", (_, fn, types) => {
    const layers = nn.module("Changing", () => fn)({ parent: null });
    expect(() => CircularPipeline({ ...base, layers }).init(random.key(0), x)).toThrow(
      `[CircularPipeline] layers Changing turn ${types}`,
    );
  });

  test("axes of the rules around the call that the mesh lacks, at init", () => {
    const mesh = Mesh.create({ stage: 2 }, { engine: simulateDevices() });
    const rules: nn.LogicalRules = [
      ["activation_stage", "stage"],
      ["layers", "stage"],
      ["mlp", "modle"],
    ];
    const pipeline = pipelineWith({ ...base, mesh });
    expect(() => nn.logicalAxisRules(rules, () => pipeline.init(random.key(0), x))).toThrow(
      '[CircularPipeline] of GoldenLayer, with the rules around the call: the rule for "mlp" names axis "modle"',
    );
  });

  test("weights of another number of repeats or stages", () => {
    const pipeline = pipelineWith(base);
    const init = (more: Settings) =>
      nn.unbox<nn.Variables>(pipelineWith({ ...base, ...more }).init(random.key(0), x));
    expect(() => pipeline.apply(init({ numPipelineRepeats: 3 }), x)).toThrow(
      "the weight params/wi is [3,2,4,8], but must start with [repeats, stages] = [2,2]",
    );
    expect(() => pipeline.apply(init({ numPipelineRepeats: 1 }), x)).toThrow("params/wo is [2,8,4]");
    const once = pipelineWith({ ...base, numPipelineRepeats: 1 });
    expect(() => once.apply(init({ numPipelineRepeats: 3 }), x)).toThrow("must start with [stages] = [2]");
  });

  test("a tree of specs unlike that of the weights", () => {
    const pipeline = pipelineWith(base);
    const variables = nn.unbox<nn.Variables>(pipeline.init(random.key(0), x));
    const apply = (spec: unknown) => pipeline.apply(variables, x, null, null, true, "train", spec);
    expect(() => apply({ params: { wi: P("circular_repeats", "layers"), bias: P() } })).toThrow(
      [
        "[CircularPipeline]",
        "  logicalPartitionSpec has no spec for the weight params/wo",
        "  logicalPartitionSpec has params/bias, which is not a weight: use what getWeightSharding gives",
      ].join("\n"),
    );
    expect(() => apply({ params: { wi: P(), wo: "layers" } })).toThrow(
      "has a string at params/wo, not a spec",
    );
  });

  test.each(["pipelineFsdpAgOnce", "pipelineFsdpAgPerRepeat"] as const)("%s without names", (option) => {
    const pipeline = pipelineWith({ ...base, [option]: true });
    const boxed = pipeline.init(random.key(0), x);
    expect(() => pipeline.apply(nn.unbox<nn.Variables>(boxed), x)).toThrow(
      "[CircularPipeline] weights can be gathered over fsdp only where their dims have names: give logicalPartitionSpec",
    );
    expect(pipeline.apply(boxed, x).shape).toEqual(x.shape);
    expect(() => pipeline.allGatherOverFsdp(nn.unbox<nn.Variables>(boxed), null)).toThrow(
      "logicalPartitionSpec",
    );
  });
});
