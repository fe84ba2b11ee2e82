/**
 * Programs as `jit` partitions them for several devices: training steps whose update is split over the devices,
 * pipelines by all schedules, sequences and experts that devices share, complex numbers, and integers of 8 and 16 bits.
 */
import { createReferenceEngine } from "../../src/engines/index.js";
import {
  type DType,
  devicePut,
  grad,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  shardMap,
  Tensor,
  tree,
  valueAndGrad,
  withMesh,
} from "../../src/index.js";
import type { Engine } from "../../src/ir/engine.js";
import { meshShape } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, range } from "../../src/ir/shape.js";
import { printProgram } from "../../src/ir/text/print.js";
import * as nn from "../../src/nn/index.js";
import * as optim from "../../src/optim/index.js";
import { makeSchedule, type ScheduleName, scheduleNames } from "../../src/parallel/schedule/makers.js";
import type { PipelineSchedule } from "../../src/parallel/schedule/schedule.js";
import { type AnyJitOptions, partitionCall } from "../../src/spmd/run/call.js";
import { currentMesh } from "../../src/spmd/run/constraint.js";
import type { ModelConfig } from "../../src/train/models/config.js";
import { type MemoryInputs, memoryFor } from "../../src/train/models/matrixMemory.js";
import { type EngineCase, type Fill, sample } from "../conformance/engine/cases.js";
import { failuresOf } from "../conformance/engine/differences.js";
import { blockOf } from "../support/blockOf.js";
import { chunksOf, inTurn, stepArguments, stepOf } from "../support/pipelinedModel.js";

/** Meshes are only shapes here: the interpreter's devices are as many as anybody asks for. */
const reference = createReferenceEngine();
const meshes = [{ data: 8 }, { data: 4, model: 2 }].map((sizes) => Mesh.create(sizes, { engine: reference }));

/** A call as every device runs it, with noise as its arguments. */
function caseOf<A extends readonly unknown[]>(
  name: string,
  fn: (...args: A) => unknown,
  args: A,
  options: AnyJitOptions & { readonly mesh: Mesh },
  fill: Fill = "unit",
): EngineCase {
  const { program, held, whole } = partitionCall(fn, args, options);
  const mesh = meshShape(options.mesh);
  const inputs = whole.inputs.map(({ type }, i) => {
    const tensor = sample(type.dtype, type.shape, fill, i + 1);
    return range(options.mesh.size).map((position) => blockOf(tensor, at(held.inSpecs, i), mesh, position));
  });
  return { name, program, mesh, inputs };
}

const width = 128;

interface State {
  readonly params: { readonly w1: Tensor; readonly w2: Tensor; readonly b: Tensor };
  readonly moments: unknown;
}

/** Products with powers of two are exact, so that nothing depends on whether a compiler rounds them before it adds. */
const momentum = optim.sgd({ learningRate: 0.25, momentum: 0.5 });
/** With a large `eps`: next to a small one AdamW makes much of gradients that are nothing but roundings. */
const adamw: optim.GradientTransformation = optim.adamw({ learningRate: 0.01, eps: 1e-3 });
const clipped: optim.GradientTransformation = optim.chain(optim.clipByGlobalNorm(0.05), adamw);

function makeStep(optimizer: optim.GradientTransformation) {
  const loss = ({ w1, w2, b }: State["params"], x: Tensor) =>
    np.mean(np.square(np.matmul(np.tanh(np.matmul(x, w1).add(b)), w2).sub(x)));
  return ({ params, moments }: State, x: Tensor): readonly [State, Tensor] => {
    const [value, gradients] = valueAndGrad(loss)(params, x);
    const [updates, next] = optimizer.update(gradients, moments, params);
    return [{ params: optim.applyUpdates(params, updates), moments: next }, value];
  };
}

