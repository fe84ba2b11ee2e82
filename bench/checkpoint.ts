/**
 * Saving and restoring a state that is split over devices, beside what `dd` writes to and reads from the same disk past
 * the system's cache, and the memory of the process beyond the state; and training steps beside an asynchronous save,
 * also on GPUs.
 *
 *     npm run bench -- checkpoint --devices 2 --sizes 2,4
 *     npm run bench -- checkpoint --engine xla
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { performance } from "node:perf_hooks";
import { jit, Mesh, NamedSharding, np, P, type Tensor, tree } from "shardwise";
import { createThreadsEngine, createXlaEngine, type Engine } from "shardwise/engines";
import { openCheckpoints } from "shardwise/train";
import { range } from "../src/ir/shape.js";
import { besideSaves } from "./checkpointBeside.js";
import { announce, type Report, type Row } from "./measure.js";
import { countsOption, listOption } from "./options.js";

/** Runs the benchmark. */
export async function checkpoint(): Promise<Report> {
  const [engine] = listOption("engine", ["threads"], ["threads", "xla"]);
  const besideSteps = "training steps beside an asynchronous save";
  if (engine === "xla") return { [besideSteps]: [await withEngine(createXlaEngine(), besideSaves, 1)] };
  const rows: Row[] = [];
  const others: Row[] = [];
  for (const devices of countsOption("devices", [2])) {
    const open = () => createThreadsEngine({ numDevices: devices, threadsPerDevice: 1 });
    for (const gigabytes of countsOption("sizes", [2])) {
      rows.push(await withEngine(open(), speeds, devices, gigabytes));
    }
    others.push(await withEngine(open(), besideSaves, devices));
  }
  return { "checkpoints beside dd with O_DIRECT on the same disk": rows, [besideSteps]: others };
}

/** Measures with an engine and a folder on the disk of the working folder, which is removed even if a signal ends it. */
async function withEngine<A extends readonly unknown[]>(
  engine: Engine,
  measureIn: (folder: string, engine: Engine, ...rest: A) => Promise<Row>,
  ...rest: A
): Promise<Row> {
  const folder = mkdtempSync(resolve("checkpoint-bench-"));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const stop = () => {
    remove();
    process.exit(1);
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.once(signal, stop);
  try {
    return announce(await measureIn(folder, engine, ...rest));
  } finally {
    for (const signal of signals) process.off(signal, stop);
    await engine.close();
    remove();
  }
}

/** The tensors of a state: layers that are stacked, as in runs. */
function makeState(gigabytes: number): Record<string, Tensor> {
  const [layers, width] = [8, 2048];
  const count = Math.ceil((gigabytes * 1e9) / (4 * layers * width * width));
  return Object.fromEntries(
    range(count).map((i) => [
      `tensor${i}`,
      np.arange(layers * width * width).reshape([layers, width, width]),
    ]),
  );
}

async function speeds(folder: string, engine: Engine, devices: number, gigabytes: number): Promise<Row> {
  const mesh = Mesh.create({ fsdp: devices }, { engine });
  const split = new NamedSharding(mesh, P(null, "fsdp"));
  const state = jit(() => makeState(gigabytes), { mesh, outShardings: split })();
  await Promise.all(tree.leaves(state).map((leaf) => (leaf as Tensor).ready()));
  const bytes = tree.leaves(state).reduce<number>((sum, leaf) => sum + 4 * (leaf as Tensor).size, 0);
  const blocks = Math.round(bytes / 2 ** 24);
  const file = join(folder, "dd");
  const written = dd("if=/dev/zero", `of=${file}`, `count=${blocks}`, "oflag=direct");
  const read = dd(`if=${file}`, "of=/dev/null", `count=${blocks}`, "iflag=direct");
  rmSync(file);
  const checkpoints = openCheckpoints(join(folder, "checkpoints"));
  const saving = await measure(async () => void (await (await checkpoints.save(1, state)).committed));
  tree.dispose(state);
  const found = await checkpoints.load(1);
  const restoring = await measure(async () => tree.dispose(await found.restore(state, { shardings: split })));
  const perSecond = (seconds: number) => bytes / seconds / 1e9;
  return {
    devices,
    GB: bytes / 1e9,
    "save GB/s": perSecond(saving.seconds),
    "dd write GB/s": perSecond(written),
    "% of dd": (100 * written) / saving.seconds,
    "save CPU s": saving.cpuSeconds,
    "save MiB beyond the state": saving.mebibytes,
    "restore GB/s": perSecond(restoring.seconds),
    "dd read GB/s": perSecond(read),
    "restore CPU s": restoring.cpuSeconds,
    "restore MiB beyond the state": restoring.mebibytes,
  };
}

/** The seconds that `dd` takes. */
function dd(...args: string[]): number {
  const start = performance.now();
  const { status, stderr } = spawnSync("dd", ["bs=16M", ...args], { encoding: "utf8" });
  if (status !== 0) throw new Error(`dd ${args.join(" ")} failed: ${stderr}`);
  return (performance.now() - start) / 1000;
}

/** What some work takes. */
interface Cost {
  readonly seconds: number;
  /** Of all threads, which other load on the machine does not change. */
  readonly cpuSeconds: number;
  /** How much the process grew, where the system tells. */
  readonly mebibytes: number | null;
}

async function measure(work: () => Promise<void>): Promise<Cost> {
  const isLinux = existsSync("/proc/self/clear_refs");
  // Forgets the highest use of memory so far.
  if (isLinux) writeFileSync("/proc/self/clear_refs", "5");
  const before = process.memoryUsage().rss;
  const [start, cpu] = [performance.now(), process.cpuUsage()];
  await work();
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  const peak = isLinux && /^VmHWM:\s*(\d+) kB/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  return {
    seconds,
    cpuSeconds: (user + system) / 1e6,
    mebibytes: peak ? (1024 * Number(peak) - before) / 2 ** 20 : null,
  };
}
