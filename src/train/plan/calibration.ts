/** The calibration file of a machine, and the prices derived from it. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { userCache } from "#platform/system";
import type { GemmStep, StepInfo } from "../../compiler/steps.js";
import { need, needIfGiven } from "../../ir/arguments.js";
import { byteSize } from "../../ir/dtype.js";
import { attempt, ConfigError, ValueError } from "../../ir/errors.js";
import { opFacts } from "../../ir/opFacts.js";
import { isObject } from "../files/disk/json.js";
import { fitTimes, type TimeModel } from "./fitTimes.js";
import type { Prices } from "./prices.js";

/** How long a product took. */
export interface ProductSample {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly transposeA: boolean;
  readonly transposeB: boolean;
  /** How many products of that size one step computes. */
  readonly batch: number;
  readonly seconds: number;
}

/** How long a fused kernel took. */
export interface KernelSample {
  /** What it computes: ops in order. */
  readonly ops: string;
  readonly flops: number;
  readonly bytes: number;
  readonly seconds: number;
}

/** How long a copy took. */
export interface CopySample {
  readonly bytes: number;
  readonly seconds: number;
}

/** How long a collective took. */
export interface CollectiveSample {
  readonly kind: "allReduce" | "allGather" | "reduceScatter" | "permute" | "allToAll";
  /** The number of participating devices. */
  readonly size: number;
  /** The bytes of a device's source. */
  readonly bytes: number;
  readonly seconds: number;
}

/** How long a training step took without its call, and the sum of the prices of its parts. */
export interface ProbeSample {
  /** The predicted seconds of computation and of pipeline bubbles. */
  readonly computing: number;
  /** The predicted seconds of its collectives. */
  readonly communication: number;
  readonly seconds: number;
}

/** The measurements with a number of devices working at the same time. */
export interface DeviceCalibration {
  readonly numDevices: number;
  readonly products: readonly ProductSample[];
  readonly kernels: readonly KernelSample[];
  readonly copies: readonly CopySample[];
  readonly collectives: readonly CollectiveSample[];
  /** Whole training steps. */
  readonly probes: readonly ProbeSample[];
  /** Seconds that a call takes besides its steps. */
  readonly call: number;
}

/** What `shardwise plan --calibrate` measures. */
export interface Calibration {
  readonly version: 3;
  readonly processor: string;
  readonly numCores: number;
  readonly gemm: string;
  readonly day: string;
  /** By number of devices, fewest first. */
  readonly measured: readonly DeviceCalibration[];
}

/**
 * The default calibration file of this machine.
 *
 * @example
 * ```ts
 * train.calibrationFile({ XDG_CACHE_HOME: "/var/cache" }); // /var/cache/shardwise/calibration.json
 * ```
 */
