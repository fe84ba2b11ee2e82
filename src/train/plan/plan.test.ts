import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test, vi } from "vitest";
import type { ControlRole } from "../../ir/ops.js";
import "../../index.js";
import { temporaryFolder, tinyConfig } from "../../../test/support/runs.js";
import { collectiveSpec } from "../../../test/support/threadsPrograms.js";
import type { CollectiveSpec, CompiledProgram, Step } from "../../compiler/steps.js";
import { hostEngine } from "../../engines/host.js";
import { createReferenceEngine } from "../../engines/reference/engine.js";
import { at, range } from "../../ir/shape.js";
import { makeSchedule } from "../../parallel/schedule/makers.js";
import { slotTable } from "../../parallel/schedule/slots.js";
import { memoryNeed, totalBytes } from "../config/memoryNeed.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../config/setup.js";
import { type Calibration, calibratedPrices, readCalibration, writeCalibration } from "./calibration.js";
import { candidatesOf, describeChoice, meshesOf } from "./candidates.js";
import { fitTimes } from "./fitTimes.js";
import { linkPrices, machinePrices, parseBandwidth, parseFlops, parseSeconds, parseSize } from "./machine.js";
import { MachineLoad } from "./machineLoad.js";
import { planTraining, priceConfig } from "./plan.js";
import { formatPlan } from "./planText.js";
import type { Prices } from "./prices.js";
import { Profiler } from "./profile.js";
import { stepTime } from "./stepCost.js";

const folder = temporaryFolder();
afterAll(folder.remove);

const links = {
  network: { bandwidth: 50e9, latency: 0 },
  intra: { bandwidth: 900e9, latency: 0 },
  nodeSize: 8,
};
const device = { flops: 1e12, efficiency: 0.5, memoryBandwidth: 1e11, launch: 1e-6 };

describe("figures of a machine", () => {
  test("are read with their units", () => {
    expect(parseBandwidth("400Gbit")).toBe(50e9);
    expect(parseBandwidth("900GB/s")).toBe(900e9);
    expect(parseBandwidth("1.5 TiB/s")).toBe(1.5 * 2 ** 40);
    expect(parseBandwidth("fast")).toBeUndefined();
    expect(parseFlops("989TFLOP/s")).toBe(989e12);
    expect(parseFlops("1.2PFLOPS")).toBe(1.2e15);
    expect(parseSeconds("8us")).toBeCloseTo(8e-6, 12);
    expect(parseSize("80GiB")).toBe(80 * 2 ** 30);
    expect(parseSize("80GB")).toBe(80e9);
  });

  /** A collective of 4 GB. */
  const spec = (groups: number[][], kind: CollectiveSpec["kind"] = "allReduce"): CollectiveSpec => ({
    kind,
    combine: "sum",
    dtype: "float32",
    axes: [],
    groups,
    size: at(groups, 0).length,
    source: { slot: 0, offset: 0 },
    target: { slot: 0, offset: 0 },
    elements: 1e9,
    outer: 1,
    inner: 1e9,
    permutation: [],
    info: 0,
  });

  test("send inside a node over its links, and between nodes over the network", () => {
    const price = linkPrices(links);
    const bytes = 4e9;
    expect(price(spec([range(8)]))).toBeCloseTo((2 * bytes * 7) / 8 / 900e9, 9);
    expect(price(spec([[0, 8]]))).toBeCloseTo(bytes / 50e9, 9);
    // Eight devices of each of two nodes: each carries an eighth of what leaves its node.
    expect(price(spec([range(16)]))).toBeCloseTo((2 * bytes * 15) / 16 / 8 / 50e9, 9);
    expect(price(spec([[0, 1]], "permute"))).toBeCloseTo(bytes / 900e9, 9);
  });

  test("wait for messages one after the other: along rings when they gather, up and down a tree when they sum", () => {
    const price = linkPrices({
      network: { bandwidth: 1e30, latency: 1 },
      intra: { bandwidth: 1e30, latency: 1e-3 },
      nodeSize: 8,
    });
    expect(price(spec([range(8)], "allGather"))).toBeCloseTo(7e-3, 9);
    expect(price(spec([range(256)], "allGather"))).toBeCloseTo(31 + 0.224, 9);
    expect(price(spec([range(512)], "reduceScatter"))).toBeCloseTo(63 + 0.448, 9);
    // A device of every node: hybrid sharding and tensor parallelism make such rings shorter.
    expect(price(spec([range(32).map((i) => 8 * i)], "allGather"))).toBeCloseTo(31, 9);
    expect(price(spec([range(256)], "allReduce"))).toBeCloseTo(10 + 6e-3, 9);
    expect(price(spec([[0, 8]], "permute"))).toBeCloseTo(1, 9);
  });
});

