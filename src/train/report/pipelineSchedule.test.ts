import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createThreadsEngine } from "../../engines/index.js";
import type { ControlRole } from "../../ir/ops.js";
import "../../index.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { zeroBubbleH1, zeroBubbleV } from "../../parallel/index.js";
import { runMesh, runTrainingFunctions } from "../config/setup.js";
import { trainRun } from "../run/trainRun.js";
import { pipelineChart } from "./pipelineChart.js";
import {
  measurePipeline,
  numIterations,
  plannedBubble,
  planPipeline,
  planSchedule,
  taskLabel,
} from "./pipelineSchedule.js";
import { runPipeline } from "./runReport.js";
import {
  type DeviceWork,
  type LoopIteration,
  type StepTrace,
  sharesOfWork,
  stepTraceOf,
} from "./stepTrace.js";

const plan = planPipeline({ numStages: 2, numRepeats: 2 }, 2);
const [forward, backward] = plan.loops;

const loop = (
  device: number,
  own: number,
  count: number,
  begin: number,
  role?: ControlRole,
): LoopIteration[] =>
  Array.from({ length: count }, (_, iteration) => ({
    device,
    program: "step",
    loop: own,
    role,
    iteration,
    depth: 0,
    begin: begin + iteration,
    end: begin + iteration + 1,
  }));

describe("a pipeline's schedule", () => {
  test("gives every stage its microbatch and repeat, and nothing in the bubble", () => {
    const [first, second] = plan.stages.map((tasks) =>
      tasks.map((task) => task && [task.microbatch, task.repeat]),
    );
    const tasks = [
      [0, 0],
      [1, 0],
      [0, 1],
      [1, 1],
    ];
    expect(first).toEqual([...tasks, null]);
    expect(second).toEqual([null, ...tasks]);
    expect(plannedBubble(plan)).toBeCloseTo(1 / 5);
  });

  test("is found in a trace by the roles of its loops, forward and then backward", () => {
    const wait: DeviceWork = {
      device: 1,
      kind: "wait",
      name: "wait",
      program: "step",
      source: undefined,
      begin: 20.5,
      end: 21,
    };
    const iterations = [0, 1].flatMap((device) => [
      // Another loop happens to have as many iterations.
      ...loop(device, 1, 5, 0),
      ...loop(device, 2, 5, 10, forward),
      ...loop(device, 3, 5, 20, backward),
    ]);
    const measured = measurePipeline(plan, { work: [wait], iterations }, (device) => device);
    const of = (device: number, pass: string) =>
      measured?.slots
        .filter((slot) => slot.device === device && slot.pass === pass)
        .map(({ iteration, task }) => `${iteration}:${task ? task.microbatch : "-"}`);
    expect(of(0, "forward")).toEqual(["0:0", "1:1", "2:0", "3:1", "4:-"]);
    expect(of(1, "backward")).toEqual(["4:1", "3:0", "2:1", "1:0", "0:-"]);
    expect(measured?.slots.find(({ waits }) => waits.length > 0)).toMatchObject({
      device: 1,
      iteration: 4,
      waits: [{ begin: 20.5, end: 21 }],
    });
    expect(measured?.shares.bubble).toBeCloseTo(4 / 20);
    expect(measured?.shares.waiting).toBeCloseTo(0.5 / 20);
    expect(measured?.shares.useful).toBeCloseTo(15.5 / 20);
  });

  test("is found for every part of a batch whose gradients are accumulated", () => {
    const parts = loop(0, 1, 2, 0).map((one, i) => ({ ...one, begin: 20 * i, end: 20 * (i + 1) }));
    const iterations = parts.flatMap((part) => [
      part,
      ...[...loop(0, 2, 5, part.begin, forward), ...loop(0, 3, 5, part.begin + 10, backward)].map((one) => ({
        ...one,
        depth: 1,
      })),
    ]);
    const measured = measurePipeline(plan, { work: [], iterations }, () => 0);
    expect(measured?.numParts).toBe(2);
    const passes = measured?.slots.filter(({ iteration }) => iteration === 4);
    expect(passes?.map(({ part, pass, begin }) => [part, pass, begin])).toEqual([
      [0, "forward", 4],
      [0, "backward", 10],
      [1, "forward", 24],
      [1, "backward", 30],
    ]);
  });

  test("is found where forward and backward are interleaved: one loop, an iteration for every slot", () => {
    const schedule = planSchedule(zeroBubbleH1({ numStages: 2, numMicrobatches: 2 }));
    const labels = schedule.stages.map((tasks) =>
      tasks.map((task) => (task ? taskLabel(task, schedule) : "·")),
    );
    expect(labels).toEqual([
      ["F0", "F1", "·", "I0", "W0", "I1", "W1"],
      ["·", "F0", "I0", "F1", "I1", "W0", "W1"],
    ]);
    // Another loop happens to have as many iterations as there are slots.
    const iterations = [0, 1].flatMap((device) => [
      ...loop(device, 1, 7, 0, schedule.loops[0]),
      ...loop(device, 2, 7, 7),
    ]);
    const measured = measurePipeline(schedule, { work: [], iterations }, (device) => device);
    expect(measured?.slots).toHaveLength(2 * 7);
    expect(measured?.slots.filter(({ device }) => device === 1).map(({ task }) => task?.kind)).toEqual([
      undefined,
      ..."FIFIWW",
    ]);
    expect(measured?.shares.bubble).toBeCloseTo(2 / 14);
    const chart = pipelineChart(schedule, measured);
    expect(chart).toContain("stage 1, step, iteration 2: input gradient of microbatch 0");
  });

  test("is not made up where a trace does not show it", () => {
    const forwardOnly: StepTrace = { work: [], iterations: loop(0, 1, 5, 0, forward) };
    expect(measurePipeline(plan, forwardOnly, () => 0)).toBeUndefined();
    const unnamed: StepTrace = { work: [], iterations: [...loop(0, 1, 5, 0), ...loop(0, 2, 5, 10)] };
    expect(measurePipeline(plan, unnamed, () => 0)).toBeUndefined();
    expect(measurePipeline(plan, { work: [], iterations: [] }, () => 0)).toBeUndefined();
  });
});