export function calibrationFile(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string {
  needIfGiven("object", environment, "environment", "calibrationFile");
  needIfGiven("path", environment.XDG_CACHE_HOME, "XDG_CACHE_HOME", "calibrationFile");
  return join(userCache(environment), "calibration.json");
}

/** Writes a calibration. */
export function writeCalibration(file: string, calibration: Calibration): void {
  need("path", file, "file", "writeCalibration");
  need("object", calibration, "calibration", "writeCalibration");
  const problem = calibrationProblem(calibration);
  if (problem !== undefined) throw new ValueError(`[writeCalibration] the calibration ${problem}`);
  writeFigures(file, calibration);
}

/** Writes what was measured. */
export function writeFigures(file: string, figures: object): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(figures)}\n`);
}

/**
 * Reads a calibration; undefined if the file does not exist.
 *
 * @example
 * ```ts
 * train.readCalibration("no-such-file.json"); // undefined
 * ```
 */
export function readCalibration(file: string): Calibration | undefined {
  need("path", file, "file", "readCalibration");
  return readFigures(file, "--calibrate", calibrationProblem) as Calibration | undefined;
}

/**
 * Reads what was measured; undefined if the file does not exist.
 *
 * @param options of `shardwise plan`, to measure it again
 * @param problemOf what is wrong with the content, if anything is
 */
export function readFigures(
  file: string,
  options: string,
  problemOf: (json: unknown) => string | undefined,
): unknown {
  if (!existsSync(file)) return undefined;
  const fail = (what: string) =>
    new ConfigError(`the calibration ${file} ${what}: run shardwise plan ${options} again`);
  const json: unknown = attempt(
    () => JSON.parse(readFileSync(file, "utf8")),
    (reason) => fail(`cannot be read (${reason})`),
  );
  const problem = problemOf(json);
  if (problem !== undefined) throw fail(problem);
  return json;
}

const samples = {
  products: ["m", "n", "k", "batch", "seconds"],
  kernels: ["flops", "bytes", "seconds"],
  copies: ["bytes", "seconds"],
  collectives: ["size", "bytes", "seconds"],
  probes: ["computing", "communication", "seconds"],
} as const;

function calibrationProblem(json: unknown): string | undefined {
  if (!isObject(json) || json.version !== 3) return "was written by another version";
  if (!isCount(json.numCores) || !Array.isArray(json.measured) || json.measured.length === 0)
    return "holds no measurements";
  for (const one of json.measured) {
    if (!isObject(one) || !isCount(one.numDevices) || !isTime(one.call))
      return "holds a measurement of no devices";
    for (const [list, fields] of Object.entries(samples)) {
      const rows: unknown = one[list];
      const isRow = (row: unknown) => isObject(row) && fields.every((field) => isTime(row[field]));
      if (!Array.isArray(rows) || !rows.every(isRow)) return `holds ${list} that are not numbers`;
    }
  }
  return undefined;
}

const isTime = (value: unknown) => typeof value === "number" && Number.isFinite(value) && value >= 0;
const isCount = (value: unknown) => Number.isInteger(value) && Number(value) >= 1;

/** The prices of this machine for a number of devices, as measured with as many devices or with the nearest number. */
export function calibratedPrices(options: Calibration, numDevices: number): Prices {
  need("object", options, "options", "calibratedPrices");
  need("number", numDevices, "numDevices", "calibratedPrices");
  const { measured, numCores } = options;
  need("list", measured, "what was measured", "calibratedPrices");
  for (const one of measured) {
    need("object", one, "each measurement", "calibratedPrices");
    need("list", one.products, "the products of a measurement", "calibratedPrices");
    need("list", one.collectives, "the collectives of a measurement", "calibratedPrices");
  }
  const nearest = <T extends DeviceCalibration>(list: readonly T[]) =>
    [...list].sort((a, b) => distance(a.numDevices, numDevices) - distance(b.numDevices, numDevices))[0];
  const computing = nearest(measured.filter(({ products }) => products.length > 0));
  const talking = nearest(measured.filter(({ collectives }) => collectives.length > 0));
  if (!computing)
    throw new ConfigError("the calibration holds no products: run shardwise plan --calibrate again");
  return measuredPrices(computing, talking, (nearest(measured) ?? computing).call, numCores);
}

/**
 * The prices of single steps and collectives, scaled so that they add up to the measured times of whole training steps:
 * there caches are colder, devices wait for the slowest one at every collective, and a call with a whole state takes
 * longer than a small one.
 */
export function measuredPrices(
  computing: DeviceCalibration,
  talking: DeviceCalibration | undefined,
  call: number,
  numCores: number,
): Prices {
  const product = productPrices(computing.products);
  const kernel = kernelPrices(computing.kernels);
  const copy = fitTimes(computing.copies.map(({ bytes, seconds }) => ({ features: [1, bytes], seconds })));
  const collective = collectivePrices(talking?.collectives ?? []);
  const { probes } = computing;
  const whole = fitTimes(
    probes.map(({ computing: computed, communication, seconds }) => ({
      features: [computed, communication, 1],
      seconds,
    })),
  );
  const computes = probes.length > 0 ? whole([1, 0, 0]) : 1;
  // Steps of small models may not show the time of sending, but it is never less than measured alone. If devices share
  // cores, a waiting one leaves its core to another, so that no time is lost.
  const share = talking !== undefined && talking.numDevices > numCores;
  const sends = share ? 1 : Math.max(1, whole([0, 1, 0]));
  const price: Prices["step"] = (step, info) => {
    if (step.op === "gemm") return product(step);
    if (step.op === "copy") return copy([1, step.bytes]);
    return step.op === "address" || step.op === "axisIndex" ? 0 : kernel(info);
  };
  return {
    peakFlops: Math.max(...computing.products.map((sample) => productFlops(sample) / sample.seconds)),
    call: call + whole([0, 0, 1]),
    numCores,
    overlaps: false,
    step: (step, info) => computes * price(step, info),
    collective: (spec) => sends * collective(spec),
  };
}

const distance = (a: number, b: number) => Math.abs(Math.log2(a / b));

const productFlops = ({ m, n, k, batch }: ProductSample) => 2 * m * n * k * batch;

type ProductShape = Omit<ProductSample, "seconds">;

const productFeatures = ({ m, n, k, batch }: ProductShape) =>
  [m * n * k, m * k, k * n, m * n, 1].map((feature) => feature * batch);

/** Rows whose distance is a multiple of this many elements evict each other from the cache when columns are read. */
const slowStride = 256;

/**
 * The distance between two products of the same form: the log2 ratios of their sizes, with less weight on the number of
 * rows that a layer works on, which hardly affects its speed, plus a term if only one has slow strides.
 */
function shapeDistance(a: ProductShape, b: ProductShape): number {
  const [rows, width] = a.transposeA ? (["k", "m"] as const) : (["m", "k"] as const);
  const strides = ([width, "n"] as const).filter(
    (size) => (a[size] % slowStride === 0) !== (b[size] % slowStride === 0),
  );
  return Math.hypot(
    distance(a[rows], b[rows]) / 2,
    distance(a[width], b[width]),
    distance(a.n, b.n),
    distance(a.batch, b.batch) / 4,
    strides.length / 2,
  );
}

/** The distance over which measurements have weight, and the weight of the guess relative to them. */
const [reach, guessWeight] = [0.4, 0.02];

/** Products: a linear model of the operand sizes, corrected by measurements of similar products. */
function productPrices(measured: readonly ProductSample[]): (step: GemmStep) => number {
  const formOf = ({ transposeA, transposeB }: Pick<GemmStep, "transposeA" | "transposeB">) =>
    `${transposeA} ${transposeB}`;
  const fits = new Map<string, (shape: ProductShape) => number>();
  return ({ m, n, k, transposeA, transposeB, batch }) => {
    const count = batch.reduce((product, one) => product * one.count, 1);
    const shape: ProductShape = { m, n, k, transposeA, transposeB, batch: count };
    const form = formOf(shape);
    const own = measured.filter((sample) => formOf(sample) === form);
    const price = fits.get(form) ?? nearbyPrice(own.length > 0 ? own : measured);
    fits.set(form, price);
    return price(shape);
  };
}

/** A price interpolated from similar products; averages several of them, because each measurement has an error. */
function nearbyPrice(samples: readonly ProductSample[]): (shape: ProductShape) => number {
  const guess = fitTimes(
    samples.map((sample) => ({ features: productFeatures(sample), seconds: sample.seconds })),
  );
  const known = samples.map((sample) => ({
    sample,
    ratio: Math.log(sample.seconds / guess(productFeatures(sample))),
  }));
  return (shape) => {
    let [sum, weights] = [0, guessWeight];
    for (const { sample, ratio } of known) {
      const weight = Math.exp(-((shapeDistance(shape, sample) / reach) ** 2) / 2);
      sum += weight * ratio;
      weights += weight;
    }
    return guess(productFeatures(shape)) * Math.exp(sum / weights);
  };
}

/** Ops that take longer per element than reading it. */
const expensiveOps: ReadonlySet<string> = new Set(
  Object.entries(opFacts).flatMap(([op, facts]) =>
    "price" in facts && (facts.price === "long" || facts.price === "heavy") ? [op] : [],
  ),
);

/** The operations of a kernel, cheap and expensive ones counted separately. */
function kernelFeatures({ flops, bytes, ops }: Omit<KernelSample, "seconds">): number[] {
  const names = ops.split(" ");
  const share = names.filter((name) => expensiveOps.has(name)).length / Math.max(1, names.length);
  return [1, bytes, flops * (1 - share), flops * share];
}

/** Kernels: interpolated from kernels with the same ops; for others a linear model of bytes and operations. */
function kernelPrices(measured: readonly KernelSample[]): (info: StepInfo) => number {
  const price = fitTimes(
    measured.map((sample) => ({ features: kernelFeatures(sample), seconds: sample.seconds })),
  );
  const known = new Map<string, KernelSample[]>();
  for (const sample of measured) known.set(sample.ops, [...(known.get(sample.ops) ?? []), sample]);
  return ({ ops, flops, bytes }) => {
    const name = ops.join(" ");
    const guess = price(kernelFeatures({ ops: name, flops, bytes }));
    const same = known.get(name) ?? [];
    // The ratio of measurement to guess, interpolated between the two nearest sizes.
    const ratios = same
      .map((sample) => ({
        size: Math.log2(sample.bytes + 64),
        ratio: sample.seconds / price(kernelFeatures(sample)),
      }))
      .sort((a, b) => a.size - b.size);
    return guess * interpolate(ratios, Math.log2(bytes + 64));
  };
}

function interpolate(
  points: readonly { readonly size: number; readonly ratio: number }[],
  size: number,
): number {
  const above = points.findIndex((point) => point.size >= size);
  const [low, high] = above < 0 ? [points.at(-1), undefined] : [points[above - 1], points[above]];
  if (!low || !high) return (low ?? high)?.ratio ?? 1;
  const share = (size - low.size) / (high.size - low.size || 1);
  return low.ratio ** (1 - share) * high.ratio ** share;
}

/** Collectives: a latency and a time per byte, by kind and number of devices. */
function collectivePrices(measured: readonly CollectiveSample[]): Prices["collective"] {
  const fits = new Map<string, TimeModel>();
  return ({ kind, size, elements, dtype }) => {
    if (size < 2) return 0;
    const ofKind = measured.filter((sample) => sample.kind === kind);
    const usable = ofKind.length > 0 ? ofKind : measured;
    const nearest = usable.reduce(
      (best, sample) => (distance(sample.size, size) < distance(best, size) ? sample.size : best),
      usable[0]?.size ?? size,
    );
    const key = `${kind} ${nearest}`;
    const price =
      fits.get(key) ??
      fitTimes(
        usable
          .filter((sample) => sample.size === nearest)
          .map(({ bytes, seconds }) => ({ features: [1, bytes], seconds })),
      );
    fits.set(key, price);
    return price([1, elements * byteSize(dtype)]);
  };
}
