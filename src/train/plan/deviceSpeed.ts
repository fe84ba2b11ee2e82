/** How long a device with a compiler that fuses takes for products, attention and kernels, from a few figures. */
import type { DType } from "../../ir/dtype.js";

/** A device as its data sheet describes it, with the shares of these figures that programs reach. */
export interface DeviceSpeed {
  /** Floating-point operations a second in products of 16-bit factors. */
  readonly flops: number;
  /** Floating-point operations a second in products of float32 factors; a fifteenth of `flops` by default. */
  readonly float32?: number;
  /** The share of them that large products reach, under the power limit of the device. */
  readonly efficiency: number;
  /** The share of them that attention in one kernel reaches; `usualAttention` by default. */
  readonly attention?: number;
  /**
   * Floating-point operations a second in products of float8 factors; twice `flops` by default. If given, products with
   * weights are priced as if their factors were cast to float8 first, even where the program does not do so, except those
   * with the vocabulary as one of their sizes.
   */
  readonly float8?: number;
  /** Bytes a second between the processor and its memory, as kernels reach them. */
  readonly memoryBandwidth: number;
  /** Seconds that it takes to start a kernel. */
  readonly launch: number;
}

/** The usual share of a GPU's peak that attention reaches in one kernel, forward and backward together. */
export const usualAttention = 0.35;

/** How many times faster 16-bit products are than float32 ones; 989 to 67 TFLOP/s on an H100. */
const float32Factor = 15;

/** How many times faster float8 products are than 16-bit ones. */
const float8Factor = 2;

/**
 * The share of `efficiency` that float8 products reach: on the same devices, published runs gain 28 to 51 % from them,
 * and with the whole of it they would gain 36 to 68 %.
 */
const float8Share = 0.9;

/** Kernels of products compute tiles of this many rows and columns, the last of which may be mostly empty. */
const tile = 128;

/** The bytes of casting an element to float8: reading it for the largest value, reading it again, and writing it. */
const castBytes = 5;

/** A matrix product. */
export interface ProductSize {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** How many products of this size. */
  readonly batch: number;
  readonly dtype: DType;
  /** Whether it is one of activations and weights of a block, not of two activations, nor the output layer. */
  readonly isWeight: boolean;
  /** Whether the program itself rounds factors to float8. */
  readonly isRounded: boolean;
  /** The bytes of factors and result. */
  readonly bytes: number;
  /** The elements of factors that have not been cast to float8 for another product. */
  readonly uncast: number;
}

/** The seconds of a product: of its operations in whole tiles, or of its bytes if they take longer. */
export function productSeconds(device: DeviceSpeed, size: ProductSize): number {
  const { m, n, k, batch, dtype, isWeight, isRounded, bytes, uncast } = size;
  const { flops, float32 = flops / float32Factor, efficiency, memoryBandwidth, launch } = device;
  const { float8 = float8Factor * flops } = device;
  const isNarrow = dtype === "bfloat16" || dtype === "float16";
  const isCast = device.float8 !== undefined && isNarrow && isWeight && !isRounded;
  const rate = efficiency * (isCast || isRounded ? float8Share * float8 : isNarrow ? flops : float32);
  const cast = isCast ? (castBytes * uncast) / memoryBandwidth : 0;
  const whole = (rows: number) => Math.ceil(rows / tile) * tile;
  // A product with a vector is no faster than reading its matrix, whichever side is short.
  const operations = 2 * batch * (Math.min(m, n) < tile ? m * n : whole(m) * whole(n)) * k;
  return launch + cast + Math.max(operations / rate, bytes / memoryBandwidth);
}

/** The seconds of attention in one kernel, which reads its operands and never stores scores. */
export function attentionSeconds(device: DeviceSpeed, flops: number, bytes: number): number {
  const { attention = usualAttention, memoryBandwidth, launch } = device;
  return launch + Math.max(flops / (device.flops * attention), bytes / memoryBandwidth);
}

/** The seconds of a kernel that reads and writes `bytes` bytes. */
export function kernelSeconds({ memoryBandwidth, launch }: DeviceSpeed, bytes: number): number {
  return launch + bytes / memoryBandwidth;
}
