/** One AdamW step of two decoders on the XLA engine, beside JAX in the same run. */
import { spawnSync } from "node:child_process";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { devicePut, Mesh, NamedSharding, P } from "shardwise";
import { type Engine, openEngine } from "shardwise/engines";
import {
  type GpuDecoderSize,
  gpuSizes,
  gpuStepFlops,
  gpuTokens,
  makeGpuStep,
  makeState,
} from "./gpuDecoder.js";
import type { Report, Row } from "./measure.js";
import { listOption } from "./options.js";

interface Result {
  readonly median_ms: number;
  readonly best_ms: number;
  readonly pipelined_ms: number;
  readonly first_ms: number;
  readonly peak_bytes: number | null;
  readonly losses: readonly number[];
}

/** How many steps are timed. */
const rounds = 15;

/** The share of a device's peak that counts as all of it, in TFLOP/s of bfloat16 products. */
const peaks: Readonly<Record<string, number>> = { "NVIDIA H200": 989, "NVIDIA H100 80GB HBM3": 989 };

/** The same step in JAX with an implementation of attention, or `null` where it does not run. */
function runJax(size: GpuDecoderSize, attention: string): Result | null {
  const python = process.env.JAX_PYTHON ?? process.env.SHARDWISE_PYTHON ?? "python3";
  const script = fileURLToPath(new URL("./jax/gpuDecoder.py", import.meta.url));
  const args = [script, JSON.stringify(size), String(rounds), attention];
  const { stdout, status, stderr } = spawnSync(python, args, { encoding: "utf8", timeout: 240_000 });
  if (status === 0) return JSON.parse(stdout.trim().split("\n").at(-1) ?? "null");
  console.error(`JAX did not run: ${(stderr ?? "").split("\n").slice(-3).join(" ")}`);
  return null;
}

async function measure(size: GpuDecoderSize, engine: Engine): Promise<Result> {
  const mesh = Mesh.create({ data: 1 }, { engine });
  let state = makeState(size, mesh);
  const tokens = await devicePut(gpuTokens(size), new NamedSharding(mesh, P()));
  await state.params.embed.ready();
  const step = makeGpuStep(size, mesh);
  const losses: number[] = [];
  const once = async () => {
    const [next, value] = step(state, tokens);
    state = next;
    losses.push(await value.item());
    value.dispose();
  };
  const begin = performance.now();
  await once();
  const first = performance.now() - begin;
  const times: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const start = performance.now();
    await once();
    times.push(performance.now() - start);
  }
  const start = performance.now();
  for (let i = 0; i < rounds; i++) [state] = step(state, tokens);
  await state.step.ready();
  const pipelined = (performance.now() - start) / rounds;
  times.sort((a, b) => a - b);
  return {
    median_ms: times[rounds >> 1] ?? Number.NaN,
    best_ms: times[0] ?? Number.NaN,
    pipelined_ms: pipelined,
    first_ms: first,
    peak_bytes: engine.memoryUsage?.(0).peak ?? null,
    losses: losses.slice(0, 8),
  };
}

/** Runs the benchmark on an engine, one model at a time so that peaks of memory are those of one model. */
export async function lmOnGpu(name: string): Promise<Report> {
  const engine = openEngine(name, { numDevices: 1 });
  const kind = engine.info?.().deviceKind ?? engine.name;
  const peak = peaks[kind];
  const names = gpuSizes.map((size) => size.name);
  const chosen = listOption("sizes", names, names);
  const rows: Row[] = [];
  for (const size of gpuSizes.filter((one) => chosen.includes(one.name))) {
    const own = await measure(size, engine);
    const rate = gpuStepFlops(size) / own.median_ms / 1e9;
    const row = (who: string, result: Result): Row => ({
      model: size.name,
      by: who,
      "step ms": result.median_ms,
      "best ms": result.best_ms,
      "pipelined ms": result.pipelined_ms,
      "first ms": result.first_ms,
      "peak GiB": result.peak_bytes === null ? null : result.peak_bytes / 2 ** 30,
      "TFLOP/s": gpuStepFlops(size) / result.median_ms / 1e9,
      "% of peak": peak === undefined ? null : gpuStepFlops(size) / result.median_ms / 1e7 / peak,
      "times ours": result.median_ms / own.median_ms,
      losses: result.losses.map((loss) => loss.toFixed(4)).join(" "),
    });
    console.error(`${size.name}: ${own.median_ms.toFixed(2)} ms, ${rate.toFixed(0)} TFLOP/s`);
    rows.push(row("shardwise", own));
    for (const attention of ["cudnn", "xla"]) {
      const jax = runJax(size, attention);
      if (jax) rows.push(row(`JAX (${attention})`, jax));
    }
  }
  await engine.close();
  return { [`training step on ${kind}`]: rows };
}