describe("a fit", () => {
  test("finds the weights that times were made of, and none below zero", () => {
    const rows = range(12).map((i) => [1, (i * i) % 7, i]);
    const price = fitTimes(rows.map((features) => ({ features, seconds: 2 + 3 * at(features, 1) })));
    expect(price([1, 10, 100])).toBeCloseTo(32, 6);
    const falling = fitTimes([1, 2, 3].map((i) => ({ features: [1, i], seconds: 4 - i })));
    expect(falling([0, 1])).toBe(0);
  });
});

/** A program of products that all take as many seconds as they have rows. */
function programOf(steps: readonly Step[]): CompiledProgram {
  return {
    name: "made",
    modules: [],
    steps,
    slots: [],
    arenaBytes: 0,
    constants: new Uint8Array(),
    inputs: [],
    outputs: [],
    collectives: [],
    callbacks: [],
    infos: [{ ops: [], flops: 0, bytes: 0 }],
    cost: { flops: 0, bytes: 0, communicatedBytes: 0, peakBytes: 0 },
  };
}

/** A sum over two devices. */
const twoOnX = {
  kind: "allReduce",
  dtype: "float32",
  axes: ["x"],
  outer: 1,
  inner: 4,
  permutation: [],
} as const;

const place = { slot: 0, offset: 0 };
const product = (seconds: number): Step => ({
  op: "gemm",
  dtype: "float32",
  a: place,
  b: place,
  c: place,
  m: seconds,
  n: 1,
  k: 1,
  transposeA: false,
  transposeB: false,
  lda: 1,
  ldb: 1,
  ldc: 1,
  alpha: 1,
  beta: 0,
  batch: [],
  info: 0,
});
const inRows: Prices = {
  peakFlops: 1,
  call: 0,
  numCores: Number.POSITIVE_INFINITY,
  overlaps: true,
  step: (step) => (step.op === "gemm" ? step.m : 0),
  collective: () => 0,
};

