/**
 * Pipeline schedules: the same model trained under five of them. Each is drawn and checked before it runs, and all
 * reach the same loss.
 *
 *   npm run example -- schedules
 */
import { jit, Mesh, np, random, type Tensor, tree } from "shardwise";
import { checkSchedule, drawSchedule, makeSchedule, pipelineTrainStep, placeParts } from "shardwise/parallel";

const steps = Number(process.env.STEPS ?? 40);
const target = Number(process.env.TARGET ?? 0.3);
const [numStages, numMicrobatches, numParts, width] = [2, 4, 4, 16];

const mesh = Mesh.create({ pipe: numStages });

/** What is in front of the stages, what every part of the model computes, and the loss. */
const functions = {
  first: (w: { kernel: Tensor }, x: Tensor) => np.matmul(x, w.kernel),
  stage: (w: { up: Tensor; down: Tensor }, h: Tensor) =>
    h.add(np.matmul(np.tanh(np.matmul(h, w.up)), w.down)),
  last: (w: { kernel: Tensor }, h: Tensor, y: Tensor) => np.mean(np.square(np.matmul(h, w.kernel).sub(y))),
};

const key = (i: number) => random.foldIn(random.key(0), i);
const scaled = (i: number, shape: number[], fanIn: number) =>
  random.normal(key(i), shape).mul(1 / Math.sqrt(fanIn));
const x = random.normal(key(0), [32, width]);
const y = np.tanh(np.roll(x, 1, 1).mul(2));

/** Loss after every step; schedules with one chunk have two layers in a part, so that the model is the same. */
async function train(name: "gpipe" | "1f1b" | "interleaved" | "zb-h1" | "zb-v"): Promise<number[]> {
  const numChunks = name === "interleaved" || name === "zb-v" ? 2 : 1;
  const schedule = makeSchedule(name, { numStages, numMicrobatches, numChunks });
  const layers = numParts / (numStages * numChunks);
  const perPart = (leaf: Tensor) => leaf.reshape([numParts / layers, layers, ...leaf.shape.slice(1)]);
  const grouped = {
    ...functions,
    stage: (w: { up: Tensor; down: Tensor }, h: Tensor) => {
      let out = h;
      for (let i = 0; i < layers; i++) out = functions.stage({ up: w.up.get(i), down: w.down.get(i) }, out);
      return out;
    },
  };
  const step = pipelineTrainStep(schedule, grouped, { mesh });
  let weights = {
    first: { kernel: scaled(1, [width, width], width) },
    stages: placeParts(
      schedule,
      tree.map(perPart, {
        up: scaled(2, [numParts, width, 2 * width], width),
        down: scaled(3, [numParts, 2 * width, width], 2 * width),
      }),
    ),
    last: { kernel: scaled(4, [width, width], width) },
  };
  const update = jit(
    (w: typeof weights, inputs: Tensor, targets: Tensor) => {
      const { value, grads } = step(w, inputs, targets);
      return [tree.map((p: Tensor, g: Tensor) => p.sub(g.mul(0.2)), w, grads), value] as const;
    },
    { mesh },
  );
  const losses: number[] = [];
  for (let i = 0; i < steps; i++) {
    const [next, loss] = update(weights, x, y);
    weights = next;
    losses.push(await loss.item());
  }
  const { bubble, activations } = checkSchedule(schedule);
  console.log(
    `${name}: ${(100 * bubble).toFixed(0)} % bubble, keeps the activations of ${Math.max(...activations)} parts at most`,
  );
  console.log(drawSchedule(schedule));
  return losses;
}

const curves = [];
for (const name of ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"] as const) curves.push(await train(name));
const last = curves.map((losses) => losses.at(-1) ?? Number.NaN);
console.log(`losses after ${steps} steps: ${last.map((loss) => loss.toFixed(5)).join(", ")}`);
const [reference = Number.NaN] = last;
if (last.some((loss) => !(Math.abs(loss - reference) <= 1e-4 * reference)))
  throw new Error("the schedules should reach the same loss");
if (!(reference < target)) throw new Error(`the loss is ${reference}, it should be below ${target}`);
