/** Measures this machine: products by size, kernels, copies and collectives, and what starting them takes. */
import { availableParallelism, cpus } from "node:os";
import { createThreadsEngine, type ThreadsEngine } from "../../engines/threads/engine.js";
import { byteSize } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import type { PipelineSchedule } from "../../parallel/schedule/schedule.js";
import {
  type Calibration,
  type CollectiveSample,
  type CopySample,
  type DeviceCalibration,
  type KernelSample,
  measuredPrices,
  type ProbeSample,
  type ProductSample,
} from "./calibration.js";
import {
  openAttention,
  openCall,
  openCollectives,
  openLayers,
  openTraining,
  trainingProbes,
} from "./calibrationPrograms.js";
import { MachineLoad } from "./machineLoad.js";
import type { Profiler } from "./profile.js";
import { stepTime } from "./stepCost.js";

/** Options of {@link calibrate}. */
export interface CalibrateOptions {
  /** The numbers of devices to measure with; by default 1, 2, 4 and 8, and as many as there are cores. */
  readonly devices?: readonly number[];
  /** The number of rounds in which every program runs, without those that other processes disturbed; 6 by default. */
  readonly numRounds?: number;
  /** Measure in a few seconds what a rough plan needs: few products, collectives and training steps; false by default. */
  readonly isQuick?: boolean;
  /** Called with what is being measured. */
  readonly onProgress?: (what: string) => void;
}

/** Maximum number of rounds to measure for each requested one. */
const maxTries = 3;

/**
 * Measures how long this machine's devices, threads of the default engine, take for products by size, for the kernels
 * of language models, for copies, for collectives by kind, bytes and number of devices, and for starting them. Takes a
 * minute or two, in which nothing else should run: programs alternate, and rounds in which the machine is slower than
 * at its best are repeated.
 */
export async function calibrate(options: CalibrateOptions = {}): Promise<Calibration> {
  const numCores = availableParallelism();
  const { devices = [...new Set([1, 2, 4, 8, numCores])], isQuick = false, onProgress = () => {} } = options;
  const { numRounds = isQuick ? 1 : 6 } = options;
  const calibrators: Calibrator[] = [];
  try {
    for (const numDevices of [...devices].sort((a, b) => a - b)) {
      onProgress(`${numDevices} device${numDevices > 1 ? "s" : ""}: compiling`);
      calibrators.push(await Calibrator.open(numDevices, isQuick));
    }
    for (let round = 1; round <= (isQuick ? numRounds : maxTries * numRounds); round++) {
      const open = calibrators.filter((one) => one.needs(numRounds));
      if (open.length === 0) break;
      onProgress(`round ${round}`);
      for (const one of open) await one.round(numRounds);
    }
    return calibrationOf(calibrators);
  } finally {
    for (const one of calibrators) await one.close();
  }
}

/** The calibration of this machine from the measurements of calibrators so far. */
export function calibrationOf(calibrators: readonly Calibrator[]): Calibration {
  return {
    version: 3,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    numCores: availableParallelism(),
    gemm: calibrators.map(({ engine }) => engine.info().gemm ?? "").at(-1) ?? "",
    day: new Date().toISOString().slice(0, 10),
    measured: calibrators.map((one) => one.result()),
  };
}

/** A training step that is measured. */
interface TrainingProbe {
  readonly profiler: Profiler;
  readonly schedule: PipelineSchedule | undefined;
}

/** The programs of a {@link Calibrator}. */
interface Programs {
  readonly call: Profiler;
  readonly collectives: readonly Profiler[];
  readonly products: readonly Profiler[];
  readonly probes: readonly TrainingProbe[];
}

/** Measures with a number of devices working at the same time, in rounds that run every program once. */
export class Calibrator {
  private readonly all: readonly Profiler[];

  private constructor(
    /** The engine that it measures. */
    readonly engine: ThreadsEngine,
    /** The load of the machine. */
    readonly load: MachineLoad,
    private readonly programs: Programs,
  ) {
    const { call, collectives, products, probes } = programs;
    this.all = [call, ...collectives, ...products, ...probes.map(({ profiler }) => profiler)];
  }