describe("the time of a program", () => {
  const loop = (count: number, body: readonly Step[]): Step => ({
    op: "loop",
    count,
    sets: [],
    body,
    advances: [],
    swaps: [],
    info: 0,
  });

  test("is that of its steps as often as they run, and of more devices than cores in turns", () => {
    const program = programOf([product(2), loop(3, [product(5)])]);
    expect(stepTime(program, inRows, { numDevices: 4 }).seconds).toBe(17);
    expect(stepTime(program, { ...inRows, numCores: 2 }, { numDevices: 4 }).seconds).toBe(34);
    expect(stepTime(program, { ...inRows, call: 1 }, { numDevices: 4 }).seconds).toBe(17 + 1);
  });

  test("messages along the same axis, or that share one link, take turns", () => {
    const collective = { op: "start", collective: 0, info: 0 } as const;
    const mesh = {
      axes: [
        { name: "x", size: 2 },
        { name: "y", size: 2 },
      ],
    };
    const spec = collectiveSpec(mesh, twoOnX, 0, 1);
    const other = collectiveSpec(mesh, { ...twoOnX, axes: ["y"] }, 0, 1);
    const program = {
      ...programOf([
        collective,
        { ...collective, collective: 1 },
        product(4),
        { ...collective, op: "done" },
        { ...collective, op: "done", collective: 1 },
      ]),
      collectives: [spec, other],
    };
    const prices: Prices = { ...inRows, overlaps: true, collective: () => 10 };
    expect(stepTime(program, prices, { numDevices: 2 }).seconds).toBe(10);
    expect(stepTime(program, { ...prices, takesTurns: true }, { numDevices: 2 }).seconds).toBe(20);
    const alongOne = { ...program, collectives: [spec, spec] };
    expect(stepTime(alongOne, prices, { numDevices: 2 }).seconds).toBe(20);
  });

  test("of a pipeline is what its stages do slot by slot, and the bubble the rest", () => {
    const schedule = makeSchedule("1f1b", { numStages: 2, numMicrobatches: 4 });
    const { branches, slots, role } = slotTable(schedule, false);
    const lengths = { F: 2, B: 4, I: 2, W: 2 };
    const choice: Step = {
      op: "cond",
      index: place,
      branches: [[], ...branches.map(({ kind }) => [product(lengths[kind])])],
      info: 2,
    };
    const pipeline = (count: number) => {
      const program = programOf([{ ...loop(count, [choice, product(1)]), info: 1 }]);
      const info = (own: ControlRole) => ({ ops: [], flops: 0, bytes: 0, role: own });
      return { ...program, infos: [...program.infos, info(role), info({ kind: "action" })] };
    };
    const program = pipeline(slots.length);
    const { seconds, parts } = stepTime(program, inRows, { numDevices: 2, schedule });
    // 4 microbatches and one more for the other stage, three actions each; and what all do in every slot.
    expect(seconds).toBe(3 * (4 + 1) * 2 + slots.length);
    expect(parts.bubble).toBe(3 * 2);
    // On one core stages take turns, and nobody waits but for whom the slot has nothing.
    const crowded = stepTime(program, { ...inRows, numCores: 1 }, { numDevices: 2, schedule });
    expect(crowded.seconds).toBe(2 * 3 * 4 * 2 + 2 * slots.length);
    // What does not follow the schedule is refused, not priced as something else.
    const price = (other: CompiledProgram) => () => stepTime(other, inRows, { numDevices: 2, schedule });
    expect(price(pipeline(slots.length + 1))).toThrow(`a loop over ${slots.length + 1} slots`);
    expect(price(programOf([loop(slots.length, [choice, product(1)])]))).toThrow("no loop over the slots");
    expect(() => stepTime(program, inRows, { numDevices: 2 })).toThrow("needs its schedule");
  });

  test("counts of communication only what computation leaves over", () => {
    const axes = [{ name: "data", size: 2 }];
    const spec = { axes, size: 2 } as unknown as CompiledProgram["collectives"][number];
    const program = {
      ...programOf([
        { op: "start", collective: 0, info: 0 },
        product(3),
        { op: "done", collective: 0, info: 0 },
      ]),
      collectives: [spec],
    };
    const prices = { ...inRows, collective: () => 5 };
    expect(stepTime(program, prices, { numDevices: 2 }).parts.communication).toEqual({ data: 2 });
    const blocking = { ...prices, overlaps: false };
    expect(stepTime(program, blocking, { numDevices: 2 }).seconds).toBe(8);
  });
});

