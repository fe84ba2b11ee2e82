/** What each process of the simulated job runs: a training loop with checkpoints, from the newest sound one on. */
import { createMpiEngine, type MpiEngine } from "../../../../src/engines/mpi/engine.js";
import type { DeviceBuffer } from "../../../../src/ir/engine.js";
import { range } from "../../../../src/ir/shape.js";
import { type Checkpoints, openCheckpoints } from "../../../../src/train/files/checkpoints/checkpoint.js";
import { newestSound } from "../../../../src/train/files/checkpoints/newestSound.js";
import {
  agreeOn,
  type ProcessGroup,
  processGroupOf,
} from "../../../../src/train/files/checkpoints/processGroup.js";
import { cluster } from "../host.js";
import type { Job } from "../training.js";
import type { HostState } from "./checkpointSnapshot.js";
import "../../../../src/engines/mpi/worker.js";

const folder = "/run/checkpoints";

/** Trains to the end; returns the state that all processes then hold. */
export async function train(job: Job): Promise<Record<string, number[]>> {
  const { numDevices, deadlineMs } = job;
  const engine = createMpiEngine({ numDevices, deadlineMs, memoryBytes: job.memoryBytes, gemm: "wasm" });
  const group = processGroupOf(engine);
  const { step: start, state } = await startingPoint(group, job);
  const devices = range(numDevices).filter((device) => engine.isAddressable(device));
  const executable = engine.compile(cluster().hasDiverged(group.index) ? job.otherProgram : job.program, {
    mesh: job.mesh,
    devices: range(numDevices),
    donated: job.state.map(() => true),
    name: "train",
  });
  let blocks = job.state.map(({ name, block }) =>
    devices.map((device) => engine.upload(block, job.blockOf(state[name] ?? [], device), device)),
  );
  const saves = new Saves(group);
  for (let step = start; step < job.numSteps; step++) {
    const batch = devices.map((device) => engine.upload(job.batch, job.batchOf(step, device), device));
    const [loss, ...next] = executable.execute([...blocks, batch]);
    blocks = next;
    for (const buffer of batch) engine.release(buffer);
    const [value = Number.NaN] = (await engine.download(loss?.[0] as DeviceBuffer)) as Float32Array;
    cluster().read(step, value);
    for (const buffer of loss ?? []) engine.release(buffer);
    const isLast = step + 1 === job.numSteps;
    if ((step + 1) % job.saveEvery !== 0 && !isLast) continue;
    await saves.settled();
    await saves.begin(step + 1, await stateOf(engine, group, job, blocks));
    if (isLast) await saves.finished();
    else if (!cluster().savesInBackground) await saves.settled();
  }
  const result = await whole(engine, group, job, blocks);
  const kept = await startingPoint(group, job);
  if (JSON.stringify(kept.state) !== JSON.stringify(result))
    throw new Error(`the checkpoint of step ${kept.step} does not hold the state at the end`);
  await engine.close();
  return result;
}

/** Where to begin: the state of the newest sound checkpoint, or the initial one. */
async function startingPoint(
  group: ProcessGroup,
  job: Job,
): Promise<{ readonly step: number; readonly state: Readonly<Record<string, readonly number[]>> }> {
  const { checkpoint, damaged } = await newestSound(openCheckpoints(folder, { processGroup: group }));
  const problems = damaged.map(({ problem }) => problem);
  cluster().found(checkpoint?.step ?? 0, problems);
  await agreeOn(group, "the step to continue from", String(checkpoint?.step ?? 0));
  if (checkpoint === undefined) return { step: 0, state: job.initial };
  const arrays = await checkpoint.read();
  const state: Record<string, number[]> = {};
  for (const { name } of job.state) state[name] = Array.from(arrays.get(name)?.data as Float32Array);
  return { step: checkpoint.step, state };
}

/** The state of all processes, by name. */
async function whole(
  engine: MpiEngine,
  group: ProcessGroup,
  { state }: Job,
  blocks: readonly (readonly DeviceBuffer[])[],
): Promise<Record<string, number[]>> {
  const own = await Promise.all(
    blocks.map((each) => Promise.all(each.map((buffer) => engine.download(buffer)))),
  );
  const values: Record<string, number[]> = {};
  for (let i = 0; i < state.length; i++) {
    const numbers = own[i]?.flatMap((data) => [...(data as Float32Array)]);
    const shared = await group.share(JSON.stringify(numbers));
    values[state[i]?.name ?? ""] = shared.flatMap((text) => JSON.parse(text) as number[]);
  }
  return values;
}

/** The whole state in the memory of each process. */
async function stateOf(
  engine: MpiEngine,
  group: ProcessGroup,
  job: Job,
  blocks: readonly (readonly DeviceBuffer[])[],
): Promise<HostState> {
  const values = await whole(engine, group, job, blocks);
  return new Map(job.state.map((tensor) => [tensor, Float32Array.from(values[tensor.name] ?? [])]));
}

/** Checkpoints that are written while training goes on. As in a run, one may fail, because the next may succeed. */
class Saves {
  private readonly checkpoints: Checkpoints;
  private failures = 0;

  constructor(processGroup: ProcessGroup) {
    this.checkpoints = openCheckpoints(folder, { keep: 2, maxFileBytes: 64, processGroup });
  }

  /** Returns when the elements are copied. */
  async begin(step: number, state: HostState): Promise<void> {
    const { committed } = await this.checkpoints.save(step, state);
    committed.then(
      () => {
        cluster().saved(step);
        this.failures = 0;
      },
      () => {
        this.failures++;
      },
    );
  }

  /** Waits until what was saved is on the disk; throws the second failure in a row. */
  async settled(): Promise<void> {
    try {
      await this.checkpoints.finished();
    } catch (error) {
      if (this.failures > 1) throw error;
    }
  }

  /** Waits until what was saved is on the disk; throws any failure. */
  async finished(): Promise<void> {
    await this.checkpoints.finished();
  }
}
