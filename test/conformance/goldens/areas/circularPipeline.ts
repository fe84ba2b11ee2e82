import type { Engine } from "../../../../src/ir/engine.js";
import { range } from "../../../../src/ir/shape.js";
import * as nn from "../../../../src/nn/index.js";
import * as np from "../../../../src/numpy/index.js";
import {
  CircularPipeline,
  type CircularPipelineInstance,
  type LoopState,
} from "../../../../src/parallel/circularPipeline.js";
import * as random from "../../../../src/random/index.js";
import type { Mesh } from "../../../../src/spmd/mesh/mesh.js";
import { P, type SpecEntry } from "../../../../src/spmd/mesh/partitionSpec.js";
import { jit, type Synchronous } from "../../../../src/spmd/run/jit.js";
import { Tensor } from "../../../../src/trace/tensor.js";
import { valueAndGrad } from "../../../../src/transforms/derivatives/grad.js";
import type { GoldenCase } from "../cases.js";
import { type AreaRunner, expectAll } from "../check.js";
import { agreement, expectClose, expectTreeClose, Mismatch, type Tolerance } from "../compare.js";
import { aloneMesh, meshOf } from "../onMesh.js";

/** The layer of the cases: y = x + tanh(h · wi) · wo with h = (x + 0.1 · sin(position)) · (segment > 0). */
export const GoldenLayer = nn.module(
  "GoldenLayer",
  () =>
    (x: Tensor, segmentIds: Tensor | null, positions: Tensor | null): Tensor => {
      const embed = x.shape.at(-1) ?? 0;
      const init = nn.initializers.lecunNormal();
      const wi = nn.param("wi", nn.withLogicalPartitioning(init, ["embed", "mlp"]), [embed, 2 * embed]);
      const wo = nn.param("wo", nn.withLogicalPartitioning(init, ["mlp", "embed"]), [2 * embed, embed]);
      let h = x;
      if (positions) {
        h = np.add(h, np.multiply(np.expandDims(np.sin(positions.astype("float32")), -1), 0.1));
      }
      if (segmentIds) {
        h = np.multiply(h, np.expandDims(np.greater(segmentIds, 0).astype("float32"), -1));
      }
      return np.add(x, np.matmul(np.tanh(np.matmul(h, wi)), wo));
    },
);

/** The pipeline of a case, on a mesh or in one place. */
export function pipelineOf(golden: GoldenCase, mesh: Mesh | undefined): CircularPipelineInstance {
  return CircularPipeline({
    layers: GoldenLayer({ parent: null }),
    numStages: golden.number("stages"),
    numPipelineMicrobatches: golden.number("num_pipeline_microbatches"),
    numPipelineRepeats: golden.number("num_pipeline_repeats"),
    pipelineDelayActivationForwarding: golden.boolean("delay"),
    scanPipelineIterations: golden.boolean("scan_pipeline_iterations"),
    setRematPolicyOnPipelineIterations: golden.boolean("remat"),
    pipelineFsdpAgOnce: golden.boolean("pipeline_fsdp_ag_once"),
    logicalAxisRules: rulesIn(golden),
    ...(mesh ? { mesh } : {}),
  });
}

function rulesIn(golden: GoldenCase): nn.LogicalRules {
  const rules = golden.value("logical_axis_rules");
  const entry = (value: unknown): SpecEntry => {
    if (Array.isArray(value)) return value.map(String);
    return typeof value === "string" ? value : null;
  };
  if (!Array.isArray(rules)) throw new Mismatch("the case has no logical axis rules");
  return rules.map((rule: unknown) => (Array.isArray(rule) ? [String(rule[0]), entry(rule[1])] : ["", null]));
}

/** Circular pipelines: parameters, output, loss, gradients and every part, in one place and over the mesh of the case. */
export const runCircularPipeline: AreaRunner = async (golden, engine) => {
  const mesh = meshOf(golden, engine);
  await runWhole(golden, aloneMesh(engine), undefined);
  await runWhole(golden, mesh, mesh);
  await runParts(golden, engine, undefined);
  await runParts(golden, engine, mesh);
};