describe("a calibration", () => {
  const calibration: Calibration = {
    version: 3,
    processor: "made",
    numCores: 2,
    gemm: "native",
    day: "2026-01-01",
    measured: [
      {
        numDevices: 2,
        products: [64, 128, 256].map((m) => ({
          m,
          n: m,
          k: m,
          transposeA: false,
          transposeB: false,
          batch: 1,
          seconds: (2 * m ** 3) / 1e10,
        })),
        kernels: [1e4, 1e6].map((bytes) => ({ ops: "exp mul", flops: bytes, bytes, seconds: bytes / 1e9 })),
        copies: [1e3, 1e6].map((bytes) => ({ bytes, seconds: 1e-6 + bytes / 1e10 })),
        collectives: [1e3, 1e6].map((bytes) => ({
          kind: "allReduce",
          size: 2,
          bytes,
          seconds: 1e-5 + bytes / 1e9,
        })),
        probes: [],
        call: 0,
      },
    ],
  };

  test("is the same read back, and one that is damaged is refused", () => {
    const file = join(folder.path, "cache", "calibration.json");
    writeCalibration(file, calibration);
    expect(readCalibration(file)).toEqual(calibration);
    expect(readCalibration(join(folder.path, "none.json"))).toBeUndefined();
    writeFileSync(file, readFileSync(file, "utf8").replace('"bytes":10000,', '"bytes":"many",'));
    expect(() => readCalibration(file)).toThrow(
      "holds kernels that are not numbers: run shardwise plan --calibrate",
    );
    writeFileSync(file, "{");
    expect(() => readCalibration(file)).toThrow("cannot be read");
  });

  test("prices what was measured as it was, and what lies between in between", () => {
    const prices = calibratedPrices(calibration, 4);
    const info = { ops: ["exp", "mul"], flops: 1e5, bytes: 1e5 };
    const kernel: Step = { op: "kernel", module: 0, kernel: 0, args: 0, numArgs: 2, info: 0 };
    expect(prices.step(kernel, info)).toBeCloseTo(1e-4, 9);
    const square = product(96);
    if (square.op !== "gemm") throw new Error("no product");
    expect(prices.step({ ...square, n: 96, k: 96 }, info)).toBeCloseTo((2 * 96 ** 3) / 1e10, 9);
    const copy: Step = { op: "copy", source: place, target: place, bytes: 5e5, info: 0 };
    expect(prices.step(copy, info)).toBeCloseTo(1e-6 + 5e-5, 9);
    expect(prices.peakFlops).toBeCloseTo(1e10, -3);
  });

  test("prices a product between those that were measured by all of them that are near", () => {
    const [measured] = calibration.measured;
    if (!measured) throw new Error("nothing was measured");
    // Products of rows that are 1 KiB apart take twice as long, those of 1,024 columns one and a half times.
    const factor = (n: number) => (n === 1024 ? 1.5 : n % 256 === 0 ? 2 : 1);
    const widths = [64, 96, 160, 256, 384, 640, 1024];
    const products = widths.flatMap((n) =>
      widths.map((k) => ({
        m: 500,
        n,
        k,
        transposeA: false,
        transposeB: false,
        batch: 1,
        seconds: (factor(n) * 2 * 500 * n * k) / 1e10,
      })),
    );
    const prices = calibratedPrices({ ...calibration, measured: [{ ...measured, products }] }, 2);
    const info = { ops: ["dot"], flops: 0, bytes: 0 };
    const rate = (n: number, k: number) => {
      const step = product(500);
      if (step.op !== "gemm") throw new Error("no product");
      return (1e10 * prices.step({ ...step, n, k }, info)) / (2 * 500 * n * k);
    };
    for (const k of [96, 200, 700]) {
      expect(rate(64, k)).toBeGreaterThan(0.8);
      expect(rate(64, k)).toBeLessThan(1.2);
      expect(rate(256, k)).toBeGreaterThan(1.5);
      expect(rate(256, k)).toBeLessThan(2.1);
    }
    // What lies on both sides pulls the same way.
    expect(rate(192, 160)).toBeLessThan(rate(256, 160));
  });

  test("stretches what parts take, and adds what a call takes, so that whole steps take as long as they did", () => {
    const [measured] = calibration.measured;
    if (!measured) throw new Error("nothing was measured");
    const sizes = [
      [0.1, 0.01],
      [0.2, 0.08],
      [0.4, 0.02],
      [0.3, 0],
    ] as const;
    const probes = sizes.map(([computing, communication]) => ({
      computing,
      communication,
      seconds: 1.25 * computing + 3 * communication + 0.03,
    }));
    const [plain, stretched] = [[], probes].map((list) =>
      calibratedPrices({ ...calibration, measured: [{ ...measured, probes: list }] }, 2),
    );
    if (!plain || !stretched) throw new Error("two prices");
    const copy: Step = { op: "copy", source: place, target: place, bytes: 5e5, info: 0 };
    const info = { ops: ["copy"], flops: 0, bytes: 5e5 };
    expect(stretched.step(copy, info) / plain.step(copy, info)).toBeCloseTo(1.25, 3);
    const spec = collectiveSpec({ axes: [{ name: "x", size: 2 }] }, twoOnX, 0, 1);
    expect(stretched.collective(spec) / plain.collective(spec)).toBeCloseTo(3, 2);
    expect(stretched.call - plain.call).toBeCloseTo(0.03, 4);
    // Devices that share a core wait while others compute on it.
    const shared = calibratedPrices({ ...calibration, numCores: 1, measured: [{ ...measured, probes }] }, 2);
    expect(shared.collective(spec)).toBeCloseTo(plain.collective(spec), 12);
    expect(shared.step(copy, info) / plain.step(copy, info)).toBeCloseTo(1.25, 3);
    // Where steps do not tell what sending takes, it takes what it does by itself.
    const silent = probes.map((probe) => ({ ...probe, seconds: 1.25 * probe.computing }));
    const kept = calibratedPrices({ ...calibration, measured: [{ ...measured, probes: silent }] }, 2);
    expect(kept.step(copy, info) / plain.step(copy, info)).toBeCloseTo(1.25, 3);
    expect(kept.collective(spec)).toBeCloseTo(plain.collective(spec), 12);
  });
});

