/**
 * One AdamW step of language models in every kind of parallelism, compared with JAX (`JAX_PYTHON`) and, in
 * data parallelism, PyTorch (`TORCH_PYTHON`) on as many cores if they are installed, and as a share of what these cores reach together in products alone.
 *
 *     npm run bench -- lm --devices 1,2,8,16 --sizes d256,d512,d1024 --parallel data,fsdp,tensor,async,gpipe,circular
 *     npm run bench -- lm --devices 1 --threads 1,2,4,8,16
 *     npm run bench -- lm --sizes d1024 --precision float32,bfloat16
 *     TORCH_PYTHON=python3 npm run bench -- lm --devices 1,2 --sizes d256,d512,d1024 --seconds 2
 *     npm run bench -- lm --engine mpi --processes 2
 *     npm run bench -- lm --engine webgpu
 */
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { devicePut, Mesh, NamedSharding, P } from "shardwise";
import { createThreadsEngine, type Engine } from "shardwise/engines";
import { writePerformancePage } from "../scripts/writePerformancePage.js";
import {
  type DecoderSize,
  initDecoder,
  initState,
  makeLoss,
  makeStep,
  makeTokens,
  precisions,
  sizes,
  stepFlops,
} from "./decoder.js";
import { gpuSizes } from "./gpuDecoder.js";
import { runJax } from "./jax.js";
import { lmOnGpu } from "./lmOnGpu.js";
import { allCorePeak, announce, bestInTurns, type Report, type Row, save } from "./measure.js";
import { countsOption, listOption, numberOption, option } from "./options.js";
import { KINDS, type Kind, llamaFlops, mlpWidth, planFor, prepareStep } from "./parallelSteps.js";
import { startTorchDecoders, type TorchDecoder, type TorchDecoders, type TorchResult } from "./torch.js";

const kinds = ["data", ...KINDS] as const;

/** Runs the benchmark; on another engine than threads that of GPUs. */
export async function lm(): Promise<Report> {
  const engine = option("engine") ?? "threads";
  if (engine === "mpi") {
    const { lmOverMpi } = await import("./mpi/report.js");
    return lmOverMpi();
  }
  if (engine === "xla") return (await lmOnGpu("xla")).report;
  if (engine === "webgpu") return lmWithPage();
  const names = sizes.map(({ name }) => name);
  const chosen = listOption("sizes", ["d256", "d512"], names);
  const parallel = listOption("parallel", ["data"], kinds);
  const works: Work[] = [];
  for (const devices of countsOption("devices", [1, 2])) {
    for (const threads of countsOption("threads", [1])) {
      for (const size of sizes.filter(({ name }) => chosen.includes(name))) {
        for (const kind of parallel) {
          for (const dtype of listOption("precision", ["float32"], precisions)) {
            if (kind !== "data" && (devices === 1 || dtype !== "float32")) continue;
            const own = { ...size, batch: Math.max(size.batch, devices), dtype };
            works.push({ kind, size: own, devices, threads });
          }
        }
      }
    }
  }
  return { "training step of language models": await rowsOf(works) };
}

/** What one row measures. */
interface Work {
  readonly kind: (typeof kinds)[number];
  readonly size: DecoderSize;
  readonly devices: number;
  readonly threads: number;
}

/** Measures works one after the other, once PyTorch has compiled all of its steps. */
async function rowsOf(works: readonly Work[]): Promise<Row[]> {
  const seconds = numberOption("seconds", 6);
  const rivals = await Promise.all(
    works.map(({ kind, size, devices, threads }) =>
      kind === "data" ? startTorchDecoders(size, devices * threads) : undefined,
    ),
  );
  await Promise.all(rivals.map((rival) => rival?.compiled.ready));
  const rows: Row[] = [];
  for (const [i, work] of works.entries()) {
    console.error(`  ${work.size.name}, ${work.kind}, ${work.devices} devices of ${work.threads} threads …`);
    rows.push(announce(await row(work, rivals[i], seconds)));
    rivals[i]?.close();
  }
  return rows;
}