/** The arguments that a case gives to the pipeline. */
function argumentsOf(golden: GoldenCase) {
  const optional = (key: string) => (golden.has(key) ? golden.tensor(key) : null);
  return { x: golden.tensor("x"), segmentIds: optional("segment_ids"), positions: optional("positions") };
}

async function runWhole(golden: GoldenCase, target: Mesh, mesh: Mesh | undefined): Promise<void> {
  const pipeline = pipelineOf(golden, mesh);
  const { x, segmentIds, positions } = argumentsOf(golden);
  const seed = random.key(golden.number("seed"));
  const init = (key: Tensor, inputs: Tensor) =>
    nn.unbox<nn.Variables>(pipeline.init(key, inputs, segmentIds, positions));
  const step = (variables: nn.Variables, inputs: Tensor, t: Tensor) => {
    const loss = (given: nn.Variables, own: Tensor): [Tensor, Tensor] => {
      const logical = pipeline.getWeightSharding(own, segmentIds, positions);
      const y = pipeline.apply(given, own, segmentIds, positions, true, "train", logical);
      return [np.sqrt(np.sum(np.square(np.subtract(y, t)))), y];
    };
    const [[value, y], [gradVariables, gradX]] = valueAndGrad(loss, { argnums: [0, 1], hasAux: true })(
      variables,
      inputs,
    );
    return { value, y, gradVariables, gradX };
  };
  const shardings = mesh && {
    inShardings: [weightShardings(golden, pipeline), batch(mesh), batch(mesh)] as const,
  };
  const variables = golden.tree("variables") as nn.Variables;
  const got = jit(step, { mesh: target, ...shardings })(variables, x, golden.tensor("t"));
  const where = mesh ? "over the mesh" : "in one place";
  await expectAll(
    () => expectTreeClose(jit(init, { mesh: target })(seed, x), golden.value("variables")),
    () => expectClose(got.value, golden.number("loss_value"), agreement.value, `the loss ${where}`),
    () => expectClose(got.y, golden.host("y"), valueAgreement(golden), `y ${where}`),
    () => expectTreeClose(got.gradVariables, golden.value("grad_variables"), agreement.gradient),
    () => expectClose(got.gradX, golden.host("grad_x"), agreement.gradient, `the gradient of x ${where}`),
  );
}

/** Every layer adds to its input and rounds, so near zero the absolute error grows with their number. */
function valueAgreement(golden: GoldenCase): Tolerance {
  const layers = golden.number("stages") * golden.number("num_pipeline_repeats");
  return { ...agreement.value, atol: (agreement.value.atol * layers) / 4 };
}

const batch = (mesh: Mesh) => P(["data", "fsdp"].filter((axis) => mesh.axisNames.includes(axis)));

/** The specs of the weights: stages over their axis, and their dims as the rules say. */
function weightShardings(golden: GoldenCase, pipeline: CircularPipelineInstance): nn.Variables {
  const { x, segmentIds, positions } = argumentsOf(golden);
  const logical = pipeline.getWeightSharding(x, segmentIds, positions) as Readonly<Record<string, unknown>>;
  const physical = pipeline.physicalSpec(logical);
  return Object.fromEntries(Object.entries(physical).map(([name, layers]) => [name, { layers }]));
}

const stateKeys = {
  stateIo: "state_io",
  shift: "shift",
  circStorage: "circ_storage",
  circStorageMover: "circ_storage_mover",
  prevOutputs: "prev_outputs",
} as const;

/** Compares the buffers of a loop state with those that a case lists; both must lack the same ones. */
async function expectState(state: LoopState, golden: GoldenCase, part: string): Promise<void> {
  const keys = Object.keys(stateKeys) as (keyof typeof stateKeys)[];
  await expectAll(
    ...keys.map((key) => async () => {
      const value = state[key];
      const path = ["parts", part, stateKeys[key]];
      if ((value !== null) !== golden.has(...path)) {
        throw new Mismatch(`${part} ${value ? "has" : "has no"} ${key}, expected the opposite`);
      }
      if (value) await expectClose(value, golden.host(...path), undefined, `${part} ${key}`);
    }),
  );
}