describe("a machine that others use", () => {
  const fast = { value: "fast", probeSeconds: 0 };
  const slow = [3e9, 1e9, 2e9].map((probeSeconds) => ({ value: `slow ${probeSeconds / 1e9}`, probeSeconds }));

  test("counts while it is about as fast as at its best, or else the third that comes nearest to that", async () => {
    const load = await MachineLoad.open(createReferenceEngine({ numDevices: 1 }), 8);
    expect(load.undisturbed([...slow, fast])).toEqual(["fast"]);
    expect(load.numUndisturbed([...slow, fast, fast])).toBe(2);
    expect(load.undisturbed(slow)).toEqual(["slow 1"]);
    expect(load.undisturbed([...slow, ...slow])).toEqual(["slow 1", "slow 1"]);
    const { value, probeSeconds: seconds } = await load.observe(async () => 7);
    expect(value).toBe(7);
    expect(seconds).toBeGreaterThan(0);
  });

  test("is profiled by the rounds in which nobody disturbed it", async () => {
    const load = await MachineLoad.open(createReferenceEngine({ numDevices: 1 }), 8);
    // Each recording is of one device that runs one product, which takes 2 ms, and 50 in a round that is disturbed.
    let milliseconds = 2;
    const event = { device: 0, program: "made", step: 0, kind: "gemm", ops: [], waits: [] };
    const stop = async () => [
      { ...event, iteration: undefined, source: undefined, begin: 0, end: milliseconds },
    ];
    const engine = Object.assign(Object.create(hostEngine), { tracer: { start: () => {}, stop } });
    const profiler = new Profiler(engine, load, programOf([product(1)]), async () => {}, {
      plain: 1,
      recorded: 1,
    });
    const observe = vi.spyOn(load, "observe");
    observe.mockImplementation(async (measure) => ({ value: await measure(), probeSeconds: 0 }));
    for (let i = 0; i < 2; i++) await profiler.round();
    observe.mockImplementation(async (measure) => ({ value: await measure(), probeSeconds: 1e9 }));
    milliseconds = 50;
    for (let i = 0; i < 9; i++) await profiler.round();
    expect(profiler.numUndisturbed).toBe(2);
    const { steps, stepSeconds } = profiler.profile();
    expect(steps).toMatchObject([{ number: 0, count: 1 }]);
    expect(stepSeconds).toBeCloseTo(2e-3, 9);
  });
});

describe("candidates", () => {
  const config = tinyConfig(folder.path, { "data.batch": 16 });

  test("are all meshes of the devices that the model splits over, with reasons for the others", () => {
    expect(meshesOf(4)).toHaveLength(10);
    const { configs, refused } = candidatesOf(config, 8);
    expect(configs.every(({ mesh }) => mesh.data * mesh.fsdp * mesh.pipe * mesh.model === 8)).toBe(true);
    expect(new Set(configs.map(({ mesh }) => JSON.stringify(mesh))).size).toBeGreaterThan(8);
    // Two heads do not split over four devices.
    expect(configs.some(({ mesh }) => mesh.model > 2)).toBe(false);
    expect([...refused.keys()]).toContain("model.numHeads (2) does not split over mesh.model");
    expect(new Set(configs.map(describeChoice)).size).toBe(configs.length);
  });
});

describe("experts on several devices", () => {
  const config = (mesh: Record<string, number>) =>
    tinyConfig(folder.path, {
      ...{ "model.kind": "moe", "model.numLayers": 1, "model.width": 64 },
      ...{ "data.batch": 16, "data.sequence": 256 },
      ...{ "model.experts.numExperts": 8, "model.experts.numExpertsPerToken": 2 },
      ...Object.fromEntries(Object.entries(mesh).map(([axis, size]) => [`mesh.${axis}`, size])),
    });
  /** A second for every row of a ragged product, and for every element that is exchanged. */
  const rowPrices: Prices = {
    ...machinePrices(device, links),
    device: undefined as never,
    step: (step) => (step.op === "gemm" && step.ragged ? step[step.ragged.dim] : 0),
    collective: ({ ragged, elements }) => (ragged ? elements : 0),
  };

  /** The seconds of products where a compiler fuses. */
  const fused = (mesh: Record<string, number>, imbalance?: number) =>
    priceConfig(config(mesh), machinePrices(device, links), imbalance).parts.products;

  test("are priced by the tokens that they have, not by the space for all", () => {
    const data = priceConfig(config({ data: 4 }), rowPrices).parts;
    const expert = priceConfig(config({ expert: 4 }), rowPrices).parts;
    expect(expert.products).toBeCloseTo(data.products, 6);
    const [alone, split, uneven] = [fused({ data: 4 }), fused({ expert: 4 }), fused({ expert: 4 }, 2)];
    expect(split / alone).toBeCloseTo(1, 1);
    expect(uneven).toBeGreaterThan(1.05 * split);
  });

  test("wait for the fullest device", () => {
    const [even, uneven] = [1, 1.5].map((load) => priceConfig(config({ expert: 4 }), rowPrices, load).parts);
    expect((uneven?.products ?? 0) / (even?.products ?? 1)).toBeCloseTo(1.5, 6);
    expect((uneven?.communication.expert ?? 0) / (even?.communication.expert ?? 1)).toBeCloseTo(1.5, 6);
    expect(() => priceConfig(config({ expert: 4 }), rowPrices, 0.5)).toThrow(
      "imbalance is 0.5: use 1 or more",
    );
  });
});