function initialState(dtype: DType, optimizer: optim.GradientTransformation): State {
  const [one, two] = [random.key(1), random.key(2)];
  const params = {
    w1: random.normal(one, [width, width], dtype).mul(0.1),
    w2: random.normal(two, [width, width], dtype).mul(0.1),
    b: np.zeros([width], dtype),
  };
  return { params, moments: optimizer.init(params) };
}

/** Throws where no update is split: then the rest would prove nothing. */
function checkSplit(name: string, program: Program): void {
  const text = printProgram(program);
  const missing = ["psumScatter", "allGather"].find((op) => !text.includes(op));
  if (missing !== undefined) throw new Error(`${name} has no ${missing}: its update is not split`);
}

function trainingCases(): EngineCase[] {
  return meshes.map((mesh) => {
    const options = { mesh, inShardings: [P(), P("data")] };
    const args: [State, Tensor] = [initialState("float32", momentum), np.zeros([16, width])];
    const one = caseOf(`a step with momentum on ${mesh}`, makeStep(momentum), args, options);
    checkSplit(one.name, one.program);
    return one;
  });
}

function complexCases(): EngineCase[] {
  const [mesh] = meshes;
  if (mesh === undefined) return [];
  const [z, rows] = [np.zeros([16, 8], "complex64"), { mesh, inShardings: P("data") }];
  const square = np.zeros([8, 4, 4], "complex64");
  const eye = np.eye(4).mul(3);
  const length = (x: Tensor) => np.sum(np.square(np.abs(np.matmul(x, np.matmul(x.T.conj(), x)))));
  return [
    caseOf("complex products", (x: Tensor) => np.matmul(x, x.T.conj()), [z], rows),
    caseOf("complex functions", (x: Tensor) => np.exp(x).add(np.sqrt(x)).mul(np.sin(x)), [z], rows),
    caseOf("a complex gradient", grad(length), [z], rows),
    caseOf("a spectrum", (x: Tensor) => np.fft.ifft(np.fft.fft(x).mul(2)), [z], rows),
    caseOf("complex equations", (a: Tensor) => np.linalg.solve(a.add(eye), a), [square], rows),
    caseOf(
      "sums of complex numbers over devices",
      shardMap((x: Tensor) => lax.psum(x, "data"), { mesh, inSpecs: P("data"), outSpecs: P() }),
      [z],
      rows,
    ),
  ];
}

const narrow: readonly DType[] = ["int8", "uint8", "int16", "uint16"];

function narrowCases(): EngineCase[] {
  const [mesh] = meshes;
  if (mesh === undefined) return [];
  return narrow.flatMap((dtype) => {
    const x = np.zeros([16, 24], dtype);
    const rows = { mesh, inShardings: P("data") };
    const over = (fn: (x: Tensor) => Tensor) =>
      shardMap(fn, { mesh, inSpecs: P("data"), outSpecs: P("data") });
    const bits = (what: string, fn: (x: Tensor) => Tensor) =>
      caseOf(`${dtype} ${what}`, fn, [x], rows, "bits");
    return [
      bits("arithmetic that wraps", (v) => v.mul(v).add(v).sub(np.flip(v, 1))),
      bits("sorted and summed", (v) => np.cumsum(np.sort(v, 1), 1).add(np.sum(v, 1, { keepdims: true }))),
      bits("quotients and bits", (v) =>
        np.floorDivide(v, np.maximum(np.bitwiseAnd(v, np.array(7, dtype)), np.array(1, dtype))),
      ),
      bits("products", (v) => np.matmul(v, v.T)),
      bits("as floats and back", (v) => np.clip(v.astype("float32").mul(0.5), 0, 100).astype(dtype)),
      bits(
        "between devices",
        over((v) =>
          lax.psum(v, "data").add(
            lax.ppermute(v, "data", [
              [0, 1],
              [1, 0],
            ]),
          ),
        ),
      ),
    ];
  });
}

