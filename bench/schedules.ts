/**
 * Pipeline schedules: their bubble, measured and by the formula, their memory, and their time compared with GPipe, and
 * of GPipe in JAX where a Python with JAX is found. Layers are products alone, so that the forward pass and both halves
 * of the backward pass take about equally long, as the formulas have it.
 */
import { costAnalysis, devicePut, jit, Mesh, NamedSharding, np, P, random, type Tensor } from "shardwise";
import { createThreadsEngine, type ThreadsEngine, type TraceEvent } from "shardwise/engines";
import {
  checkSchedule,
  makeSchedule,
  type PipelineAction,
  type PipelineSchedule,
  pipelineTrainStep,
  placeParts,
  type ScheduleName,
  simulateSchedule,
} from "shardwise/parallel";
import { at } from "../src/ir/shape.js";
import { actionsInSlots } from "../src/parallel/schedule/slots.js";
import { runJax } from "./jax.js";
import { bestInTurns, mean, median, type Report, type Row, settle, sum, traced } from "./measure.js";
import { countsOption } from "./options.js";

const [width, length, microbatchSize] = [256, 64, 8];

/** Number of layers of a stage: few if many schedules are compared. */
const layersOfStage = 2;
/** Enough that sending a message, which the formulas ignore, takes less than a hundredth of an action. */
const layersOfDeepStage = 8;

const names: readonly ScheduleName[] = [
  "gpipe",
  "1f1b",
  "zb-h1",
  "zb-h2",
  "circular",
  "interleaved",
  "zb-v",
  "dualpipev",
];

interface LayerWeights {
  readonly up: Tensor;
  readonly down: Tensor;
}

/** The layers as a step by a schedule, with weights and a batch. */
function buildStep(mesh: Mesh, name: ScheduleName, microbatches: number, numLayers: number) {
  const stages = mesh.size;
  const chunks = name === "interleaved" || name === "circular" ? { numChunks: 2 } : {};
  const schedule = makeSchedule(name, { numStages: stages, numMicrobatches: microbatches, ...chunks });
  const numParts = stages * schedule.numChunks;
  const step = pipelineTrainStep(
    schedule,
    {
      // With a weight before the first stage, that stage has a gradient to hand on as all others do.
      first: ({ offset }: { offset: Tensor }, x: Tensor) => x.add(offset),
      stage: (layers: readonly LayerWeights[], x: Tensor) =>
        layers.reduce((y, { up, down }) => y.add(np.matmul(np.matmul(y, up), down)), x),
      last: (_: object, y: Tensor, zero: Tensor) => np.mean(np.square(y.sub(zero))),
    },
    { mesh },
  );
  const normal = (i: number, shape: number[]) => random.normal(random.key(i), shape).mul(0.02);
  const layers = Array.from({ length: numLayers / schedule.numChunks }, (_, i) => ({
    up: normal(2 * i + 2, [numParts, width, 4 * width]),
    down: normal(2 * i + 3, [numParts, 4 * width, width]),
  }));
  const weights = { first: { offset: normal(0, [width]) }, stages: placeParts(schedule, layers), last: {} };
  const x = random.normal(random.key(1), [microbatches * microbatchSize, length, width]);
  return { step, schedule, weights, x };
}

/** A step by a schedule, ready to run, and its properties that are known before it runs. */
interface ReadyStep {
  readonly name: ScheduleName;
  readonly schedule: PipelineSchedule;
  readonly peakBytes: number;
  readonly run: () => Promise<void>;
}

async function prepare(
  mesh: Mesh,
  name: ScheduleName,
  microbatches: number,
  numLayers = layersOfStage,
): Promise<ReadyStep> {
  const { step, schedule, weights, x } = buildStep(mesh, name, microbatches, numLayers);
  const everywhere = new NamedSharding(mesh, P());
  const zeros = np.zerosLike(x);
  const { peakBytes } = costAnalysis(step, { mesh })(weights, x, zeros);
  const [first, placed, zero] = await Promise.all([
    devicePut(weights.first, everywhere),
    devicePut(x, everywhere),
    devicePut(zeros, everywhere),
  ]);
  const kernels = await devicePut(weights.stages, new NamedSharding(mesh, P(null, "pipe")));
  const compiled = jit(step, { mesh });
  const run = () => settle(compiled({ ...weights, first, stages: kernels }, placed, zero));
  return { name, schedule, peakBytes, run };
}

