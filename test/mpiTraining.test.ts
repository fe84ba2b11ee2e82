/** Training in several processes gives the bits of worker threads on the same mesh, and checkpoints move between both. */
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import "../src/index.js";
import { at } from "../src/ir/shape.js";
import { openCheckpoint } from "../src/train/files/checkpoints/checkpoint.js";
import { readMetrics } from "../src/train/report/metrics.js";
import type { TrainedOutcome, TrainedRun } from "./fixtures/mpiTraining.js";
import { nodeProgram } from "./support/built.js";
import { userEnvironment } from "./support/environment.js";
import { type Ended, ended, type Launcher, launch } from "./support/launchers.js";
import { extended, mpi, orSkip, testWith } from "./support/optional.js";
import { temporaryFolder, writeText } from "./support/runs.js";

const everything = process.env.SHARDWISE_ALL_MPI === "1";
const wholeSuite = extended("npm run test:mpi", everything);
const launchers = (orSkip(mpi) ?? []).slice(0, everything ? undefined : 1);

type Fields = TrainedRun["fields"];

/** Every kind of parallelism over two devices, each in a process of its own, so that it crosses over. */
const kinds: Readonly<Record<string, Fields>> = {
  data: { "mesh.data": 2 },
  fsdp: { "mesh.fsdp": 2 },
  tensor: { "mesh.model": 2 },
  "tensor-async": { "mesh.model": 2, tensor: "async" },
  gpipe: { "mesh.pipe": 2 },
  circular: { "mesh.pipe": 2, "pipeline.repeats": 2 },
};

/** Two kinds on four devices: each crosses over with four processes, the outer one with two processes of two. */
const pairs: Readonly<Record<string, Fields>> = {
  "data-tensor": { "mesh.data": 2, "mesh.model": 2 },
  "fsdp-async": { "mesh.fsdp": 2, "mesh.model": 2, tensor: "async" },
  "data-gpipe": { "mesh.data": 2, "mesh.pipe": 2 },
  "circular-async": { "mesh.pipe": 2, "pipeline.repeats": 2, "mesh.model": 2, tensor: "async" },
};

/** Gradients that are clipped, and large enough for devices to share the optimiser's update. */
const clipped: Fields = {
  "mesh.data": 2,
  "model.width": 128,
  "model.mlpWidth": 256,
  "model.numLayers": 2,
  "optimizer.clip": 0.01,
};

/** The everyday suite takes what sends most, and what adds up most. */
const everyday: Readonly<Record<string, Fields>> = { fsdp: kinds.fsdp ?? {}, clipped };

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);

/** Checkpoints are saved in the middle and at the end. */
const common = everything
  ? { steps: 4, checkpointEvery: 2, evalEvery: 2, "data.validation": 0.2 }
  : { steps: 2, checkpointEvery: 2, evalEvery: 2, "data.validation": 0.2 };

const runsOf = (prefix: string, fields: Readonly<Record<string, Fields>>): TrainedRun[] =>
  Object.entries(fields).map(([name, own]) => ({
    name: `${prefix}-${name}`,
    fields: { ...common, ...own },
    finish: name === "fsdp",
  }));

/** The arguments of Node that train. */
const training = (runs: readonly TrainedRun[]) => [
  ...nodeProgram("test/fixtures/mpiTraining.ts"),
  folder.path,
  JSON.stringify(runs),
];

/** Trains in processes; what the shell does before in process 1 may differ from the others. */
function trainIn(launcher: Launcher, count: number, runs: readonly TrainedRun[], first = "true") {
  const shell = `if [ "\${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then ${first}; fi; exec "$@"`;
  const program = ["bash", "-c", shell, "bash", process.execPath];
  return ended(launch(launcher, count, training(runs), { SHARDWISE_FLIGHT: "" }, program), 590_000);
}

const inProcesses = async (launcher: Launcher, count: number, runs: readonly TrainedRun[]) =>
  outcomesOf(await trainIn(launcher, count, runs));

