import { describe, expect, test } from "vitest";
import { GoldenLayer } from "../../test/conformance/goldens/areas/circularPipeline.js";
import { expectNear } from "../../test/support/near.js";
import { hostEngine } from "../engines/host.js";
import { grad, jit, Mesh, makeProgram, np, P, random, Tensor, tree, valueAndGrad } from "../index.js";
import { isCollective } from "../ir/opFacts.js";
import { forEachEqn, type Program } from "../ir/program.js";
import { at, range } from "../ir/shape.js";
import { printProgram } from "../ir/text/print.js";
import * as nn from "../nn/index.js";
import { costAnalysis } from "../spmd/inspect/cost.js";
import { explainSharding } from "../spmd/inspect/explain.js";
import { PartitionSpec } from "../spmd/mesh/partitionSpec.js";
import { partitionCall } from "../spmd/run/call.js";
import { checkpointPolicies } from "../transforms/derivatives/remat.js";
import { simplify } from "../transforms/rewrite/simplify.js";
import {
  CircularPipeline,
  type CircularPipelineConfig,
  type CircularPipelineInstance,
} from "./circularPipeline.js";

const embed = 4;
const length = 3;

type Settings = Omit<CircularPipelineConfig, "layers">;

const pipelineWith = (config: Settings) =>
  CircularPipeline({ layers: GoldenLayer({ parent: null }), ...config });

/** Variables of all layers, [repeats, stages, …] or [stages, …], without boxes. */
function variablesOf(pipeline: CircularPipelineInstance, x: Tensor): nn.Variables {
  return nn.unbox<nn.Variables>(pipeline.init(random.key(1), x));
}

/** The layers one after the other on the whole batch. */
function sequential(
  variables: nn.Variables,
  x: Tensor,
  { stages, repeats }: { stages: number; repeats: number },
  segmentIds: Tensor | null = null,
  positions: Tensor | null = null,
): Tensor {
  const layer = GoldenLayer();
  const [params] = Object.values(variables.params ?? {});
  return range(repeats * stages).reduce((h, i) => {
    const own = tree.map(
      (w: Tensor) => {
        const flat = np.reshape(w, [repeats * stages, ...w.shape.slice(repeats > 1 ? 2 : 1)]);
        return np.squeeze(np.take(flat, np.array([i]).astype("int32"), 0), 0);
      },
      params as Record<string, Tensor>,
    );
    return layer.apply({ params: own }, h, segmentIds, positions);
  }, x);
}

async function expectTensorNear(
  actual: Tensor,
  expected: Tensor,
  tolerance: number,
  what: string,
): Promise<void> {
  expectNear(await actual.data(), await expected.data(), tolerance, what);
}

/** A function's value, beside which stands a loss, and the gradients of that by its arguments. */
const withGradients = (f: (v: nn.Variables, a: Tensor) => Tensor) =>
  valueAndGrad(
    (v: nn.Variables, a: Tensor): [Tensor, Tensor] => {
      const y = f(v, a);
      return [np.sum(np.sin(y)), y];
    },
    { argnums: [0, 1], hasAux: true },
  );

/** Weights and inputs for layers in turn, and what comes of them one after the other. */
function inTurn(pipeline: CircularPipelineInstance, ids: boolean) {
  const { numStages: stages, numRepeats: repeats, numMicrobatches } = pipeline.settings;
  const batch = numMicrobatches * 2;
  const x = random.normal(random.key(5), [batch, length, embed]);
  const positions = ids ? np.reshape(np.arange(batch * length), [batch, length]).astype("int32") : null;
  const segmentIds = positions && np.remainder(positions, 3).astype("int32");
  const variables = variablesOf(pipeline, x);
  const [[, y], grads] = jit(
    withGradients((v, a) => sequential(v, a, { stages, repeats }, segmentIds, positions)),
  )(variables, x);
  return { x, positions, segmentIds, variables, y, grads: tree.leaves(grads) as Tensor[] };
}

/** Layers in turn do not know how a pipeline goes about them, so pipelines of the same layers share them. */
const shared = new Map<string, ReturnType<typeof inTurn>>();