test("waits are no work, and what a step does around them is", () => {
  const event = { device: 0, program: "step", step: 1, source: undefined, iteration: undefined };
  const { work } = stepTraceOf([
    { ...event, kind: "gemm", ops: ["dot"], begin: 100, end: 104, waits: [] },
    {
      ...event,
      kind: "done",
      ops: ["psum"],
      begin: 104,
      end: 110,
      waits: [
        { begin: 104, end: 106 },
        { begin: 107, end: 109 },
      ],
    },
  ]);
  expect(work.map(({ kind, begin, end }) => [kind, begin, end])).toEqual([
    ["gemm", 0, 4],
    ["wait", 4, 6],
    ["collective", 6, 7],
    ["wait", 7, 9],
    ["collective", 9, 10],
  ]);
  const [shares] = sharesOfWork(work);
  expect(shares).toMatchObject({ gemm: 0.4, collective: 0.2, wait: 0.4, idle: 0 });
});

describe("a circular run on two devices", () => {
  const folder = temporaryFolder();
  const engine = createThreadsEngine({ numDevices: 2 });
  afterAll(async () => {
    await engine.close();
    folder.remove();
  });
  const config = () => tinyConfig(folder.path, { "mesh.pipe": 2, "pipeline.repeats": 2, steps: 2 });
  beforeAll(async () => {
    writeText(folder.path);
    await trainRun({ config: config(), engine, stream: silent });
  }, 120_000);

  test("has a report with the pipeline planned and measured, device by device", () => {
    const html = readFileSync(join(config().out, "report.html"), "utf8");
    expect(html).toMatch(/Measured: the devices spent [\d.]+ % of the iterations/);
    for (const stage of [0, 1]) {
      for (const pass of ["forward", "backward"]) {
        const boxes = html.match(new RegExp(`stage ${stage}, ${pass}, iteration \\d`, "g"));
        expect(boxes).toHaveLength(2 * numIterations(plan));
      }
    }
    expect(html).not.toContain("NaN");
  });

  test("has a trace with every iteration around what ran in it", () => {
    interface Slice {
      readonly name: string;
      readonly cat?: string;
      readonly pid: number;
      readonly ts: number;
      readonly dur: number;
    }
    const { traceEvents }: { traceEvents: Slice[] } = JSON.parse(
      readFileSync(join(config().out, "trace.json"), "utf8"),
    );
    const named = traceEvents.filter(({ name }) => /^(forward|backward) \d+: /.test(name));
    expect(named).toHaveLength(2 * 2 * numIterations(plan));
    expect(named.filter(({ name }) => name.endsWith("bubble"))).toHaveLength(2 * 2);
    expect(named.filter(({ name }) => name === "backward 4: microbatch 1·1")).toHaveLength(1);
    for (const one of named) {
      const inside = traceEvents.filter(
        ({ cat, pid, ts, dur }) =>
          cat === "gemm" && pid === one.pid && ts >= one.ts && ts + dur <= one.ts + one.dur,
      );
      expect(inside.length, one.name).toBeGreaterThan(0);
    }
    const categories = new Set(traceEvents.map(({ cat }) => cat));
    for (const kind of ["gemm", "kernel", "collective", "iteration"]) {
      expect(categories).toContain(kind);
    }
  });

  test("shows no measured pipeline without a recorded step", () => {
    const mesh = runMesh(config(), engine);
    const { layout } = runTrainingFunctions(config(), 257, mesh);
    const nothing = { work: [], iterations: [] };
    const { pipeline } = config();
    expect(runPipeline(layout, pipeline, mesh, nothing)?.measured).toBeUndefined();
    expect(runPipeline(undefined, pipeline, mesh, nothing)).toBeUndefined();
  });

  test("has such a report with an interleaved schedule too", async () => {
    const v = tinyConfig(join(folder.path, "v"), {
      "mesh.pipe": 2,
      "pipeline.schedule": "zb-v",
      "pipeline.microbatches": 3,
      "data.batch": 6,
      "data.source": config().data.source,
      "model.numLayers": 4,
      steps: 2,
    });
    await trainRun({ config: v, engine, stream: silent });
    const html = readFileSync(join(v.out, "report.html"), "utf8");
    expect(html).toMatch(/Measured: the devices spent [\d.]+ % of the iterations/);
    const { stages } = planSchedule(zeroBubbleV({ numStages: 2, numMicrobatches: 3 }));
    for (const stage of [0, 1]) {
      const boxes = html.match(new RegExp(`stage ${stage}, step, iteration \\d+`, "g"));
      expect(boxes).toHaveLength(2 * (stages[0]?.length ?? 0));
    }
  }, 120_000);
});