  /** Compiles all programs; with more devices than cores only those that measure calls and collectives. */
  static async open(numDevices: number, isQuick = false): Promise<Calibrator> {
    const engine = createThreadsEngine({ numDevices });
    try {
      const load = await MachineLoad.open(engine);
      const computes = numDevices <= availableParallelism();
      const probes: TrainingProbe[] = [];
      if (computes) {
        for (const config of trainingProbes(numDevices).slice(0, isQuick ? 1 : undefined))
          probes.push(await openTraining(engine, load, config));
      }
      const programs: Programs = {
        call: await openCall(engine, load),
        collectives: await openCollectives(engine, load, isQuick),
        products: computes
          ? [
              ...(await openLayers(engine, load, isQuick)),
              ...(isQuick ? [] : await openAttention(engine, load)),
            ]
          : [],
        probes,
      };
      return new Calibrator(engine, load, programs);
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  /** Whether a program has had fewer undisturbed rounds than requested. */
  needs(numRounds: number): boolean {
    return this.all.some(({ numUndisturbed }) => numUndisturbed < numRounds);
  }

  /** Measures a round of every program that has had fewer than the given number of undisturbed ones. */
  async round(numRounds: number): Promise<void> {
    for (const profiler of this.all) if (profiler.numUndisturbed < numRounds) await profiler.round();
  }

  /** The measurements so far. */
  result(): DeviceCalibration {
    const { numDevices } = this.engine;
    const { call, collectives, products, probes } = this.programs;
    const all = new Samples();
    for (const profiler of collectives) all.addCollectives(profiler);
    for (const profiler of products) all.addSteps(profiler);
    for (const { profiler } of probes) all.addSteps(profiler);
    const { seconds, stepSeconds } = call.profile();
    const parts = { ...all.calibration(numDevices), call: Math.max(0, seconds - stepSeconds) };
    if (probes.length === 0) return parts;
    const prices = measuredPrices(parts, parts, parts.call, numDevices);
    const whole = probes.map(({ profiler, schedule }): ProbeSample => {
      const priced = stepTime(profiler.compiled, prices, { numDevices, schedule });
      const communication = Object.values(priced.parts.communication).reduce((sum, one) => sum + one, 0);
      return {
        computing: priced.seconds - parts.call - communication,
        communication,
        seconds: Math.max(0, profiler.profile().seconds - parts.call),
      };
    });
    return { ...parts, probes: whole };
  }

  /** Closes the engine. */
  async close(): Promise<void> {
    await this.engine.close();
  }
}

/** The times of all programs by kind of step. */
class Samples {
  private readonly products: ProductSample[] = [];
  private readonly kernels: KernelSample[] = [];
  private readonly copies: CopySample[] = [];
  private readonly collectives: CollectiveSample[] = [];

  /**
   * Adds products, kernels and copies, but not collectives, whose times include waiting for the slowest device here.
   */
  addSteps(profiler: Profiler): void {
    const { infos } = profiler.compiled;
    for (const { step, seconds } of profiler.profile().steps) {
      if (step.op === "gemm") {
        const { m, n, k, transposeA, transposeB } = step;
        const batch = step.batch.reduce((product, { count }) => product * count, 1);
        this.products.push({ m, n, k, transposeA, transposeB, batch, seconds });
      } else if (step.op === "kernel" || step.op === "host") {
        const { ops, flops, bytes } = at(infos, step.info);
        this.kernels.push({ ops: ops.join(" "), flops, bytes, seconds });
      } else if (step.op === "copy") this.copies.push({ bytes: step.bytes, seconds });
    }
  }

  /** Adds collectives that follow each other directly, so that no device waits long. */
  addCollectives(profiler: Profiler): void {
    for (const { step, seconds } of profiler.profile().steps) {
      if (step.op !== "done") continue;
      const { kind, size, elements, dtype } = at(profiler.compiled.collectives, step.collective);
      this.collectives.push({ kind, size, bytes: elements * byteSize(dtype), seconds });
    }
  }

  calibration(numDevices: number): Omit<DeviceCalibration, "call"> {
    const { products, kernels, copies, collectives } = this;
    return {
      numDevices,
      products: typical(products, ({ m, n, k, batch, transposeA, transposeB }) =>
        [m, n, k, batch, transposeA, transposeB].join(" "),
      ),
      kernels: typical(kernels, ({ ops, bytes, flops }) => `${ops} ${bytes} ${flops}`),
      copies: typical(copies, ({ bytes }) => `${bytes}`),
      collectives: typical(collectives, ({ kind, size, bytes }) => `${kind} ${size} ${bytes}`),
      probes: [],
    };
  }
}

/** For each key the sample with the median time. */
function typical<T extends { readonly seconds: number }>(
  samples: readonly T[],
  key: (sample: T) => string,
): T[] {
  const groups = new Map<string, T[]>();
  for (const sample of samples) groups.set(key(sample), [...(groups.get(key(sample)) ?? []), sample]);
  return [...groups.values()].flatMap((group) => {
    const sorted = [...group].sort((a, b) => a.seconds - b.seconds);
    return sorted.slice(Math.floor((sorted.length - 1) / 2)).slice(0, 1);
  });
}
