/** Trains a small Llama on the workers of this tab. */
import { devicePut, engineInfo, Mesh, np, type Tensor, tree } from "shardwise";
import { createWebGpuEngine } from "shardwise/engines";
import { adamw, chain, clipByGlobalNorm, warmupCosine } from "shardwise/optim";
import { byteTokenizer, continueText, createTraining, openBatches, tokensInMemory } from "shardwise/train";
import { type Span, spansOf } from "./record.js";
import { batch, firstSample, numLayers } from "./trainingSizes.js";

/** What the page asks for. */
export interface ToTraining {
  readonly data: number;
  readonly pipe: number;
  readonly model: number;
  readonly steps: number;
  /** Whether the GPU computes, which all devices then share. */
  readonly onGpu: boolean;
}

/** What the page is told. */
export type FromTraining =
  | { readonly kind: "ready"; readonly parameters: number; readonly engine: string; readonly tokens: number }
  | { readonly kind: "step"; readonly step: number; readonly loss: number; readonly tokensPerSecond: number }
  | { readonly kind: "timeline"; readonly spans: readonly Span[]; readonly ms: number }
  | { readonly kind: "sample"; readonly step: number; readonly text: string }
  | { readonly kind: "ended" }
  | { readonly kind: "failed"; readonly message: string };

const tell = (message: FromTraining): void => postMessage(message);
const [sequence, window] = [64, 64];

async function train(asked: ToTraining): Promise<void> {
  const response = await fetch("text.txt");
  if (!response.ok) throw new Error(`the text could not be loaded: ${response.status}`);
  const tokenizer = byteTokenizer();
  const tokens = tokenizer.encode(await response.text());
  const { data, pipe, model, steps } = asked;
  const numMicrobatches = pipe > 1 ? 4 : 1;
  const gpu = asked.onGpu ? createWebGpuEngine({ numDevices: data * pipe * model }) : undefined;
  await gpu?.opened;
  const mesh = Mesh.create({ data, fsdp: 1, pipe, model }, gpu ? { engine: gpu } : {});
  const learningRate = warmupCosine({ peak: 4e-3, warmupSteps: 20, steps: Math.max(steps, 21) });
  const training = createTraining({
    mesh,
    model: {
      kind: "llama",
      // Splits over every number of devices that the page offers.
      vocabSize: 4 * Math.ceil(tokenizer.vocabSize / 4),
      width: 64,
      numLayers,
      numHeads: 4,
      numKvHeads: 4,
      mlpWidth: 192,
      tieEmbeddings: true,
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      dtype: "float32",
      remat: "none",
    },
    optimizer: chain(clipByGlobalNorm(1), adamw({ learningRate })),
    ...(pipe > 1 ? { pipeline: { microbatches: numMicrobatches, repeats: 1, schedule: "circular" } } : {}),
  });
  const batches = openBatches(tokensInMemory(tokens, tokenizer.vocabSize), {
    sequenceLength: sequence,
    batchSize: batch,
  });
  /** Rows with the token after the last. */
  const next = async () => {
    const { inputs, targets, shape } = await batches.next();
    const last = np.array(targets).reshape(shape).get(np.s(), np.s(-1));
    return devicePut(np.concatenate([np.array(inputs).reshape(shape), last], 1), training.batchSharding);
  };
  let state = training.init(0);
  const sizes = tree.leaves(state.params).map((leaf) => (leaf as Tensor).size);
  const parameters = sizes.reduce((sum, size) => sum + size, 0);
  const engine = gpu ? `webgpu on ${gpu.info().deviceKind}` : engineInfo().engine;
  tell({ kind: "ready", parameters, engine, tokens: tokens.length });
  let last = performance.now();
  for (let step = 1; step <= steps; step++) {
    const isRecorded = step % 50 === 5;
    const tracer = isRecorded ? mesh.engine.tracer : undefined;
    tracer?.start();
    const rows = await next();
    const [changed, metrics] = training.step(state, rows);
    state = changed;
    const loss = await metrics.loss.item();
    const now = performance.now();
    tell({ kind: "step", step, loss, tokensPerSecond: (1000 * batch * sequence) / (now - last) });
    if (isRecorded) {
      const spans = tracer ? spansOf(await tracer.stop()) : [];
      tell({ kind: "timeline", spans, ms: now - last });
    }
    if (step === firstSample || step % 50 === 0 || step === steps)
      tell({ kind: "sample", step, text: await sample(training, state, step, data * numMicrobatches) });
    last = performance.now();
  }
  tell({ kind: "ended" });
}

/**
 * Continues a text. The model always reads a window of the same length, so that it is compiled once.
 *
 * @param numRows how many equal rows the mesh needs
 */
async function sample(
  training: ReturnType<typeof createTraining>,
  state: ReturnType<typeof training.init>,
  seed: number,
  numRows: number,
): Promise<string> {
  const tokenizer = byteTokenizer();
  const nextLogits = async (tokens: readonly number[]) => {
    const rows = new Int32Array(window);
    rows.set(tokens.slice(-window));
    const logits = training.logits(state, np.tile(np.array(rows), [numRows, 1]));
    return (await logits
      .get(0)
      .get(Math.min(tokens.length, window) - 1)
      .data()) as ArrayLike<number>;
  };
  return continueText(nextLogits, tokenizer, window, { prompt: "The ", length: 120, temperature: 0.7, seed });
}

addEventListener("message", async ({ data }: MessageEvent<ToTraining>) => {
  try {
    await train(data);
  } catch (error) {
    tell({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
  }
});