function sharedInTurn(pipeline: CircularPipelineInstance, ids: boolean): ReturnType<typeof inTurn> {
  const { numStages, numRepeats, numMicrobatches } = pipeline.settings;
  const key = `${numStages} ${numRepeats} ${numMicrobatches} ${ids}`;
  const known = shared.get(key) ?? inTurn(pipeline, ids);
  shared.set(key, known);
  return known;
}

/** A value that is made when it is first asked for. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Compares value and gradients of a pipeline with those of its layers one after the other. */
async function expectSequential(
  pipeline: CircularPipelineInstance,
  { mesh, ids = false, named = false }: { mesh?: Mesh; ids?: boolean; named?: boolean } = {},
): Promise<void> {
  const { x, positions, segmentIds, variables, ...want } = sharedInTurn(pipeline, ids);
  const logical = named ? pipeline.getWeightSharding(x) : null;
  const [[, y], grads] = jit(
    withGradients((v, a) => pipeline.apply(v, a, segmentIds, positions, true, "train", logical)),
    mesh ? { mesh } : {},
  )(variables, x);
  await expectTensorNear(y, want.y, 1e-5, "the value");
  for (const [i, { path, leaf }] of tree.flattenWithPath(grads).entries()) {
    await expectTensorNear(leaf as Tensor, at(want.grads, i), 1e-4, `the gradient ${path}`);
  }
}

/** `PIPELINES=all` tries every combination; otherwise those are left out that say nothing new. */
const everything = process.env.PIPELINES === "all";

test("says in its program what its loops are, forward and backward", () => {
  const pipeline = pipelineWith({ numStages: 2, numPipelineRepeats: 3, numPipelineMicrobatches: 4 });
  const x = np.ones([8, length, embed]);
  const variables = variablesOf(pipeline, x);
  const loss = (given: nn.Variables) => np.sum(pipeline.apply(given, x));
  const text = printProgram(makeProgram(grad(loss))(variables));
  expect(text).toContain("role: forward(2, 4, 3)");
  expect(text).toContain("role: backward(2, 4, 3)");
});

