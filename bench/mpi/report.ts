/** Benchmarks of several processes, compared with worker threads, MPI itself and JAX on the same cores. */
import { createThreadsEngine } from "shardwise/engines";
import { collectiveSizes } from "../collectives.js";
import { type DecoderSize, sizes } from "../decoder.js";
import { runJaxProcesses } from "../jax.js";
import { prepareData } from "../lm.js";
import { best, type Report, type Row } from "../measure.js";
import { countsOption, listOption } from "../options.js";
import type { Measured, Wanted } from "./collectivesJob.js";
import { runJob } from "./job.js";
import type { StepTimes } from "./stepJob.js";

/** Collectives of the engine, and MPI's own through koffi in the same processes. */
export async function collectivesOverMpi(): Promise<Report> {
  const [processes = 2] = countsOption("processes", [2]);
  const kibibytes = countsOption("sizes", []);
  const wanted: Wanted = {
    sizes: kibibytes.length > 0 ? kibibytes.map((size) => 1024 * size) : collectiveSizes,
  };
  const measured = (await runJob<readonly Measured[]>("collectivesJob.ts", wanted, processes)) ?? [];
  const rows = measured.map(({ name, bytes, microseconds, own, messages, more, uncertainty }) => ({
    collective: name,
    KiB: bytes / 1024,
    µs: microseconds,
    "same messages straight µs": messages,
    "% more": more,
    "±": uncertainty,
    "MPI's own µs": own,
    "% more than MPI's own": 100 * (microseconds / own - 1),
  }));
  return { [`collectives, ${processes} processes of one device`]: rows };
}

/** A decoder's step on processes of one device each, on as many worker threads, and in JAX in as many processes. */
export async function lmOverMpi(): Promise<Report> {
  const [processes = 2] = countsOption("processes", [2]);
  const chosen = listOption(
    "sizes",
    ["d256", "d512"],
    sizes.map(({ name }) => name),
  );
  const rows: Row[] = [];
  for (const size of sizes.filter(({ name }) => chosen.includes(name))) {
    console.error(`  ${size.name}, ${processes} processes …`);
    const threads = await onThreads(size, processes);
    const mpi = await runJob<StepTimes>("stepJob.ts", size, processes);
    const jax = await runJaxProcesses("decoder.py", size, processes);
    rows.push({
      model: size.name,
      processes,
      "step ms": mpi?.stepMs ?? null,
      "threads ms": threads,
      "% more than threads": mpi ? 100 * (mpi.stepMs / threads - 1) : null,
      "JAX ms": jax?.step_ms ?? null,
      "times JAX": mpi && jax ? jax.step_ms / mpi.stepMs : null,
    });
  }
  return { "training step of a decoder in several processes": rows };
}

async function onThreads(size: DecoderSize, numDevices: number): Promise<number> {
  const engine = createThreadsEngine({ numDevices });
  try {
    return await best((await prepareData(size, engine)).step, { seconds: 6, least: 5 });
  } finally {
    await engine.close();
  }
}