/** Every method by itself. */
async function runParts(golden: GoldenCase, engine: Engine, mesh: Mesh | undefined): Promise<void> {
  const pipeline = pipelineOf(golden, mesh);
  const target = mesh ?? aloneMesh(engine);
  const on = <A extends readonly unknown[], R>(fn: ((...args: A) => R) & Synchronous<R>) =>
    jit(fn, { mesh: target });
  const numMicrobatches = golden.number("num_pipeline_microbatches");
  const x = golden.tensor("x");
  const microbatches = np.reshape(x, [numMicrobatches, -1, ...x.shape.slice(1)]);
  const states = on((inputs: Tensor) => {
    const { loopIteration: _, ...buffers } = pipeline.initStates(inputs);
    return buffers;
  })(microbatches);
  const before: LoopState = {
    ...states,
    loopIteration: 3,
    circStorageMover: golden.has("parts", "circ_storage_mover_before")
      ? golden.tensor("parts", "circ_storage_mover_before")
      : states.circStorageMover,
    prevOutputs: golden.has("parts", "prev_outputs_before")
      ? golden.tensor("parts", "prev_outputs_before")
      : states.prevOutputs,
  };
  const inputsAt = on((i: Tensor | number, { stateIo, circStorage, shift }: typeof states) =>
    pipeline.getIterationInputs(i, stateIo, circStorage, np.add(shift, 1)),
  );
  const third = Tensor.scalar(3, "int32");
  const output = golden.tensor("parts", "output_given");
  const newState = (iteration: Tensor | number) => {
    const { loopIteration: _, ...buffers } = before;
    return on((given: Tensor, own: typeof buffers) =>
      pipeline.getNewLoopState(given, { ...own, loopIteration: iteration }),
    )(output, buffers);
  };
  const ids = golden.host("parts", "microbatch_ids");
  const rows = range(ids.shape[0] ?? 0);
  const idsAt = on((i: Tensor) => pipeline.getMicrobatchAndRepeatIds(i));
  const stacked = rows.map((i) => idsAt(Tensor.scalar(i, "int32")));
  const oneRepeat = "iterations_to_complete_first_microbatch_one_repeat";
  const inputsGolden = golden.host("parts", "iteration_inputs_at_3");
  await expectAll(
    () => same(pipeline.needCircStorage(), golden.boolean("need_circ_storage"), "needCircStorage"),
    () => same(pipeline.iterationsToCompleteFirstMicrobatchOneRepeat(), golden.number(oneRepeat), oneRepeat),
    () =>
      same(
        pipeline.iterationsToCompleteFirstMicrobatch(),
        golden.number("iterations_to_complete_first_microbatch"),
        "iterationsToCompleteFirstMicrobatch",
      ),
    () => same(pipeline.totalIterations, rows.length, "totalIterations"),
    () => expectClose(np.stack(stacked.map(([m]) => m)), ids),
    () => expectClose(np.stack(stacked.map(([, r]) => r)), golden.host("parts", "repeat_ids")),
    () => expectState({ ...states, loopIteration: 0 }, golden, "init_states"),
    () => expectClose(inputsAt(third, states), inputsGolden, undefined, "iteration inputs"),
    async () => expectState(newState(3), golden, "new_loop_state_at_3"),
    async () => expectState(newState(third), golden, "new_loop_state_at_3"),
    () =>
      expectClose(
        on((io: Tensor) => pipeline.permuteOutputMicroPerStageDim(io))(states.stateIo),
        golden.host("parts", "permute_of_initial_state_io"),
      ),
  );
}

function same(actual: boolean | number, expected: boolean | number, what: string): void {
  if (actual !== expected) throw new Mismatch(`${what} is ${actual}, expected ${expected}`);
}