/** Milliseconds of the slots of a step. */
interface SlotTimes {
  /** From the first slot's beginning to the last one's end. */
  readonly span: number;
  /** By stage and slot, without waiting. */
  readonly busy: readonly (readonly number[])[];
}

/** A slot of a recorded step: its duration, and the part of it that was not waiting. */
interface RecordedSlot {
  readonly length: number;
  readonly busy: number;
}

/** What devices did in the loop over slots, by stage and slot. */
function recordedSlots(events: readonly TraceEvent[]): RecordedSlot[][] {
  const devices = [...new Set(events.map(({ device }) => device))].sort((a, b) => a - b);
  return devices.map((device) => {
    const own = events.filter((event) => event.device === device);
    const waits = own.flatMap((event) => event.waits);
    return own.flatMap(({ kind, begin, end }) => {
      if (kind !== "iteration") return [];
      const waited = waits.filter((wait) => wait.begin >= begin && wait.end <= end);
      return [{ length: end - begin, busy: end - begin - sum(waited.map((wait) => wait.end - wait.begin)) }];
    });
  });
}

/**
 * A typical step, with typical durations of every slot. Only the recorded steps with the shortest actions count: other
 * load on the machine prolongs actions, and the waiting for them.
 */
function typicalStep(steps: readonly (readonly (readonly RecordedSlot[])[])[]): SlotTimes {
  const work = (step: readonly (readonly RecordedSlot[])[]) => sum(step.flat().map(({ busy }) => busy));
  const undisturbed = [...steps].sort((a, b) => work(a) - work(b)).slice(0, Math.ceil(steps.length / 8));
  const typical = (of: keyof RecordedSlot) =>
    at(steps, 0).map((slots, stage) =>
      slots.map((_, slot) => median(undisturbed.map((step) => at(at(step, stage), slot)[of]))),
    );
  return { span: Math.max(...typical("length").map(sum)), busy: typical("busy") };
}

/** The typical step of each; they take turns. */
async function record(
  engine: ThreadsEngine,
  runs: readonly (() => Promise<void>)[],
  seconds: number,
): Promise<SlotTimes[]> {
  const recorded: RecordedSlot[][][][] = runs.map(() => []);
  for (const run of runs) for (let i = 0; i < 3; i++) await run();
  const end = performance.now() + seconds * 1000;
  do {
    for (const [i, run] of runs.entries()) {
      at(recorded, i).push(recordedSlots(await traced(engine, run)));
    }
  } while (performance.now() < end);
  return recorded.map(typicalStep);
}

/** How long actions took: each by itself, or those of a kind on a stage on average. */
function actionTimes(schedule: PipelineSchedule, { busy }: SlotTimes) {
  const slots = actionsInSlots(schedule, false);
  const took = (stage: number, isMeant: (action: PipelineAction) => boolean): number => {
    const own = at(busy, stage).filter((_, slot) => {
      const action = slots[slot]?.[stage];
      return action !== undefined && isMeant(action);
    });
    return own.length === 0 ? 0 : mean(own);
  };
  return {
    ofKind: ({ kind }: Pick<PipelineAction, "kind">, stage: number) =>
      took(stage, (action) => action.kind === kind),
    each: ({ kind, chunk, microbatch }: PipelineAction, stage: number) =>
      took(
        stage,
        (action) => action.kind === kind && action.chunk === chunk && action.microbatch === microbatch,
      ),
  };
}