describe("a plan", () => {
  const config = tinyConfig(folder.path, { "data.batch": 16, "model.numLayers": 2 });
  const prices = machinePrices(device, links);
  const space = { schedules: ["1f1b"], remat: ["none"], accumulate: [1], microbatchesPerStage: [2] } as const;
  const options = { numDevices: 2, prices, space };
  let known: ReturnType<typeof planTraining> | undefined;
  const whole = () => {
    known ??= planTraining(config, options);
    return known;
  };

  test("has the fastest choice first, with the memory that inspect tells for threads", () => {
    const plan = whole();
    const seconds = plan.choices.map((choice) => choice.seconds);
    expect(seconds).toEqual([...seconds].sort((a, b) => a - b));
    expect(plan.choices.length).toBe(plan.numTried);
    const { config: chosen, memoryBytes, shareOfPeak } = at(plan.choices, 0);
    const training = runTrainingFunctions(chosen, expectedVocabulary(chosen), runMesh(chosen, hostEngine));
    expect(priceConfig(chosen, inRows).memoryBytes).toBe(totalBytes(memoryNeed(training, chosen)));
    // Fewer values are stored where more is fused, and the allocator takes an eighth more.
    expect(memoryBytes).toBeLessThan(1.12 * totalBytes(memoryNeed(training, chosen)));
    expect(shareOfPeak).toBeGreaterThan(0);
    expect(shareOfPeak).toBeLessThan(1);
    const text = formatPlan(plan, 10);
    expect(text).toContain("pipe=2 1f1b m=4");
    expect(text).toMatch(/1 {2}\S+=2.* (ms|µs) .*%.*iB {2}/);
  });

  test("adds up to its parts", () => {
    const swept = priceConfig(
      { ...config, mesh: { data: 1, fsdp: 1, expert: 1, pipe: 2, context: 1, model: 1 } },
      prices,
    );
    for (const { seconds, parts, config: one } of [...whole().choices, swept]) {
      const { communication, ...rest } = parts;
      const all = [...Object.values(communication), ...Object.values(rest)];
      expect(all.reduce((sum, part) => sum + part, 0)).toBeCloseTo(seconds, 9);
      expect(parts.bubble > 0).toBe(one.mesh.pipe > 1);
    }
  });

  test("refuses what does not fit, and says what comes closest where nothing does", () => {
    const sizes = whole()
      .choices.map(({ memoryBytes }) => memoryBytes)
      .sort((a, b) => a - b);
    const limit = at(sizes, 1);
    const tries = 4;
    const { choices, refused } = planTraining(config, { ...options, memoryBytes: limit, tries });
    const fitting = whole().choices.filter(({ memoryBytes }) => memoryBytes <= limit);
    expect(choices.length).toBeGreaterThan(0);
    for (const { name } of choices) expect(fitting.map((choice) => choice.name)).toContain(name);
    const tooLarge = [...refused].find(([reason]) => reason.startsWith("a step needs more than"));
    expect(tooLarge?.[1]).toBe(tries - choices.length);
    expect(() => planTraining(config, { ...options, memoryBytes: 1000, tries: 1 })).toThrow(
      /nothing fits into 1000 B on each of 2 devices; the least of 1 configurations needs .* \(.*\): use more devices/,
    );
    expect(() => planTraining(config, { ...options, numDevices: 7 })).toThrow(
      /splits over 7 devices: use 4 or 8, or other sizes\n.*data\.batch \(16\) does not split over/,
    );
    expect(() => planTraining(config, { ...options, numDevices: 0 })).toThrow("numDevices is 0");
  });
});