describe("a circular pipeline equals its layers one after the other", () => {
  const combinations = [1, 2, 4, 8].flatMap((numStages) =>
    [1, 2, 3, 4].flatMap((numPipelineRepeats) =>
      [false, true].flatMap((delay) =>
        [1, 2, 3]
          .map((perStage) => perStage * numStages)
          .filter((micro) => numPipelineRepeats === 1 || micro >= numStages * (delay ? 2 : 1))
          .filter((micro) => everything || micro * numPipelineRepeats <= 16)
          .map((micro) => ({ numStages, numPipelineRepeats, delay, micro })),
      ),
    ),
  );

  /** Every other one, so that all stages still meet all repeats, and both of them each number of microbatches. */
  const tried = combinations.filter(
    ({ numStages, numPipelineRepeats, micro, delay }) =>
      everything || (numPipelineRepeats + micro / numStages + Number(delay)) % 2 === 0,
  );

  test.each(tried)(
    "$numStages stages, $numPipelineRepeats repeats, $micro microbatches, delay $delay, in a scan with remat",
    async ({ numStages, numPipelineRepeats, delay, micro }) => {
      const pipeline = pipelineWith({
        numStages,
        numPipelineRepeats,
        numPipelineMicrobatches: micro,
        pipelineDelayActivationForwarding: delay,
      });
      await expectSequential(pipeline, { ids: micro === numStages });
    },
  );

  const loops = [
    { scan: false, remat: false },
    { scan: false, remat: true },
    { scan: true, remat: false },
  ];
  /** Written out, four stages are the longest programs: a second repeat is tried without remat, delays with it. */
  const written = combinations
    .filter(
      ({ numStages, numPipelineRepeats, micro, delay }) =>
        everything ||
        (micro === 2 * numStages &&
          numPipelineRepeats <= 2 &&
          (numStages <= 2 || (numStages === 4 && delay === (numPipelineRepeats === 1)))),
    )
    .flatMap((combination) => loops.map((loop) => ({ ...combination, ...loop })))
    .filter(({ numStages, delay, scan, remat }) => everything || scan || numStages < 4 || remat === delay);

  test.each(written)(
    "$numStages stages, $numPipelineRepeats repeats, $micro microbatches, delay $delay, scan $scan, remat $remat",
    async ({ numStages, numPipelineRepeats, micro, delay, scan, remat }) => {
      const pipeline = pipelineWith({
        numStages,
        numPipelineRepeats,
        numPipelineMicrobatches: micro,
        pipelineDelayActivationForwarding: delay,
        scanPipelineIterations: scan,
        setRematPolicyOnPipelineIterations: remat,
      });
      await expectSequential(pipeline, { ids: true });
    },
  );

  test.each([
    ["four stages", { stage: 4 }, {}],
    ["eight stages", { stage: 8 }, { numPipelineMicrobatches: 8 }],
    ["two stages on every device", { stage: 2 }, { numStages: 4 }],
    ["stages, data and model", { data: 2, stage: 2, model: 2 }, { numPipelineMicrobatches: 4 }],
    ["delayed forwarding", { stage: 4 }, { pipelineDelayActivationForwarding: true }],
    ["no remat", { stage: 4 }, { setRematPolicyOnPipelineIterations: false }],
    ["fully sharded weights gathered once", { fsdp: 2, stage: 4 }, { pipelineFsdpAgOnce: true }],
    ["fully sharded weights", { fsdp: 2, stage: 4 }, {}],
  ] as const)("over a mesh: %s", async (_, axes, more) => {
    const mesh = Mesh.create(axes, { engine: hostEngine });
    const pipeline = pipelineWith({ mesh, numPipelineMicrobatches: 8, numPipelineRepeats: 2, ...more });
    await expectSequential(pipeline, { mesh, ids: true, named: "fsdp" in axes });
  });

  test.each([
    [1, {}],
    [2, {}],
    [3, {}],
    [3, { numPipelineMicrobatches: 2 }],
    [2, { pipelineDelayActivationForwarding: true }],
    [2, { scanPipelineIterations: false }],
    [2, { setRematPolicyOnPipelineIterations: false }],
  ] as const)("with weights gathered once a repeat: %i repeats, %j", async (numPipelineRepeats, more) => {
    const mesh = Mesh.create({ fsdp: 2, stage: 2 }, { engine: hostEngine });
    const logicalAxisRules: nn.LogicalRules = [
      ["activation_stage", "stage"],
      ["activation_batch", "fsdp"],
      ["layers", "stage"],
      ["embed", "fsdp"],
    ];
    const config = { numPipelineMicrobatches: 4, numPipelineRepeats, logicalAxisRules, ...more };
    const pipeline = pipelineWith({ mesh, pipelineFsdpAgPerRepeat: true, ...config });
    await expectSequential(pipeline, { mesh, ids: true, named: true });
  });

  test("with several layers a stage, scanned", async () => {
    const Stage = nn.module("Stage", () => (x: Tensor) => {
      const Layers = nn.scan(
        nn.module("Step", () => (h: Tensor): [Tensor, null] => [
          np.tanh(nn.Dense({ features: embed })(h)),
          null,
        ]),
        { variableAxes: { params: 0 }, splitRngs: { params: true }, length: 3 },
      );
      return Layers()(x);
    });
    const pipeline = CircularPipeline({
      layers: Stage({ parent: null }),
      numStages: 2,
      numPipelineMicrobatches: 4,
      numLayers: 12,
      numLayersPerStage: 3,
    });
    expect(pipeline.settings.numRepeats).toBe(2);
    const x = random.normal(random.key(0), [8, embed]);
    const variables = pipeline.init(random.key(1), x);
    const [params] = Object.values(variables.params ?? {});
    let want = x;
    for (const i of range(4)) {
      const own = tree.map(
        (w: Tensor) =>
          np.squeeze(np.take(np.reshape(w, [4, ...w.shape.slice(2)]), np.array([i]).astype("int32"), 0), 0),
        params as Record<string, Tensor>,
      );
      want = at(Stage().apply({ params: own }, want) as [Tensor, null], 0) as Tensor;
    }
    await expectTensorNear(pipeline.apply(variables, x), want, 1e-5, "the value");
  });

  test("every stage and iteration drops other elements", async () => {
    const Dropped = nn.module(
      "Dropped",
      () => (x: Tensor, _ids: unknown, _places: unknown, deterministic: boolean) =>
        nn.Dropout({ rate: 0.5 })(x, { deterministic }),
    );
    const pipeline = CircularPipeline({
      layers: Dropped({ parent: null }),
      numStages: 2,
      numPipelineMicrobatches: 2,
    });
    const x = np.ones([2, 64]);
    const y = pipeline.with({ rngs: { dropout: random.key(0) } }).apply({}, x, null, null, false);
    const values = Array.from(await y.data());
    const [first, second] = [values.slice(0, 64), values.slice(64)];
    expect(new Set(values)).toEqual(new Set([0, 4]));
    expect(first).not.toEqual(second);
    expect(Array.from(await pipeline.apply({}, x).data())).toEqual(values.map(() => 1));
  });
});