/** Three steps on devices of an engine; the state stays there, split as the first step leaves it. */
async function train(
  optimizer: optim.GradientTransformation,
  engine: Engine,
  sizes: Readonly<Record<string, number>>,
): Promise<number[]> {
  const mesh = Mesh.create(sizes, { engine });
  const step = jit(makeStep(optimizer), { mesh, donate: 0, inShardings: [P(), P("data")], name: "step" });
  let state = initialState("float64", optimizer);
  const batches = range(3).map((i) => random.normal(random.key(10 + i), [16, width], "float64"));
  if (mesh.size > 1) checkSplit("a step of AdamW", step.lower(state, at(batches, 0)).program);
  const numbers: number[] = [];
  for (const batch of batches) {
    const [next, loss] = step(state, await devicePut(batch, new NamedSharding(mesh, P("data"))));
    state = next;
    numbers.push(await loss.item());
  }
  // Whoever reads moments finds them whole.
  return [...numbers, ...(await numbersOf(state))];
}

/** All numbers of the tensors of a tree. */
async function numbersOf(values: unknown): Promise<number[]> {
  const numbers: number[] = [];
  for (const leaf of tree.leaves(values)) {
    if (leaf instanceof Tensor) numbers.push(...(await leaf.data()));
  }
  return numbers;
}

/**
 * Which numbers of a training run differ. In float64 another order of sums shows in the last digits, and a sum over
 * too few devices in the first.
 *
 * @param share the part of a number that it may be off
 */
async function trainingFailures(
  engine: Engine,
  optimizer: optim.GradientTransformation,
  share: number,
): Promise<string[]> {
  const expected = await train(optimizer, reference, { data: 1 });
  const failures: string[] = [];
  for (const sizes of [{ data: 8 }, { data: 4, model: 2 }]) {
    const got = await train(optimizer, engine, sizes);
    failures.push(...differences(`training on ${JSON.stringify(sizes)}`, got, expected, share));
  }
  return failures;
}

/** The first number that is off by more than a share of it, as a line. */
function differences(
  what: string,
  got: readonly number[],
  expected: readonly number[],
  share: number,
): string[] {
  const isNear = (a: number, b: number) => Math.abs(a - b) <= 1e-3 * share + share * Math.abs(b);
  const wrong = expected.findIndex((x, i) => !isNear(got[i] ?? Number.NaN, x));
  if (wrong < 0 && got.length === expected.length) return [];
  return [
    `${what}: number ${wrong} of ${got.length} is ${got[wrong]}, not ${expected[wrong]} of ${expected.length}`,
  ];
}

/** All schedules on two stages, and some on four, beside data parallelism as far as there are devices. */
function schedules(): PipelineSchedule[] {
  const make = (numStages: number) => (name: ScheduleName) =>
    makeSchedule(name, { numStages, numMicrobatches: numStages + 2, ...chunksOf(name, 2) });
  return [...scheduleNames.map(make(2)), ...(["1f1b", "zb-h1", "dualpipev"] as const).map(make(4))];
}

/** Which numbers of the loss and the gradients by a schedule are not those of the model without a pipeline. */
async function scheduleFailures(engine: Engine, schedule: PipelineSchedule): Promise<string[]> {
  const numStages = schedule.stages.length;
  const ways = engine.numDevices / numStages;
  const mesh = Mesh.create({ data: ways, pipe: numStages }, { engine });
  const args = tree.map((x: Tensor) => x.astype("float64"), stepArguments(schedule, ways));
  const step = jit(stepOf(schedule, mesh, { options: { batchAxes: ["data"] } }), { mesh });
  const [got, expected] = [await numbersOf(step(...args)), await numbersOf(inTurn(...args))];
  return differences(`${schedule.name} on ${mesh}`, got, expected, 1e-9);
}

/** A loss that is the same on one device and on a mesh, with what it is differentiated by. */
interface SplitLoss {
  readonly sizes: Readonly<Record<string, number>>;
  readonly loss: (values: unknown) => Tensor;
  readonly values: unknown;
  /** The part of a number that it may be off; 1e-9 by default. */
  readonly share?: number;
}

