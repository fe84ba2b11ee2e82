/**
 * One AdamW step of decoders on a GPU, through XLA compared with JAX and, in bfloat16 and where `TORCH_PYTHON` names a
 * Python that has it, PyTorch in the same run, or through WebGPU. With `--precision bfloat16,float8`, products with
 * float8 factors beside those of bfloat16.
 *
 *     TORCH_PYTHON=python3 npm run bench -- lm --engine xla --sizes 103M,350M --remat dots
 *     npm run bench -- lm --engine webgpu --sizes 103M --remat dots --precision float32,float16
 */
import { spawnSync } from "node:child_process";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { devicePut, jit, Mesh, NamedSharding, np, P, type Tensor } from "shardwise";
import { createXlaEngine, type Engine, importEngine, openEngine } from "shardwise/engines";
import {
  activationType,
  type GpuChoice,
  type GpuDecoderSize,
  gpuPrecisions,
  gpuSizes,
  gpuStepFlops,
  gpuTokens,
  makeGpuStep,
  makeState,
  rematChoices,
} from "./gpuDecoder.js";
import { announce, type GpuReport, median, type Row } from "./measure.js";
import { listOption } from "./options.js";
import { runTorch, writeInputs } from "./torch.js";

interface Result {
  readonly median_ms: number;
  readonly best_ms: number;
  readonly pipelined_ms: number;
  readonly first_ms: number;
  /** From when a process was started to the end of its first step, if it was told when. */
  readonly since_begun_ms?: number;
  /** The first step of the same program in another engine, which finds it compiled on disk. */
  readonly again_ms?: number;
  readonly peak_bytes: number | null;
  readonly losses: readonly number[];
  /** A program of one addition, awaited and chained, in microseconds a run. */
  readonly tiny_us?: readonly [awaited: number, chained: number];
}

/**
 * The share of the device's memory that is reserved at once: memory that grows is rounded up by as much as a tenth, and
 * peaks would measure that instead of programs. JAX reserves most of it by default.
 */
const memoryFraction = ({ width }: GpuDecoderSize) => (width > 1024 ? 0.5 : 0.25);

/** How many steps are timed. */
const rounds = 15;

/** The share of a device's peak that counts as all of it, in TFLOP/s of products of 16-bit floats. */
const peaks: Readonly<Record<string, number>> = { "NVIDIA H200": 989, "NVIDIA H100 80GB HBM3": 989 };

/** The same step in JAX with its fastest attention, or `null` if it does not run. */
export function runJaxOnGpu(
  size: GpuDecoderSize & { readonly begun?: number },
  { remat, precision }: GpuChoice,
  numRounds = rounds,
): Result | null {
  const python = process.env.JAX_PYTHON ?? process.env.SHARDWISE_PYTHON ?? "python3";
  const script = fileURLToPath(new URL("./jax/gpuDecoder.py", import.meta.url));
  const dtype = activationType(precision);
  // cuDNN has attention for 16-bit floats only.
  const attention = dtype === "float32" ? "xla" : "cudnn";
  const args = [script, JSON.stringify({ ...size, remat, dtype }), String(numRounds), attention];
  const env = { ...process.env, XLA_PYTHON_CLIENT_MEM_FRACTION: "0.5" };
  const { stdout, status, stderr } = spawnSync(python, args, { encoding: "utf8", timeout: 240_000, env });
  if (status === 0) return JSON.parse(stdout.trim().split("\n").at(-1) ?? "null");
  console.error(`JAX did not run: ${(stderr ?? "").split("\n").slice(-3).join(" ")}`);
  return null;
}

/** The same step in PyTorch, which decides itself what it recomputes; compiled, and eager. */
async function runTorchDecoders(size: GpuDecoderSize): Promise<readonly [by: string, Result][]> {
  if (!process.env.TORCH_PYTHON) return [];
  const engine = createXlaEngine({ memoryFraction: memoryFraction(size) });
  const mesh = Mesh.create({ data: 1 }, { engine });
  const { remove, settings } = await writeInputs(makeState(size, mesh).params, gpuTokens(size));
  await engine.close();
  const found = (
    [
      ["PyTorch compiled", true],
      ["PyTorch", false],
    ] as const
  ).flatMap(([by, compiled]) => {
    const own = { ...size, ...settings, dtype: "bfloat16", rounds, compiled };
    const result = runTorch<Result>("gpuDecoder.py", own);
    return result ? [[by, result] as [string, Result]] : [];
  });
  remove();
  return found;
}

async function measureTiny(mesh: Mesh): Promise<[awaited: number, chained: number]> {
  const add = jit((x: Tensor) => x.add(1), { mesh, name: "tiny" });
  const measure = async (count: number, waits: boolean) => {
    let x = await devicePut(np.zeros([8]), new NamedSharding(mesh, P()));
    await add(x).ready();
    const start = performance.now();
    for (let i = 0; i < count; i++) {
      x = add(x);
      if (waits) await x.ready();
    }
    await x.ready();
    return (1000 * (performance.now() - start)) / count;
  };
  const best = async (waits: boolean) => {
    const times: number[] = [];
    for (let i = 0; i < 5; i++) times.push(await measure(1000, waits));
    return Math.min(...times);
  };
  await measure(2000, true);
  return [await best(true), await best(false)];
}