describe("the program of a device is a pipeline", () => {
  const mesh = Mesh.create({ fsdp: 2, stage: 4, model: 2 }, { engine: hostEngine });
  const rules: nn.LogicalRules = [
    ["activation_stage", "stage"],
    ["activation_batch", "fsdp"],
    ["layers", "stage"],
    ["embed", "fsdp"],
    ["mlp", "model"],
  ];
  const x = np.zeros([16, length, embed]);

  const makeParts = (more: Partial<Settings>, backward: boolean) => {
    const pipeline = pipelineWith({
      mesh,
      numPipelineMicrobatches: 8,
      numPipelineRepeats: 2,
      logicalAxisRules: rules,
      ...more,
    });
    const logical = pipeline.getWeightSharding(x) as { params: unknown };
    const variables = variablesOf(pipeline, x);
    const forward = (v: nn.Variables, a: Tensor) => pipeline.apply(v, a, null, null, true, "train", logical);
    const loss = (v: nn.Variables, a: Tensor) => np.sum(np.sin(forward(v, a)));
    const fn: (v: nn.Variables, a: Tensor) => unknown = backward ? grad(loss) : forward;
    const options = {
      mesh,
      inShardings: [{ params: { layers: pipeline.physicalSpec(logical).params } }, P("fsdp")],
    } as const;
    return {
      iterations: pipeline.totalIterations,
      program: once(() => simplify(partitionCall(fn, [variables, x], options).program)),
      cost: once(() => costAnalysis(fn, options)(variables, x)),
      gathers: () => explainSharding(fn, options)(variables, x).gathers,
    };
  };

  /** Several tests look at the same programs. */
  const made = new Map<string, ReturnType<typeof makeParts>>();
  const parts = (more: Partial<Settings> = {}, backward = false) => {
    const key = JSON.stringify([more, backward]);
    const known = made.get(key) ?? makeParts(more, backward);
    made.set(key, known);
    return known;
  };

  /** How often collectives of each kind stand in the loops of a program. */
  const perIteration = (program: Program) => {
    const counts: Record<string, number> = {};
    for (const eqn of program.eqns) {
      if (eqn.op !== "scan") continue;
      forEachEqn(eqn.params.body, (inner) => {
        if (!isCollective(inner.op) || !("axes" in inner.params)) return;
        const key = `${inner.op} ${inner.params.axes.map(({ name }) => name).join("+")}`;
        counts[key] = (counts[key] ?? 0) + 1;
      });
    }
    return counts;
  };

  test("with one permutation a hop: results, inputs and outputs, and what comes round again", () => {
    expect(perIteration(parts().program())).toEqual({
      "ppermute stage": 3,
      "allGather fsdp": 2,
      "psum model": 1,
    });
  });

  test("with two permutations where nothing has to wait for the next round", () => {
    const program = parts({ numPipelineMicrobatches: 4 }).program();
    expect(perIteration(program)["ppermute stage"]).toBe(2);
  });

  test("and backward with one permutation a hop and gradients that are scattered over fsdp", () => {
    expect(perIteration(parts({}, true).program())).toEqual({
      "ppermute stage": 6,
      "allGather fsdp": 4,
      "psum model": 2,
      "psumScatter fsdp": 2,
    });
  });

  test("that sums gradients over data once, after all iterations", () => {
    const data = Mesh.create({ data: 2, stage: 4 }, { engine: hostEngine });
    const pipeline = pipelineWith({ mesh: data, numPipelineMicrobatches: 8, numPipelineRepeats: 2 });
    const loss = (v: nn.Variables, a: Tensor) => np.sum(np.sin(pipeline.apply(v, a)));
    const { program } = partitionCall(grad(loss), [variablesOf(pipeline, x), x], { mesh: data });
    expect(perIteration(program)).toEqual({ "ppermute stage": 6 });
    expect(program.eqns.filter(({ op }) => op === "psum")).toHaveLength(2);
  });

  test("whose weights are gathered over fsdp once when asked to", () => {
    const program = parts({ pipelineFsdpAgOnce: true }).program();
    expect(perIteration(program)).toEqual({ "ppermute stage": 3, "psum model": 1 });
  });

  /** How often weights are gathered over fsdp, and their gradients summed, in a whole run. */
  const runs = (more: Partial<Settings>, backward: boolean) => {
    const { collectives } = parts(more, backward).cost();
    const count = (kind: string) =>
      collectives
        .filter(({ op, axes }) => op === kind && axes.includes("fsdp"))
        .reduce((n, { count }) => n + count, 0);
    return { gathers: count("allGather"), sums: count("psumScatter") + count("psum") };
  };

  test.each([2, 3])("whose weights are gathered once a repeat when asked to (%i repeats)", (repeats) => {
    const iterations = 8 * repeats + 3;
    const each = { numPipelineRepeats: repeats };
    expect(runs(each, false).gathers).toBe(2 * iterations);
    expect(runs({ ...each, pipelineFsdpAgOnce: true }, false).gathers).toBe(2);
    expect(runs({ ...each, pipelineFsdpAgPerRepeat: true }, false).gathers).toBe(2 * repeats);
  });

  test("and whose gradients are then summed once a repeat, and once when the pipeline runs empty", () => {
    expect(runs({ pipelineFsdpAgPerRepeat: true }, true)).toEqual({ gathers: 4, sums: 2 * (2 + 1) });
  });

  test.each([false, true])("that never gathers anything over the stages (backward %s)", (backward) => {
    const { cost, gathers } = parts({}, backward);
    const overStages = cost()
      .collectives.filter(({ axes }) => axes.includes("stage"))
      .map(({ op }) => op);
    expect(overStages).toEqual(["ppermute"]);
    expect(gathers().every(({ from, to }) => from.includes("stage") === to.includes("stage"))).toBe(true);
  });

  test("that holds its stage's weights and its share of the buffers only", () => {
    const program = parts().program();
    const shapes = program.inputs.map(({ type }) => type.shape);
    // [repeats, stages / 4, embed / 2, mlp / 2], [repeats, stages / 4, mlp / 2, embed / 2], [batch / 2, …]
    expect(shapes).toEqual([
      [2, 1, 2, 4],
      [2, 1, 4, 2],
      [8, length, embed],
    ]);
    const loop = program.eqns.find(({ op }) => op === "scan");
    const carried = loop?.outs.map(({ type }) => type.shape) ?? [];
    expect(carried.length).toBe(4);
    expect(carried.every(([stages]) => stages === 1)).toBe(true);
  });

  test("that keeps for the backward pass only the inputs of iterations", () => {
    const { program, iterations } = parts({}, true);
    const [forward] = program().eqns.filter(({ op }) => op === "scan");
    const kept = forward?.outs.filter(({ type }) => type.shape[0] === iterations);
    expect(kept?.map(({ type }) => type.shape)).toEqual([[iterations, 1, 1, length, embed]]);
  });

  test("that needs less memory with remat", () => {
    const without = parts({ setRematPolicyOnPipelineIterations: false }, true);
    expect(parts({}, true).cost().peakBytes).toBeLessThan(without.cost().peakBytes);
  });
});

