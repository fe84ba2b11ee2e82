import type { DType } from "../../ir/dtype.js";
import * as np from "../../numpy/index.js";
import type { Tensor } from "../../trace/tensor.js";
import type { DecoderConfig } from "./decoder.js";

/** What determines the rotary frequencies of a layer. */
export type RopeConfig = Pick<
  DecoderConfig,
  "rotaryShare" | "ropeScaling" | "ropeFactor" | "ropeLength" | "ropeLow" | "ropeHigh"
>;

/** The angle per position of each pair of features. */
export function rotaryFrequencies(headSize: number, base: number, rope: RopeConfig): number[] {
  const size = Math.floor(headSize * rope.rotaryShare);
  const plain = Array.from({ length: size / 2 }, (_, i) => base ** ((-2 * i) / size));
  const { ropeScaling, ropeFactor: factor, ropeLength: length, ropeLow: low, ropeHigh: high } = rope;
  if (ropeScaling === "none") return plain;
  if (ropeScaling === "linear") return plain.map((frequency) => frequency / factor);
  if (ropeScaling === "llama3") {
    // Long waves are stretched by the factor, short ones stay, those between are interpolated.
    return plain.map((frequency) => {
      const rotations = (length * frequency) / (2 * Math.PI);
      const share = Math.min(1, Math.max(0, (rotations - low) / (high - low)));
      return frequency * (share + (1 - share) / factor);
    });
  }
  // YaRN: the same with a ramp over the features instead of the wavelengths.
  const featureOf = (rotations: number) =>
    (size * Math.log(length / (rotations * 2 * Math.PI))) / (2 * Math.log(base));
  const first = Math.max(Math.floor(featureOf(high)), 0);
  const last = Math.min(Math.ceil(featureOf(low)), size - 1);
  return plain.map((frequency, i) => {
    const ramp = Math.min(1, Math.max(0, (i - first) / Math.max(last - first, 0.001)));
    return frequency * (1 - ramp + ramp / factor);
  });
}

/** Cosines and sines of the angles of pairs of features: [batch, length, 1, pairs], or without the batch. */
export interface Rotation {
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/**
 * The rotation of every position by angles that grow with it.
 *
 * @param positions int32 [batch, length] or [length]
 * @param frequencies float32, one for each pair of features
 * @param scale factor of the rotated features
 */
export function rotationOf(positions: Tensor, frequencies: Tensor, scale: number, dtype: DType): Rotation {
  const angles = np.expandDims(positions.astype("float32"), -1).mul(frequencies);
  const perHead = np.expandDims(angles, -2);
  const scaled = (y: Tensor) => (scale === 1 ? y : y.mul(scale)).astype(dtype);
  return { cos: scaled(np.cos(perHead)), sin: scaled(np.sin(perHead)) };
}

/**
 * Rotates pairs of features: feature `i` of the first half is paired with feature `i` of the second. Features beyond
 * twice the number of pairs stay as they are.
 *
 * @param x [batch, length, heads, headSize]
 */
export function rotated(x: Tensor, { cos, sin }: Rotation): Tensor {
  const half = cos.shape.at(-1) ?? 0;
  const size = x.shape.at(-1) ?? 0;
  const [low, high] = [x.get("...", np.s(0, half)), x.get("...", np.s(half, 2 * half))];
  const pairs = [low.mul(cos).sub(high.mul(sin)), high.mul(cos).add(low.mul(sin))];
  const rest = 2 * half < size ? [x.get("...", np.s(2 * half, size))] : [];
  return np.concatenate([...pairs, ...rest], -1);
}
