/** A training step of the trainer's Llama in every kind of parallelism, as the command line would run it. */
import { devicePut, Mesh, random, type Tensor } from "shardwise";
import type { ThreadsEngine } from "shardwise/engines";
import { adamw, chain, clipByGlobalNorm } from "shardwise/optim";
import { createTraining } from "shardwise/train";
import type { DecoderSize } from "./decoder.js";

/** The kinds of parallelism besides plain data parallelism. */
export const KINDS = ["fsdp", "tensor", "async", "gpipe", "circular"] as const;

/** One of {@link KINDS}. */
export type Kind = (typeof KINDS)[number];

/** The axes of a mesh and how a batch passes through its stages. */
export interface ParallelPlan {
  readonly data: number;
  readonly fsdp: number;
  readonly pipe: number;
  readonly model: number;
  readonly microbatches: number;
  readonly repeats: number;
}

/** Number of repeats of a circular pipeline. */
const CIRCULAR_REPEATS = 2;

/** The mesh of a kind on this many devices: as much of the kind as the model allows, the rest is data parallel. */
export function planFor(kind: Kind, size: DecoderSize, devices: number): ParallelPlan {
  const none = { data: 1, fsdp: 1, pipe: 1, model: 1, microbatches: 1, repeats: 1 };
  if (kind === "fsdp") return { ...none, fsdp: devices };
  if (kind === "tensor" || kind === "async") {
    const model = Math.min(devices, size.width / size.headSize);
    return { ...none, model, data: devices / model };
  }
  const repeats = kind === "circular" ? CIRCULAR_REPEATS : 1;
  const pipe = Math.min(devices, size.layers / repeats);
  const data = devices / pipe;
  // Four micro-batches a stage keep the bubble small; each takes at least a row of every device.
  const microbatches = Math.min(4 * pipe, size.batch / data);
  return { ...none, data, pipe, microbatches, repeats };
}

/** The inner width of the gated MLP that has as many weights as one of four times the width. */
export function mlpWidth({ width }: DecoderSize): number {
  return Math.round((8 * width) / 3 / 64) * 64;
}

/** Floating-point operations of a step: six times weights times tokens, and attention. */
export function llamaFlops(size: DecoderSize): number {
  const { width, layers, sequence, batch, vocabulary } = size;
  const weights = vocabulary * width + layers * (4 * width * width + 3 * width * mlpWidth(size));
  return (6 * weights + 12 * layers * width * sequence) * batch * sequence;
}

/** Prepares a step; each call runs one and waits for it. */
export async function prepareStep(
  kind: Kind,
  size: DecoderSize,
  engine: ThreadsEngine,
): Promise<() => Promise<void>> {
  const { microbatches, repeats, ...axes } = planFor(kind, size, engine.numDevices);
  const mesh = Mesh.create(axes, { engine });
  const numHeads = size.width / size.headSize;
  const training = createTraining({
    mesh,
    model: {
      kind: "llama",
      vocabSize: size.vocabulary,
      width: size.width,
      numLayers: size.layers,
      numHeads,
      numKvHeads: numHeads,
      mlpWidth: mlpWidth(size),
      tieEmbeddings: false,
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      dtype: "float32",
      remat: "none",
    },
    optimizer: chain(clipByGlobalNorm(1), adamw({ learningRate: 3e-4, b2: 0.95, weightDecay: 0.1 })),
    tensor: kind === "async" ? "async" : "sync",
    pipeline: { microbatches, repeats },
  });
  let state = training.init(0);
  const drawn = random.randint(random.key(1), [size.batch, size.sequence + 1], 0, size.vocabulary);
  const tokens: Tensor = await devicePut(drawn, training.batchSharding);
  return async () => {
    const [next, { loss }] = training.step(state, tokens);
    state = next;
    await loss.item();
  };
}