describe("the parts of a circular pipeline", () => {
  const values = (x: Tensor) => x.js();
  const base: Settings = { numStages: 2, numPipelineMicrobatches: 4, numPipelineRepeats: 2 };
  const pipeline = pipelineWith(base);

  test("config, layers, mesh, rematPolicy and name are those it was made with", () => {
    const mesh = Mesh.create({ stage: 2 }, { engine: hostEngine });
    const layers = GoldenLayer({ parent: null });
    const config = { ...base, mesh, layers, rematPolicy: checkpointPolicies.dotsSaveable, name: "decoder" };
    const named = CircularPipeline(config);
    expect(named.config).toBe(config);
    expect(named.layers).toBe(layers);
    expect(named.mesh).toBe(mesh);
    expect(named.rematPolicy).toBe(config.rematPolicy);
    expect(named.name).toBe("decoder");
    expect(pipeline.name).toBe("");
  });

  test("as many microbatches as stages are the default, twice that with delayed forwarding", () => {
    expect(pipelineWith({ numStages: 4 }).settings.numMicrobatches).toBe(4);
    const delayed = pipelineWith({ numStages: 4, pipelineDelayActivationForwarding: true });
    expect(delayed.settings.numMicrobatches).toBe(8);
  });

  test("needCircStorage says whether results wait for the first stage", () => {
    expect(pipeline.needCircStorage()).toBe(true);
    expect(pipelineWith({ ...base, numPipelineMicrobatches: 2 }).needCircStorage()).toBe(false);
    expect(pipelineWith({ ...base, numPipelineRepeats: 1 }).needCircStorage()).toBe(false);
    expect(pipelineWith({ ...base, pipelineDelayActivationForwarding: true }).needCircStorage()).toBe(false);
  });

  test("iterationsToCompleteFirstMicrobatch counts rounds and stages", () => {
    const delayed = pipelineWith({ ...base, pipelineDelayActivationForwarding: true });
    expect(pipeline.iterationsToCompleteFirstMicrobatchOneRepeat()).toBe(1);
    expect(pipeline.iterationsToCompleteFirstMicrobatch()).toBe(5);
    expect(delayed.iterationsToCompleteFirstMicrobatchOneRepeat()).toBe(2);
    expect(delayed.iterationsToCompleteFirstMicrobatch()).toBe(6);
    expect(pipeline.totalIterations).toBe(9);
  });

  test("initStates reshapes the inputs and makes empty buffers", () => {
    const state = pipeline.initStates(np.ones([4, 2, 3]));
    expect(state.stateIo.shape).toEqual([2, 2, 2, 3]);
    expect(state.shift.shape).toEqual([2, 2, 3]);
    expect(state.circStorage?.shape).toEqual([2, 4, 2, 3]);
    expect(state.circStorageMover?.shape).toEqual([2, 2, 3]);
    expect([state.prevOutputs, state.loopIteration]).toEqual([null, 0]);
  });

  test("getIterationInputs gives the first stage a new microbatch, later one that comes round", async () => {
    const io = np.reshape(np.arange(4), [2, 2, 1]).astype("float32");
    const stored = np.add(np.reshape(np.arange(8), [2, 4, 1]), 10).astype("float32");
    const shift = np.full([2, 1], 99).astype("float32");
    expect(await values(pipeline.getIterationInputs(1, io, stored, shift))).toEqual([[1], [99]]);
    expect(await values(pipeline.getIterationInputs(5, io, stored, shift))).toEqual([[11], [99]]);
    const traced = (i: number) => pipeline.getIterationInputs(Tensor.scalar(i, "int32"), io, stored, shift);
    expect(await values(traced(1))).toEqual([[1], [99]]);
    expect(await values(traced(5))).toEqual([[11], [99]]);
  });

  test("getMicrobatchAndRepeatIds lets stages follow each other", async () => {
    const [microbatches, repeats] = pipeline.getMicrobatchAndRepeatIds(4);
    expect([await values(microbatches), await values(repeats)]).toEqual([
      [0, 3],
      [1, 0],
    ]);
  });

  test("vmapParallelGather takes every stage's own round, wherever the dims stand", async () => {
    const weights = np.reshape(np.arange(6), [3, 2]).astype("float32");
    const ids = np.array([2, 1]).astype("int32");
    expect(await values(pipeline.vmapParallelGather(weights, null, ids, 0, 1))).toEqual([4, 3]);
    expect(await values(pipeline.vmapParallelGather(np.transpose(weights), null, ids, 1, 0))).toEqual([4, 3]);
  });

  test("vmapGather takes slices of a tensor that all stages share", async () => {
    const xs = np.reshape(np.arange(8), [4, 2]);
    const ids = np.array([3, 0]).astype("int32");
    expect(await values(pipeline.vmapGather(xs, ids, 0))).toEqual([
      [6, 7],
      [0, 1],
    ]);
    expect(await values(pipeline.vmapGather(np.transpose(xs), ids, 1))).toEqual([
      [6, 0],
      [7, 1],
    ]);
  });

  test("getNewLoopState moves every buffer on", async () => {
    const state = pipeline.initStates(np.reshape(np.arange(4), [4, 1]).astype("float32"));
    const output = np.array([[10], [20]]).astype("float32");
    const mover = np.array([[7], [8]]).astype("float32");
    const next = pipeline.getNewLoopState(output, { ...state, loopIteration: 3, circStorageMover: mover });
    expect(await values(next.shift)).toEqual([[0], [10]]);
    expect(await values(next.stateIo)).toEqual([
      [[0], [3]],
      [[2], [20]],
    ]);
    expect(next.circStorage && (await values(next.circStorage))).toEqual([
      [[0], [8], [0], [0]],
      [[0], [7], [0], [0]],
    ]);
    expect(next.circStorageMover).toBe(output);
    expect(next.loopIteration).toBe(4);
  });

  test("permuteOutputMicroPerStageDim brings microbatch 0 to the front", async () => {
    const output = np.reshape(np.arange(4), [2, 2]);
    expect(await values(pipeline.permuteOutputMicroPerStageDim(output))).toEqual([
      [1, 0],
      [3, 2],
    ]);
  });

  test("getCurrentStageWeights takes the weights of each stage's round", async () => {
    const weights = { params: { w: np.reshape(np.arange(4), [2, 2]).astype("float32") } };
    const now = pipeline.getCurrentStageWeights(weights, 4);
    expect(await values(now.params.w)).toEqual([2, 1]);
    expect(await values(pipeline.getCurrentRepeatFromStages(weights, 5).params.w)).toEqual([2, 3]);
    const once = pipelineWith({ ...base, numPipelineRepeats: 1 });
    expect(once.getCurrentStageWeights(weights, 4)).toBe(weights);
  });

  test("getVmapFuncForInit makes weights with the stages in front", () => {
    const Probe = nn.module(
      "Probe",
      ({ layers }: { layers: ReturnType<typeof GoldenLayer> }) =>
        (x: Tensor) =>
          pipeline.getVmapFuncForInit()(layers as never, x, null, null, true, "train"),
    );
    const variables = Probe({ layers: GoldenLayer({ parent: null }) }).init(
      random.key(0),
      np.ones([2, 1, embed]),
    );
    const shapes = tree.leaves(nn.unbox(variables)).map((w) => (w as Tensor).shape);
    expect(shapes).toEqual([
      [2, embed, 2 * embed],
      [2, 2 * embed, embed],
    ]);
    const [names] = tree.leaves(nn.getPartitionSpec(variables), (n) => n instanceof PartitionSpec);
    expect(String(names)).toBe('P("layers", "embed", "mlp")');
  });

  test("getMainVmapFuncForIterations runs every stage with its weights", async () => {
    const stages = pipeline.getMainVmapFuncForIterations();
    const layer = GoldenLayer({ parent: null });
    const x = random.normal(random.key(0), [2, 1, embed]);
    const one = range(2).map((i) => nn.unbox<nn.Variables>(layer.init(random.key(i), x, null, null)));
    const both = tree.map((a: Tensor, b: Tensor) => np.stack([a, b]), at(one, 0), at(one, 1)) as nn.Variables;
    const y = stages(layer as never, both, x, null, null, true, "train");
    const rows = range(2).map((i) =>
      layer.apply(at(one, i), np.take(x, np.array(i).astype("int32"), 0), null, null),
    );
    await expectTensorNear(y, np.stack(rows), 1e-6, "the stages");
  });

  test("runOneIteration is one step of the whole", async () => {
    const x = random.normal(random.key(0), [4, 1, embed]);
    const layers = GoldenLayer({ parent: null }) as never;
    const variables = variablesOf(pipeline, np.reshape(x, [4, embed]));
    const weights = { params: variables.params?.layers as Record<string, unknown> };
    let state = pipeline.initStates(x);
    for (let i = 0; i < pipeline.totalIterations; i++) {
      state = pipeline.runOneIteration(state, { pipelineWeights: weights, layers });
    }
    const y = np.reshape(pipeline.permuteOutputMicroPerStageDim(state.stateIo), [4, embed]);
    await expectTensorNear(y, pipeline.apply(variables, np.reshape(x, [4, embed])), 1e-6, "the value");
  });

  test("getPipelineRematPolicy keeps the inputs of iterations, unless the policy stands alone", () => {
    const inputs = { kind: "names", names: ["iteration_input", "decoder_layer_input"] };
    const rematPolicy = checkpointPolicies.dotsSaveable;
    expect(pipeline.getPipelineRematPolicy()).toEqual(inputs);
    expect(pipelineWith({ ...base, rematPolicy }).getPipelineRematPolicy()).toEqual({
      kind: "either",
      policies: [rematPolicy, inputs],
    });
    const alone = pipelineWith({ ...base, rematPolicy, customRematPolicy: true });
    expect(alone.getPipelineRematPolicy()).toEqual(rematPolicy);
  });

  test("getWeightSharding names the dims of all weights without computing them", () => {
    const specs = pipeline.getWeightSharding(np.ones([4, embed])) as {
      params: Record<string, PartitionSpec>;
    };
    expect(String(specs.params.wi)).toBe('P("circular_repeats", "layers", "embed", "mlp")');
    const removed = pipeline.getLogicalSpecRepeatsRemoved(specs);
    expect(String(removed.params.wi)).toBe('P("layers", "embed", "mlp")');
    expect(pipeline.getLogicalSpecRepeatsRemoved(null)).toBe(null);
    expect(CircularPipeline.getLogicalSpecRepeatsRemoved(specs)).toEqual(removed);
  });

  test("shardDimByStages and allGatherOverFsdp constrain weights", () => {
    const mesh = Mesh.create({ fsdp: 2, stage: 2, model: 2 }, { engine: hostEngine });
    const logicalAxisRules: nn.LogicalRules = [
      ["activation_stage", "stage"],
      ["layers", "stage"],
      ["embed", "fsdp"],
      ["mlp", "model"],
    ];
    const sharded = pipelineWith({ ...base, mesh, logicalAxisRules });
    const w = np.zeros([2, 2, 4, 8]);
    const spec = P("stage", "fsdp", "model");
    const outSpec = (fn: (x: Tensor) => unknown, x: Tensor) =>
      String(explainSharding(fn, { mesh })(x).outputs[0]?.spec);
    expect(outSpec((x) => sharded.shardDimByStages(x, 1, spec), w)).toBe('P(null, "stage", null, "model")');
    expect(outSpec((x) => sharded.shardDimByStages(x, 0, spec, true), np.zeros([2, 4, 8]))).toBe(
      'P("stage", null, "model")',
    );
    expect(outSpec((x) => sharded.shardDimByStages(x, 0, null), np.zeros([2]))).toBe('P("stage")');
    const logical = { w: P("circular_repeats", "layers", "embed", "mlp") };
    expect(outSpec((x) => sharded.allGatherOverFsdp({ w: x }, logical), w)).toBe(
      'P(null, "stage", null, "model")',
    );
  });
});