/** The first step in a process that has not run the program, whether it was compiled before or not. */
async function firstStep(size: GpuDecoderSize, choice: GpuChoice, engine: Engine) {
  const mesh = Mesh.create({ data: 1 }, { engine });
  const state = makeState(size, mesh);
  const tokens = await devicePut(gpuTokens(size), new NamedSharding(mesh, P()));
  await state.params.embed.ready();
  const step = makeGpuStep(size, choice, mesh);
  const begin = performance.now();
  const [next, value] = step(state, tokens);
  const loss = await value.item();
  return { first: performance.now() - begin, state: next, loss, step, tokens, mesh };
}

async function measure(size: GpuDecoderSize, choice: GpuChoice, engine: Engine): Promise<Result> {
  const begun = await firstStep(size, choice, engine);
  const { step, tokens, first } = begun;
  let { state } = begun;
  const losses = [begun.loss];
  const times: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const start = performance.now();
    const [next, value] = step(state, tokens);
    state = next;
    losses.push(await value.item());
    times.push(performance.now() - start);
  }
  const start = performance.now();
  for (let i = 0; i < rounds; i++) [state] = step(state, tokens);
  await state.step.ready();
  const pipelined = (performance.now() - start) / rounds;
  return {
    median_ms: median(times),
    best_ms: Math.min(...times),
    pipelined_ms: pipelined,
    first_ms: first,
    peak_bytes: engine.memoryUsage?.(0).peak ?? null,
    losses: losses.slice(0, 8),
    tiny_us: await measureTiny(begun.mesh),
  };
}

type GpuEngine = "xla" | "webgpu";

async function open(name: GpuEngine, size: GpuDecoderSize): Promise<Engine> {
  if (name === "xla") return createXlaEngine({ memoryFraction: memoryFraction(size) });
  await importEngine("webgpu");
  return openEngine("webgpu", { numDevices: 1 });
}

async function measureAgain(name: GpuEngine, size: GpuDecoderSize, choice: GpuChoice): Promise<number> {
  const engine = await open(name, size);
  const { first } = await firstStep(size, choice, engine);
  await engine.close();
  return first;
}

/** Runs the benchmark, what needs less memory first, so that peaks are those of one model. */
export async function lmOnGpu(name: GpuEngine): Promise<GpuReport> {
  const names = gpuSizes.map((size) => size.name);
  const chosen = listOption("sizes", ["103M", "350M"], names);
  const remats = listOption("remat", ["full", "named", "dots"], rematChoices);
  const precisions = listOption("precision", ["bfloat16"], gpuPrecisions);
  const choices = rematChoices
    .filter((remat) => remats.includes(remat))
    .flatMap((remat) => precisions.map((precision): GpuChoice => ({ remat, precision })));
  const rows: Row[] = [];
  let kind: string = name;
  for (const size of gpuSizes.filter((one) => chosen.includes(one.name))) {
    for (const choice of choices) {
      const engine = await open(name, size);
      kind = engine.info?.().deviceKind ?? kind;
      const measured = await measure(size, choice, engine);
      await engine.close();
      const own = { ...measured, again_ms: await measureAgain(name, size, choice) };
      const { precision } = choice;
      rows.push(announce(rowOf("shardwise", size, choice, own, own, kind)));
      const jax = name === "xla" && precision !== "float8" ? runJaxOnGpu(size, choice) : null;
      if (jax) rows.push(announce(rowOf("JAX", size, choice, jax, own, kind)));
      if (name !== "xla" || choice !== choices.findLast((one) => one.precision === "bfloat16")) continue;
      for (const [by, result] of await runTorchDecoders(size)) {
        rows.push(announce(rowOf(by, size, choice, result, own, kind)));
      }
    }
  }
  const report = { [`training step on ${kind}${name === "xla" ? "" : " through WebGPU"}`]: rows };
  return { gpu: kind, report };
}

function rowOf(
  by: string,
  size: GpuDecoderSize,
  choice: GpuChoice,
  result: Result,
  own: Result,
  kind: string,
): Row {
  const rate = gpuStepFlops(size) / result.median_ms / 1e9;
  const peak = choice.precision === "float32" ? undefined : peaks[kind];
  return {
    model: size.name,
    remat: choice.remat,
    precision: choice.precision,
    by,
    "step ms": result.median_ms,
    "best ms": result.best_ms,
    "pipelined ms": result.pipelined_ms,
    "first ms": result.first_ms,
    "again ms": result.again_ms ?? null,
    "peak GiB": result.peak_bytes === null ? null : result.peak_bytes / 2 ** 30,
    "TFLOP/s": rate,
    "% of peak": peak === undefined ? null : (100 * rate) / peak,
    "times ours": result.median_ms / own.median_ms,
    "tiny awaited µs": result.tiny_us?.[0] ?? null,
    "tiny chained µs": result.tiny_us?.[1] ?? null,
    losses: result.losses.map((loss) => loss.toFixed(4)).join(" "),
  };
}
