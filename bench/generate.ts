/**
 * Tokens per second of one text, compared with the time in which the same threads read as many bytes as the weights
 * have, and with transformers (`TORCH_PYTHON`) on as many cores, or on the same GPU, if it is installed. A recurrent
 * model also has to read and write its state, which "with state" counts.
 *
 * Reading and decoding take turns, and medians of their mean times are compared, because other programs may use the
 * memory, too.
 *
 *     npm run bench -- generate --dtype float32,bfloat16 --sizes 130M
 *     npm run bench -- generate --engine xla --sizes 1B,8B --dtype bfloat16
 */
import { availableParallelism } from "node:os";
import { performance } from "node:perf_hooks";
import { jit, Mesh, np, random, type Tensor, tree } from "shardwise";
import { createThreadsEngine, createXlaEngine, type Engine } from "shardwise/engines";
import type { Variables } from "shardwise/nn";
import {
  fuseProjections,
  type GenerateOptions,
  generate as generateText,
  type ModelConfig,
} from "shardwise/train";
import { bytesOfAll } from "../src/ir/shape.js";
import { castFloats } from "../src/optim/index.js";
import { LanguageModel } from "../src/train/models/languageModel.js";
import { median, type Report, type Row, settle } from "./measure.js";
import { listOption, option } from "./options.js";
import { runTorch } from "./torch.js";

/** Number of turns, and how often memory is read and how many tokens are written in each. */
const numTurns = 8;
const numReads = 5;
const numTokens = 16;

const sizes = {
  "25M": { width: 512, numLayers: 6, mlpWidth: 1408 },
  "130M": { width: 1024, numLayers: 8, mlpWidth: 2816 },
  "1B": { width: 2048, numLayers: 16, mlpWidth: 8192 },
  "8B": { width: 4096, numLayers: 32, mlpWidth: 14_336 },
} as const;

const dtypes = ["float32", "bfloat16"] as const;

/** How tokens are drawn where they are not the likeliest ones. */
const drawn = { temperature: 0.8, topK: 50, topP: 0.95, repetitionPenalty: 1.1 } as const;

/** Runs the benchmark. */
export async function generate(): Promise<Report> {
  const cores = availableParallelism();
  const isGpu = option("engine") === "xla";
  const device = isGpu ? "cuda" : "cpu";
  const engine: Engine = isGpu
    ? await createXlaEngine()
    : createThreadsEngine({ numDevices: 1, threadsPerDevice: cores });
  const mesh = Mesh.create({ data: 1 }, { engine });
  const readSpeed = reader(mesh, isGpu ? 2 ** 34 : 2 ** 29);
  const rows: Row[] = [];
  for (const size of listOption("sizes", ["130M"], Object.keys(sizes))) {
    for (const dtype of listOption("dtype", dtypes, dtypes)) {
      for (const kind of ["llama", "mlstm"] as const) {
        console.error(`  ${kind} ${size}, ${dtype} …`);
        rows.push(await row(kind, size as keyof typeof sizes, dtype, mesh, readSpeed, { cores, device }));
      }
    }
  }
  await engine.close();
  return { "decoding one text": rows };
}

/**
 * Measures the mean speed at which all cores together read memory, in GB/s.
 *
 * @param bytes many times what caches hold; on a GPU, enough that it takes much longer than the start of a kernel
 */
function reader(mesh: Mesh, bytes: number): () => Promise<number> {
  const x = jit(() => np.ones([bytes / 2 ** 13, 2 ** 11]), { mesh })();
  const sums = jit((a: Tensor) => np.sum(a, 1), { mesh });
  return async () => {
    const begin = performance.now();
    for (let i = 0; i < numReads; i++) await settle(sums(x));
    return (numReads * bytes) / (performance.now() - begin) / 1e6;
  };
}

async function row(
  kind: "llama" | "mlstm",
  size: keyof typeof sizes,
  dtype: (typeof dtypes)[number],
  mesh: Mesh,
  readSpeed: () => Promise<number>,
  { cores, device }: { readonly cores: number; readonly device: string },
): Promise<Row> {
  const { width } = sizes[size];
  const model: ModelConfig = {
    ...{ kind, vocabSize: 32_000, ...sizes[size], numHeads: width / 64, numKvHeads: width / 64 },
    ...{ tieEmbeddings: true, ropeBase: 10_000, normEpsilon: 1e-6, dtype, remat: "none" },
  };
  const create = () => castFloats(LanguageModel(model).init(random.key(0), np.zeros([1, 2], "int32")), dtype);
  const { config, params } = fuseProjections(model, jit(create, { mesh })(), { donate: true });
  const bytes = totalBytes(params);
  const stateBytes = kind === "mlstm" ? bytesOfState(config, mesh) : 0;
  const prompt = Array.from({ length: 16 }, (_, i) => i + 3);
  const write = async (sampling: GenerateOptions) => {
    const times: number[] = [];
    const options = { mesh, slots: 1, maxTokens: numTokens, ...sampling };
    for await (const _ of generateText(config, params, [prompt], options)) times.push(performance.now());
    // A mean, because steps run ahead of the reader.
    return ((times.at(-1) ?? 0) - (times[1] ?? 0)) / (numTokens - 2);
  };
  const turns: { readonly speed: number; readonly ms: number; readonly drawnMs: number }[] = [];
  for (let turn = 0; turn <= numTurns; turn++) {
    const speed = await readSpeed();
    turns.push({ speed, ms: await write({ temperature: 0 }), drawnMs: await write(drawn) });
  }
  tree.dispose(params);
  // The first turn compiles.
  turns.shift();
  const middle = (of: keyof (typeof turns)[number]) => median(turns.map((turn) => turn[of]));
  const [ms, drawnMs, speed] = [middle("ms"), middle("drawnMs"), middle("speed")];
  const share = (moved: number) => median(turns.map((turn) => moved / turn.speed / 1e6 / turn.ms));
  const torch =
    kind === "llama"
      ? runTorch<number>("generate.py", { ...model, device, cores, tokens: 3 * numTokens }, cores)
      : null;
  return {
    ...{ model: `${kind} ${size}`, dtype, "MB of weights": bytes / 1e6, "ms/token": ms, "drawn ms": drawnMs },
    ...{ "tokens/s": 1000 / ms, "memory GB/s": speed, "share of it": share(bytes) },
    ...{ "with state": stateBytes > 0 ? share(bytes + 2 * stateBytes) : null, "transformers ms": torch },
  };
}

/** The bytes of what a recurrent model keeps of one text. */
function bytesOfState(config: ModelConfig, mesh: Mesh): number {
  const network = LanguageModel({ ...config, cacheLength: 1 });
  const create = () => ({ cache: network.init(random.key(0), np.zeros([1, 1], "int32")).cache ?? {} });
  const empty = jit(create, { mesh })();
  const bytes = totalBytes(empty);
  tree.dispose(empty);
  return bytes;
}

function totalBytes(values: Variables): number {
  return bytesOfAll(tree.leaves(values) as Tensor[]);
}