/** The columns about a recorded step. */
function bubbleColumns(schedule: PipelineSchedule, recorded: SlotTimes): Row {
  const { ofKind, each } = actionTimes(schedule, recorded);
  const ofStages = (kind: "F" | "I" | "W") => {
    const times = schedule.stages.map((_, stage) => ofKind({ kind }, stage));
    const shown = times.length > 2 ? [Math.min(...times), Math.max(...times)] : times;
    return shown.map((time) => time.toFixed(2)).join(times.length > 2 ? " to " : " ");
  };
  const bubble = bubbleOf(recorded);
  const formula = (times: typeof each) => 100 * simulateSchedule(schedule, { times, inSlots: true }).bubble;
  return {
    "step ms": recorded.span,
    "bubble ms": bubble,
    "bubble measured %": (100 * bubble) / recorded.span,
    "formula %": 100 * checkSchedule(schedule).bubble,
    "of these F I W %": formula(ofKind),
    "of each action %": formula(each),
    "F ms": ofStages("F"),
    "I ms": ofStages("I"),
    "W ms": ofStages("W"),
  };
}

/** The milliseconds in which a stage has nothing to do, on average. */
function bubbleOf({ span, busy }: SlotTimes): number {
  return span - sum(busy.flat()) / busy.length;
}

/** The milliseconds of GPipe on the same layers in JAX, where it is installed. */
function jaxGPipe(stages: number, microbatches: number): number | null {
  const layers = stages * layersOfStage;
  const sizes = { stages, microbatches, rows: microbatchSize, length, width, layers };
  return runJax("pipeline.py", sizes, { devices: stages, cores: stages })?.step_ms ?? null;
}

/** Every schedule on the same mathematics, with two stages. */
export async function compareSchedules(engine: ThreadsEngine): Promise<Report> {
  const stages = 2;
  const mesh = Mesh.create({ pipe: stages }, { engine });
  const [steps, bubbles]: [Row[], Row[]] = [[], []];
  for (const microbatches of [2, 4, 8]) {
    const ready: ReadyStep[] = [];
    for (const name of names) ready.push(await prepare(mesh, name, microbatches));
    const runs = ready.map(({ run }) => run);
    const times = await bestInTurns(runs, { seconds: 12 });
    const recorded = await record(engine, runs, 4 * runs.length);
    for (const [i, { name, schedule, peakBytes }] of ready.entries()) {
      steps.push({
        schedule: name,
        microbatches,
        ms: at(times, i),
        "x GPipe": at(times, i) / at(times, 0),
        "peak MiB a device": peakBytes / 2 ** 20,
        "JAX GPipe ms": name === "gpipe" ? jaxGPipe(stages, microbatches) : null,
      });
      bubbles.push({ schedule: name, microbatches, ...bubbleColumns(schedule, at(recorded, i)) });
    }
  }
  return {
    "schedules, 2 stages, forward and backward": steps,
    "bubble of schedules: the share of the time that devices wait": bubbles,
  };
}

/**
 * How much splitting the backward pass reduces the bubble, with `--devices` stages, each on its own core:
 * a stage of several threads takes as long as the slowest of them, and actions of one kind differ more.
 */
export async function bubbles(): Promise<Report> {
  const report: Record<string, readonly Row[]> = {};
  for (const stages of countsOption("devices", [2])) {
    const engine = createThreadsEngine({ numDevices: stages, threadsPerDevice: 1, pinned: true });
    const mesh = Mesh.create({ pipe: stages }, { engine });
    const rows: Row[] = [];
    for (const microbatches of [stages, 2 * stages, 4 * stages]) {
      const ready: ReadyStep[] = [];
      for (const name of ["1f1b", "zb-h1", "zb-v"] as const)
        ready.push(await prepare(mesh, name, microbatches, layersOfDeepStage));
      const recorded = await record(
        engine,
        ready.map(({ run }) => run),
        // Longer steps are disturbed more often.
        (20 * microbatches) / stages,
      );
      for (const [i, { name, schedule }] of ready.entries()) {
        const [own, whole] = [at(recorded, i), at(recorded, 0)];
        const ofWhole = bubbleOf(own) / bubbleOf(whole);
        rows.push({ schedule: name, microbatches, ...bubbleColumns(schedule, own), "x 1F1B": ofWhole });
      }
    }
    await engine.close();
    report[`bubble of ${stages} stages: the share of the time that devices wait`] = rows;
  }
  return report;
}