/** Sequences and experts that several devices share. */
function sharedLosses(): Readonly<Record<string, SplitLoss>> {
  const draw = (seed: number, ...shape: number[]) => random.normal(random.key(seed), shape, "float64");
  const heads = [draw(1, 2, 16, 4, 4), draw(2, 2, 16, 4, 4), draw(3, 2, 16, 4, 4)];
  const attend =
    (options: nn.ContextAttentionOptions, size: number) =>
    (values: unknown): Tensor => {
      const place = (x: Tensor) =>
        options.placement === "zigzag" ? nn.zigzag(x, currentMesh() ? size : 1) : x;
      const [q, k, v] = (values as Tensor[]).map(place) as [Tensor, Tensor, Tensor];
      return np.sum(np.sin(nn.contextAttention(q, k, v, { causal: true, ...options }).output));
    };
  const experts = nn.MoE({ numExperts: 4, features: 8, dtype: "float64" });
  const x = draw(4, 4, 8, 6);
  const variables = experts.init(random.key(5), x);
  return {
    "a ring": { sizes: { context: 4, data: 2 }, loss: attend({ placement: "zigzag" }, 4), values: heads },
    "a ring in a window": { sizes: { context: 8 }, loss: attend({ window: [5, null] }, 8), values: heads },
    "all-to-all of heads": {
      sizes: { context: 4, data: 2 },
      loss: attend({ context: "allToAll" }, 4),
      values: heads,
    },
    "experts and shared sequences": {
      sizes: { context: 2, expert: 2, model: 2 },
      loss: (v) => np.sum(np.sin(experts.apply(v as nn.Variables, x).output)),
      values: tree.map((w: Tensor) => w.astype("float64"), variables),
      // Routers compute in float32.
      share: 1e-5,
    },
    "memories of shared sequences": {
      sizes: { context: 8 },
      loss: (v) => np.sum(np.sin(memoryFor(sharedModel)(v as MemoryInputs))),
      values: {
        ...{ query: draw(6, 2, 2, 16, 3), key: draw(7, 2, 2, 16, 3), value: draw(8, 2, 2, 16, 2) },
        ...{ inputGate: draw(9, 2, 2, 16), forgetGate: draw(10, 2, 2, 16) },
      },
    },
  };
}

const sharedModel = { context: { exchange: "ring", placement: "contiguous" } } as ModelConfig;

/** Which numbers of a loss and its gradients on a mesh are not those of one device. */
async function sharedFailures(
  engine: Engine,
  name: string,
  { sizes, loss, values, share = 1e-9 }: SplitLoss,
): Promise<string[]> {
  const mesh = Mesh.create(sizes, { engine });
  const onMesh = jit((v: unknown) => valueAndGrad(loss)(v), { mesh });
  const got = await numbersOf(withMesh(mesh, () => onMesh(values)));
  return differences(`${name} on ${mesh}`, got, await numbersOf(valueAndGrad(loss)(values)), share);
}

/** Runs all of them on an engine of eight simulated devices. */
export async function runWholePrograms(
  engine: Engine,
  print: (line: string) => void,
): Promise<{ passed: number; failed: number }> {
  const count = { passed: 0, failed: 0 };
  const note = (failures: readonly string[]) => {
    for (const failure of failures) print(`FAIL ${failure}`);
    if (failures.length === 0) count.passed++;
    else count.failed++;
  };
  for (const one of [...narrowCases(), ...complexCases(), ...trainingCases()]) {
    note(await failuresOf(engine, one, { flushesTiny: true, joinsOps: true }));
  }
  note(await trainingFailures(engine, adamw, 1e-9));
  // The norm by which gradients are clipped is a float32.
  note(await trainingFailures(engine, clipped, 1e-6));
  for (const schedule of schedules()) note(await scheduleFailures(engine, schedule));
  for (const [name, one] of Object.entries(sharedLosses())) note(await sharedFailures(engine, name, one));
  await engine.close();
  print(`programs on many devices: ${count.passed} passed, ${count.failed} failed`);
  return count;
}
