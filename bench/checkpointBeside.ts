/** Training steps beside an asynchronous save: what `--checkpoint async` costs them while it writes. */
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { Mesh, np, type Tensor, tree } from "shardwise";
import type { Engine } from "shardwise/engines";
import { adamw } from "shardwise/optim";
import { createTraining, openCheckpoints } from "shardwise/train";
import { at } from "../src/ir/shape.js";
import { mean, median, type Row } from "./measure.js";

/** How long steps are repeated, in seconds, each time with and without a save beside them. */
const seconds = 1.5;

/** How often steps with and without a save take turns: other programs disturb some of the turns. */
const numTurns = 15;

/**
 * Steps of a Llama, beside saves that follow one another without a pause and without them, in turns: what the machine
 * does meanwhile is the same for both. The medians of the means of all turns are compared.
 */
export async function besideSaves(folder: string, engine: Engine, numDevices: number): Promise<Row> {
  const isGpu = engine.info?.().engine === "xla";
  const size = isGpu ? { width: 1024, numLayers: 8, length: 1024 } : { width: 512, numLayers: 4, length: 64 };
  const { width, numLayers, length } = size;
  const mesh = Mesh.create({ data: 1, fsdp: numDevices, pipe: 1, model: 1 }, { engine });
  const training = createTraining({
    mesh,
    model: {
      kind: "llama",
      vocabSize: 4096,
      width,
      numLayers,
      numHeads: width / 64,
      numKvHeads: width / 64,
      mlpWidth: 4 * width,
      tieEmbeddings: true,
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      dtype: isGpu ? "bfloat16" : "float32",
      remat: "none",
    },
    optimizer: adamw({ learningRate: 3e-4 }),
  });
  const tokens = np.ones([8, length + 1], { dtype: "int32" });
  let state = training.init(0);
  /** The milliseconds between the ends of steps until it is over. */
  const stepsUntil = async (isOver: () => boolean): Promise<number[]> => {
    const ends: number[] = [];
    let last: Promise<number> | undefined;
    while (!isOver()) {
      const [next, { loss }] = training.step(state, tokens);
      state = next;
      // As in a run, a step is on its way while the end of the one before it is awaited.
      if (last) ends.push(await last);
      last = loss.ready().then(() => performance.now());
    }
    if (last) ends.push(await last);
    return ends.slice(1).map((end, i) => end - at(ends, i));
  };
  const forSeconds = () => {
    const end = performance.now() + 1000 * seconds;
    return () => performance.now() >= end;
  };
  await stepsUntil(forSeconds());
  const start = performance.now();
  const copy = training.copy(state);
  await copy.step.ready();
  const copyMs = performance.now() - start;
  // As a run with --checkpoint async opens them.
  const checkpoints = openCheckpoints(join(folder, "beside"), { keep: 1, maxHeldBytes: 2 ** 26 });
  const turns: { readonly alone: number; readonly beside: number }[] = [];
  const saves: number[] = [];
  for (let turn = 0; turn < numTurns; turn++) {
    const alone = mean(await stepsUntil(forSeconds()));
    const isOver = forSeconds();
    const saving = (async () => {
      while (!isOver()) {
        const begin = performance.now();
        await (await checkpoints.save(saves.length + 1, copy)).committed;
        saves.push(performance.now() - begin);
      }
    })();
    turns.push({ alone, beside: mean(await stepsUntil(isOver)) });
    await saving;
  }
  const bytes = tree.leaves(copy).reduce<number>((total, leaf) => total + 4 * (leaf as Tensor).size, 0);
  tree.dispose(copy);
  tree.dispose(state);
  return {
    engine: engine.info?.().engine ?? "threads",
    devices: numDevices,
    GB: bytes / 1e9,
    "step ms": median(turns.map(({ alone }) => alone)),
    "beside a save ms": median(turns.map(({ beside }) => beside)),
    "cost %": 100 * (median(turns.map(({ alone, beside }) => beside / alone)) - 1),
    "copy ms": copyMs,
    "save GB/s": bytes / 1e6 / median(saves),
  };
}
