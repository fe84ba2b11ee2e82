/**
 * The cost of starting a program on the host: runs of a sum of small tensors, awaited one by one, and chained, each on
 * the result of the previous one. XLA runs with the installed plug-in or, without one, with that of the tests, whose
 * calls cost nothing: then only our side of the plug-in is measured.
 */
import { spawnSync } from "node:child_process";
import { performance } from "node:perf_hooks";
import { devicePut, jit, Mesh, NamedSharding, np, P, type Tensor } from "shardwise";
import { createThreadsEngine, createXlaEngine, type Engine } from "shardwise/engines";
import { loadKoffi } from "../src/engines/system/koffi.js";
import { locatePlugin } from "../src/engines/xla/pjrt/locate.js";
import { buildFakePlugin } from "../test/xla/fakePlugin.js";
import type { Report, Row } from "./measure.js";
import { option } from "./options.js";

/** Number of inputs and outputs of the program. */
const widths = [1, 20, 150];

/** Number of measurements, of which the smallest counts. */
const rounds = 5;

/** An engine to measure, and its name. */
function engineOf(name: string): { readonly engine: Engine; readonly on: string } | undefined {
  if (name === "threads") return { engine: createThreadsEngine({ numDevices: 1 }), on: "threads" };
  const plugin = realPlugin() ?? fakePlugin();
  if (plugin === undefined) return undefined;
  const engine = createXlaEngine({ plugin, cache: false });
  return { engine, on: `xla, ${engine.info?.().deviceKind}` };
}

function realPlugin(): string | undefined {
  try {
    return locatePlugin();
  } catch {
    return undefined;
  }
}

/** The fake plug-in; undefined without a C compiler or koffi. */
function fakePlugin(): string | undefined {
  const koffi = loadKoffi();
  const hasCompiler = spawnSync("cc", ["--version"]).status === 0;
  return koffi && hasCompiler ? buildFakePlugin(koffi, { delay: 0 }).path : undefined;
}

async function measure(engine: Engine, on: string, width: number): Promise<Row> {
  const mesh = Mesh.create({ data: 1 }, { engine });
  const whole = new NamedSharding(mesh, P());
  const step = jit((state: readonly Tensor[]) => state.map((x) => x.add(1)), {
    mesh,
    donate: 0,
    name: "tiny",
  });
  const time = async (count: number, waits: boolean) => {
    let state: readonly Tensor[] = await Promise.all(
      Array.from({ length: width }, () => devicePut(np.zeros([8]), whole)),
    );
    state = step(state);
    const last = (tensors: readonly Tensor[]) => tensors.at(-1)?.ready();
    await last(state);
    const start = performance.now();
    for (let i = 0; i < count; i++) {
      state = step(state);
      if (waits) await last(state);
    }
    await last(state);
    return (1000 * (performance.now() - start)) / count;
  };
  const count = Math.ceil(2000 / Math.sqrt(width));
  await time(count, true);
  await time(count, false);
  const [awaited, chained]: [number[], number[]] = [[], []];
  for (let i = 0; i < rounds; i++) {
    awaited.push(await time(count, true));
    chained.push(await time(count, false));
  }
  return { on, tensors: width, "awaited µs": Math.min(...awaited), "chained µs": Math.min(...chained) };
}

/** Runs the benchmark. */
export async function dispatch(): Promise<Report> {
  const rows: Row[] = [];
  for (const name of option("engine")?.split(",") ?? ["threads", "xla"]) {
    const opened = engineOf(name);
    if (opened === undefined) continue;
    for (const width of widths) rows.push(await measure(opened.engine, opened.on, width));
    await opened.engine.close();
  }
  return { "starting a program, a run": rows };
}