/** What training said that ended well. */
function outcomesOf({ code, out, err }: Ended): TrainedOutcome[] {
  expect(err).toBe("");
  expect(code).toBe(0);
  return out
    .trim()
    .split("\n")
    .map((line): TrainedOutcome => JSON.parse(line));
}

/** Trains on worker threads of one process. */
async function onThreads(runs: readonly TrainedRun[]): Promise<TrainedOutcome[]> {
  if (runs.length === 0) return [];
  return outcomesOf(await ended(spawn(process.execPath, training(runs), { env: userEnvironment }), 590_000));
}

const threadRuns = new Map<string, TrainedOutcome>();
/** The same runs on worker threads, once for all numbers of processes. */
async function threadRunsOf(list: readonly Fields[]): Promise<TrainedOutcome[]> {
  const keys = list.map((fields) => JSON.stringify(fields));
  const missing = list.filter((_, i) => !threadRuns.has(at(keys, i)));
  const runs = missing.map((fields, i) => ({ name: `threads-${threadRuns.size + i}`, fields }));
  for (const [i, outcome] of (await onThreads(runs)).entries())
    threadRuns.set(JSON.stringify(missing[i]), outcome);
  return keys.map((key) => {
    const found = threadRuns.get(key);
    if (found === undefined) throw new Error(`no run of ${key}`);
    return found;
  });
}

async function threadRun(fields: Fields): Promise<TrainedOutcome> {
  return at(await threadRunsOf([fields]), 0);
}

/** Leaves the run of a folder after its second step. */
function halve(name: string): void {
  const checkpoints = join(folder.path, name, "checkpoints");
  const last = readdirSync(checkpoints).filter((entry) => /4$/.test(entry));
  expect(last).toHaveLength(1);
  for (const entry of last) rmSync(join(checkpoints, entry), { recursive: true });
}

async function expectSame(here: TrainedOutcome, there: TrainedOutcome): Promise<void> {
  expect(here.losses).toEqual(there.losses);
  const [a, b] = [await openCheckpoint(here.checkpoint), await openCheckpoint(there.checkpoint)];
  const [left, right] = [await a.read(), await b.read()];
  expect([...left.keys()]).toEqual([...right.keys()]);
  for (const [name, { data }] of left) expect(data, `${here.name} ${name}`).toEqual(right.get(name)?.data);
}

/** The trace of a run has the devices of both processes on one time line, and the report shows both. */
function expectTimeline(run: string): void {
  const {
    traceEvents,
  }: { readonly traceEvents: readonly { pid: number; ts?: number; dur?: number; cat?: string }[] } =
    JSON.parse(readFileSync(join(run, "trace.json"), "utf8"));
  const spans = [0, 1].map((device) => {
    const own = traceEvents.filter(({ pid, cat }) => pid === device && cat === "collective");
    expect(own.length).toBeGreaterThan(0);
    const ends = own.map(({ ts = 0, dur = 0 }) => ts + dur);
    return { begin: Math.min(...own.map(({ ts = 0 }) => ts)), end: Math.max(...ends) };
  });
  // Nobody leaves the first collective before all have entered it: on one clock their times have a common part, however
  // late one of them came.
  expect(Math.max(...spans.map(({ begin }) => begin))).toBeLessThan(Math.min(...spans.map(({ end }) => end)));
  expect(readFileSync(join(run, "report.html"), "utf8")).toContain("device 1");
}

const shapes: readonly (readonly [count: number, fields: Readonly<Record<string, Fields>>])[] = everything
  ? [
      [2, { ...kinds, clipped }],
      [2, pairs],
      [4, pairs],
    ]
  : [[2, everyday]];