async function row(work: Work, rivals: TorchDecoders | undefined, seconds: number): Promise<Row> {
  const { kind, size, devices, threads } = work;
  const cores = devices * threads;
  const peakSeconds = Math.min(2, seconds);
  const before = await allCorePeak(cores, size.dtype, peakSeconds);
  const eager = rivals?.startEager();
  const torch = { eager: await eager?.ready, compiled: await rivals?.compiled.ready };
  const others = [torch.eager && eager, torch.compiled && rivals?.compiled].filter((one) => one != null);
  const { stepMs, otherMs, compileMs, firstMs } = await measure(
    work,
    seconds,
    others.map((other) => () => other.step()),
  );
  eager?.close();
  const msOf = (other?: TorchDecoder) => (other && otherMs[others.indexOf(other)]) ?? null;
  // Other load on the machine may have affected only one of the two.
  const peak = Math.max(before, await allCorePeak(cores, size.dtype, peakSeconds));
  const jax = kind === "data" ? runJaxData(size, devices, threads) : runJaxKind(kind, size, devices);
  const flops = kind === "data" ? stepFlops(size) : llamaFlops(size);
  const rate = flops / stepMs / 1e6;
  return {
    model: size.name,
    precision: size.dtype ?? "float32",
    parallel: kind,
    devices,
    threads,
    batch: size.batch,
    "step ms": stepMs,
    "GFLOP/s": rate,
    "products alone GFLOP/s": peak,
    "% of products alone": (100 * rate) / peak,
    "compile ms": compileMs,
    "first step ms": firstMs,
    "JAX ms": jax?.step_ms ?? null,
    "JAX first step ms": jax?.compile_ms ?? null,
    "times JAX": jax ? jax.step_ms / stepMs : null,
    "PyTorch ms": msOf(eager),
    "PyTorch compiled ms": msOf(rivals?.compiled),
    "times PyTorch": otherMs.length > 0 ? Math.min(...otherMs) / stepMs : null,
    "loss difference": torch.eager ? await lossDifference(work, torch.eager) : null,
  };
}

/** The same step in JAX; its one device gets as many cores as ours has threads. */
function runJaxData(size: DecoderSize, devices: number, threads: number) {
  return runJax("decoder.py", { ...size, devices }, { devices, cores: devices * threads });
}

function runJaxKind(kind: Kind, size: DecoderSize, devices: number) {
  const settings = { ...size, kind, mlp: mlpWidth(size), plan: planFor(kind, size, devices) };
  return runJax("parallel.py", settings, { devices, cores: devices });
}

/** Times of the first step, and of the fastest in turns with those of others. */
async function measure(
  { kind, size, devices, threads }: Work,
  seconds: number,
  others: readonly (() => Promise<void>)[],
): Promise<{ stepMs: number; otherMs: number[]; compileMs: number; firstMs: number }> {
  const engine = createThreadsEngine({ numDevices: devices, threadsPerDevice: threads });
  try {
    const step = await (kind === "data"
      ? (await prepareData(size, engine)).step
      : prepareStep(kind, size, engine));
    const start = performance.now();
    const first = step();
    // The call has returned: everything is traced and compiled, and the devices have started.
    const compileMs = performance.now() - start;
    await first;
    const firstMs = performance.now() - start;
    const runs = [step, ...others];
    const [stepMs = 0, ...otherMs] = await bestInTurns(runs, { seconds: seconds * runs.length, least: 2 });
    return { stepMs, otherMs, compileMs, firstMs };
  } finally {
    await engine.close();
  }
}

/** The largest difference between PyTorch's first losses and those of the same steps here. */
async function lossDifference({ size, devices, threads }: Work, { losses }: TorchResult): Promise<number> {
  const engine = createThreadsEngine({ numDevices: devices, threadsPerDevice: threads });
  try {
    const { step, loss } = await prepareData(size, engine);
    let worst = 0;
    for (const [i, other] of losses.entries()) {
      if (i > 0) await step();
      worst = Math.max(worst, Math.abs((await loss()) - other));
    }
    return worst;
  } finally {
    await engine.close();
  }
}

/** Runs the benchmark through WebGPU and, unless `--json` names a file, adds it to the page of measurements. */
async function lmWithPage(): Promise<Report> {
  const asked = (option("sizes") ?? "").split(",");
  const isOfGpus = gpuSizes.some(({ name }) => asked.includes(name));
  const { gpu, report } = await (isOfGpus ? lmOnGpu("webgpu") : (await import("./webgpu.js")).lmOnWebGpu());
  if (option("json") !== undefined) return report;
  const name = gpu.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  save(fileURLToPath(new URL(`../docs/performance/${name}.json`, import.meta.url)), report, gpu);
  writePerformancePage();
  return report;
}

/** A decoder that all devices of an engine train. */
export interface DataRun {
  step(): Promise<void>;
  loss(): Promise<number>;
}

/** Prepares data-parallel steps on all devices of an engine. */
export async function prepareData(size: DecoderSize, engine: Engine): Promise<DataRun> {
  const mesh = Mesh.create({ data: engine.numDevices }, { engine });
  let state = await devicePut(initState(initDecoder(size)), new NamedSharding(mesh, P()));
  const tokens = await devicePut(makeTokens(size), new NamedSharding(mesh, P("data")));
  const train = makeStep(size, mesh);
  const lossOf = makeLoss(size, mesh);
  return {
    async step() {
      state = train(state, tokens);
      await state.step.item();
    },
    loss: () => lossOf(state.params, tokens).item(),
  };
}