describe.each(launchers)("training in processes of $name", (launcher) => {
  test.for(shapes)(
    "has the losses and the state of worker threads on the same mesh, bit for bit: %i processes",
    { timeout: 600_000 },
    async ([count, fields]) => {
      const runs = runsOf(`${launcher.name.replace(" ", "")}-${count}`, fields);
      const [outcomes, onOne] = await Promise.all([
        inProcesses(launcher, count, runs),
        threadRunsOf(runs.map((run) => run.fields)),
      ]);
      expect(outcomes.map(({ name }) => name)).toEqual(runs.map(({ name }) => name));
      for (const [i, outcome] of outcomes.entries()) {
        const there = at(onOne, i);
        expect(outcome.losses).toHaveLength(common.steps);
        await expectSame(outcome, there);
        const numbers = ({ name }: TrainedOutcome) =>
          readMetrics(join(folder.path, name, "metrics.jsonl")).map((record) => {
            const { step, loss, gradientNorm, evaluationLoss } = record;
            return { step, loss, gradientNorm, evaluationLoss };
          });
        expect(numbers(outcome)).toEqual(numbers(there));
        if (runs[i]?.finish) expectTimeline(join(folder.path, outcome.name));
      }
    },
  );

  testWith(
    wholeSuite,
    "goes on from checkpoints of worker threads, and they from its own, bit for bit",
    { timeout: 600_000 },
    async () => {
      const fields = { ...common, ...pairs["fsdp-async"] };
      const whole = await threadRun(fields);
      const mark = launcher.name.replace(" ", "");
      const copy = (name: string) => {
        cpSync(join(folder.path, whole.name), join(folder.path, name), { recursive: true });
        halve(name);
      };
      copy(`${mark}-moved`);
      const [moved] = await inProcesses(launcher, 2, [{ name: `${mark}-moved`, fields, resume: true }]);
      await inProcesses(launcher, 4, [{ name: `${mark}-from`, fields }]);
      halve(`${mark}-from`);
      const [back] = await onThreads([{ name: `${mark}-from`, fields, resume: true }]);
      for (const one of [moved, back]) {
        expect(one?.losses).toEqual(whole.losses);
        if (one) await expectSame(one, whole);
      }
    },
  );

  testWith(wholeSuite, "is refused with other configurations", { timeout: 120_000 }, async () => {
    const runs = [{ name: `${launcher.name}-refused`, fields: { ...common, "mesh.data": 2 }, differs: true }];
    const { code, err } = await trainIn(launcher, 2, runs);
    expect(code).toBeGreaterThan(0);
    const text =
      /the processes differ in the configuration: process 0 has "seed":0,.*, process 1 has "seed":1,.*: start all of them/g;
    expect(err.match(text)).toHaveLength(2);
  });

  testWith(
    wholeSuite,
    "says in all processes that the disk of one is full, and goes on when it is not",
    {
      timeout: 300_000,
    },
    async () => {
      const name = `${launcher.name.replace(" ", "")}-full`;
      const fields = { ...common, "mesh.data": 2 };
      await inProcesses(launcher, 2, [{ name, fields }]);
      halve(name);
      const saved = () => readdirSync(join(folder.path, name, "checkpoints"));
      const before = saved();
      const again = { name, fields, resume: true };
      const { code, err } = await trainIn(launcher, 2, [{ ...again, full: true }]);
      expect(code).toBeGreaterThan(0);
      const failed = String.raw`the checkpoint of step 4 could not be written \(\w+\)`;
      expect(err).toMatch(new RegExp(`${failed}: the disk is full, .*untouched`));
      expect(err).toMatch(new RegExp(`${failed}: process 1 of 2: EFBIG.*untouched`));
      expect(saved()).toEqual(before);
      const [whole] = await inProcesses(launcher, 2, [again]);
      if (whole) await expectSame(whole, await threadRun(fields));
      expect(whole?.losses).toHaveLength(common.steps);
    },
  );

  testWith(wholeSuite, "says that the folder of a run is not shared", { timeout: 120_000 }, async () => {
    // The same name is another folder there.
    const out = `${launcher.name.replace(" ", "")}-own`;
    const elsewhere = mkdtempSync(join(folder.path, "elsewhere-"));
    const runs = [{ name: out, fields: { ...common, "mesh.data": 2, out } }];
    const { code, err } = await trainIn(launcher, 2, runs, `cd "${elsewhere}"`);
    rmSync(out, { recursive: true, force: true });
    expect(code).toBeGreaterThan(0);
    const text =
      /process 0 trains into this folder, but it does not exist here: runs of several hosts need a shared file system/g;
    expect(err.match(text)).toHaveLength(2);
  });
});
