/** Initial values of parameters, with the names and the algorithms of `jax.nn.initializers`. */
import { need, needIfGiven } from "../ir/arguments.js";
import { type DType, isFloat, roundTo } from "../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../ir/errors.js";
import { at, normalizeDim, normalizeDims, range, type Shape, sizeOf } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import * as floats from "./floats.js";
import { atOnce, checkKey } from "./keys.js";
import { orthogonal as orthogonalMatrix } from "./orthogonal.js";

/** Makes the initial value of a parameter; float32 by default. */
export type Initializer = (key: Tensor, shape: Shape, dtype?: DType) => Tensor;

/** An initialiser that throws unless it is given a shape. */
function checkedShape(make: Initializer): Initializer {
  return (key, shape, dtype) => {
    need("integers", shape, "the shape", "initializers");
    return make(key, shape, dtype);
  };
}

/**
 * All zeros.
 *
 * @example
 * ```ts
 * nn.initializers.zeros(random.key(0), [2]); // [0, 0]
 * ```
 */
export const zeros: Initializer = constant(0);

/**
 * All ones.
 *
 * @example
 * ```ts
 * nn.initializers.ones(random.key(0), [2]); // [1, 1]
 * ```
 */
export const ones: Initializer = constant(1);

/**
 * All the same number.
 *
 * @example
 * ```ts
 * nn.initializers.constant(0.5)(random.key(0), [2]); // [0.5, 0.5]
 * ```
 */
export function constant(value: number): Initializer {
  return checkedShape((_key, shape, dtype = "float32") => atOnce([], () => ops.full(shape, value, dtype)));
}

/**
 * Normally distributed with the given standard deviation.
 *
 * @example
 * ```ts
 * nn.initializers.normal(0.1)(random.key(0), [2, 2]).shape; // [2, 2]
 * ```
 */
export function normal(stddev = 1e-2): Initializer {
  needIfGiven("number", stddev, "stddev", "initializers.normal");
  return checkedShape((key, shape, dtype = "float32") =>
    scaled(key, stddev, (k) => floats.normal(k, shape, { dtype })),
  );
}

/**
 * Normally distributed, cut off at `lower` and `upper` standard deviations. The result's standard deviation is
 * smaller than `stddev`, which is not corrected.
 *
 * @example
 * ```ts
 * nn.initializers.truncatedNormal(0.1)(random.key(0), [2, 2]).shape; // [2, 2]
 * ```
 */
export function truncatedNormal(stddev = 1e-2, lower = -2, upper = 2): Initializer {
  needIfGiven("number", stddev, "stddev", "initializers.truncatedNormal");
  needIfGiven("number", lower, "lower", "initializers.truncatedNormal");
  needIfGiven("number", upper, "upper", "initializers.truncatedNormal");
  return checkedShape((key, shape, dtype = "float32") =>
    scaled(key, stddev, (k) => floats.truncatedNormal(k, lower, upper, shape, { dtype })),
  );
}

/**
 * Evenly spread over 0 … `scale`.
 *
 * @example
 * ```ts
 * nn.initializers.uniform(0.1)(random.key(0), [2, 2]).shape; // [2, 2]
 * ```
 */
export function uniform(scale = 1e-2): Initializer {
  needIfGiven("number", scale, "scale", "initializers.uniform");
  return checkedShape((key, shape, dtype = "float32") =>
    scaled(key, scale, (k) => floats.uniform(k, shape, { dtype })),
  );
}

function scaled(key: Tensor, factor: number, draw: (key: Tensor) => Tensor): Tensor {
  checkKey(key, "initializers");
  return atOnce([key], (k) => ops.mul(draw(k), factor));
}

/** What the variance of a parameter is divided by: the number of inputs, of outputs, or a mean of both. */
export type FanMode = "fanIn" | "fanOut" | "fanAvg" | "fanGeoAvg";

/** The distributions of {@link varianceScaling}. */
export type Distribution = "truncatedNormal" | "normal" | "uniform";

/** Which dims of a parameter are its inputs, its outputs, and neither; all others are a receptive field. */
export interface FanDims {
  /** The last but one by default. */
  readonly inAxis?: number | readonly number[];
  /** The last one by default. */
  readonly outAxis?: number | readonly number[];
  /** None by default. */
  readonly batchAxis?: number | readonly number[];
}

/** The standard deviation of a normal distribution that is cut off at ±2. */
const truncatedDeviation = 0.87962566103423978;

/**
 * Mean 0 and a variance of `scale` divided by the number of inputs or outputs.
 *
 * @example
 * ```ts
 * nn.initializers.varianceScaling(2, "fanIn", "normal")(random.key(0), [4, 3]).shape; // [4, 3]
 * ```
 */
export function varianceScaling(
  scale: number,
  mode: FanMode,
  distribution: Distribution,
  dims: FanDims = {},
): Initializer {
  need("number", scale, "scale", "initializers.varianceScaling");
  need("string", mode, "mode", "initializers.varianceScaling");
  need("string", distribution, "distribution", "initializers.varianceScaling");
  needIfGiven("object", dims, "dims", "initializers.varianceScaling");
  return checkedShape((key, shape, dtype = "float32") => {
    if (!isFloat(dtype)) throw new DTypeError(`[varianceScaling] initialises floats, not ${dtype}`);
    // Every step is rounded as if it were computed in the type itself.
    const round = (value: number) => roundTo(dtype, value);
    const variance = round(scale / fanOf(mode, shape, dims));
    switch (distribution) {
      case "truncatedNormal": {
        const stddev = round(round(Math.sqrt(variance)) / round(truncatedDeviation));
        return scaled(key, stddev, (k) => floats.truncatedNormal(k, -2, 2, shape, { dtype }));
      }
      case "normal":
        return scaled(key, Math.sqrt(variance), (k) => floats.normal(k, shape, { dtype }));
      case "uniform":
        return scaled(key, Math.sqrt(round(3 * variance)), (k) =>
          floats.uniform(k, shape, { dtype, minval: -1 }),
        );
      default:
        throw new ValueError(`[varianceScaling] unknown distribution ${distribution}`);
    }
  });
}

function fanOf(mode: FanMode, shape: Shape, dims: FanDims): number {
  if (shape.length < 2 && dims.inAxis === undefined) {
    throw new ShapeError(
      `[varianceScaling] a parameter of shape [${shape}] has no inputs and outputs: it needs two dims, or inAxis`,
    );
  }
  const sizeAlong = (axes: number | readonly number[]) =>
    sizeOf(normalizeDims(axes, shape.length, "varianceScaling").map((axis) => at(shape, axis)));
  const numIn = sizeAlong(dims.inAxis ?? -2);
  const numOut = sizeAlong(dims.outAxis ?? -1);
  const field = sizeOf(shape) / numIn / numOut / sizeAlong(dims.batchAxis ?? []);
  const [fanIn, fanOut] = [numIn * field, numOut * field];
  switch (mode) {
    case "fanIn":
      return fanIn;
    case "fanOut":
      return fanOut;
    case "fanAvg":
      return (fanIn + fanOut) / 2;
    case "fanGeoAvg":
      return Math.sqrt(fanIn * fanOut);
    default:
      throw new ValueError(`[varianceScaling] unknown mode ${mode}`);
  }
}

const scaling =
  (scale: number, mode: FanMode, distribution: Distribution) =>
  (dims: FanDims = {}): Initializer =>
    varianceScaling(scale, mode, distribution, dims);

/**
 * Truncated normal with variance 1 / inputs: the initialiser of dense layers.
 *
 * @example
 * ```ts
 * nn.initializers.lecunNormal()(random.key(0), [1, 3]); // [[1.655, 1.949, -0.4691]]
 * ```
 */
export const lecunNormal = scaling(1, "fanIn", "truncatedNormal");
/**
 * Uniform with variance 1 / inputs.
 *
 * @example
 * ```ts
 * nn.initializers.lecunUniform()(random.key(0), [1, 3]); // [[1.551, 1.658, -0.581]]
 * ```
 */
export const lecunUniform = scaling(1, "fanIn", "uniform");
/**
 * Truncated normal with variance 2 / inputs, for layers before a relu.
 *
 * @example
 * ```ts
 * nn.initializers.heNormal()(random.key(0), [1, 3]); // [[2.341, 2.757, -0.6635]]
 * ```
 */
export const heNormal = scaling(2, "fanIn", "truncatedNormal");
/**
 * Uniform with variance 2 / inputs, for layers before a relu.
 *
 * @example
 * ```ts
 * nn.initializers.heUniform()(random.key(0), [1, 3]); // [[2.193, 2.345, -0.8216]]
 * ```
 */
export const heUniform = scaling(2, "fanIn", "uniform");
/**
 * Truncated normal with variance 2 / (inputs + outputs).
 *
 * @example
 * ```ts
 * nn.initializers.glorotNormal()(random.key(0), [1, 3]); // [[1.17, 1.378, -0.3317]]
 * ```
 */
export const glorotNormal = scaling(1, "fanAvg", "truncatedNormal");
/**
 * Uniform with variance 2 / (inputs + outputs).
 *
 * @example
 * ```ts
 * nn.initializers.glorotUniform()(random.key(0), [1, 3]); // [[1.097, 1.172, -0.4108]]
 * ```
 */
export const glorotUniform = scaling(1, "fanAvg", "uniform");
/**
 * Another name of {@link glorotNormal}.
 *
 * @example
 * ```ts
 * nn.initializers.xavierNormal()(random.key(0), [1, 3]); // [[1.17, 1.378, -0.3317]]
 * ```
 */
export const xavierNormal = glorotNormal;
/**
 * Another name of {@link glorotUniform}.
 *
 * @example
 * ```ts
 * nn.initializers.xavierUniform()(random.key(0), [1, 3]); // [[1.097, 1.172, -0.4108]]
 * ```
 */
export const xavierUniform = glorotUniform;
/**
 * Another name of {@link heNormal}.
 *
 * @example
 * ```ts
 * nn.initializers.kaimingNormal()(random.key(0), [1, 3]); // [[2.341, 2.757, -0.6635]]
 * ```
 */
export const kaimingNormal = heNormal;
/**
 * Another name of {@link heUniform}.
 *
 * @example
 * ```ts
 * nn.initializers.kaimingUniform()(random.key(0), [1, 3]); // [[2.193, 2.345, -0.8216]]
 * ```
 */
export const kaimingUniform = heUniform;

/**
 * Uniformly distributed orthogonal matrices: all dims but `columnAxis` together are the rows.
 *
 * @param columnAxis the dim of the columns, the last one by default
 *
 * @example
 * ```ts
 * const w = nn.initializers.orthogonal()(random.key(0), [2, 2]);
 * np.matmul(w, np.transpose(w)); // [[1, 0], [0, 1]]
 * ```
 */
export function orthogonal(scale = 1, columnAxis = -1): Initializer {
  needIfGiven("number", scale, "scale", "initializers.orthogonal");
  needIfGiven("number", columnAxis, "columnAxis", "initializers.orthogonal");
  return checkedShape((key, shape, dtype = "float32") => {
    if (shape.length < 2) {
      throw new ShapeError(`[orthogonal] needs at least two dims, but the shape is [${shape}]`);
    }
    const dim = normalizeDim(columnAxis, shape.length, "orthogonal");
    if (sizeOf(shape) === 0) return constant(0)(key, shape, dtype);
    const others = shape.filter((_, d) => d !== dim);
    const columns = at(shape, dim);
    return scaled(key, scale, (k) => {
      const matrix = orthogonalMatrix(k, sizeOf(others), { m: columns, dtype });
      return ops.moveDim(ops.reshape(matrix, [...others, columns]), shape.length - 1, dim);
    });
  });
}

/**
 * An orthogonal matrix in the middle of a convolution kernel of 1 to 3 spatial dims, zeros around it.
 *
 * @example
 * ```ts
 * nn.initializers.deltaOrthogonal()(random.key(0), [3, 2, 2]).shape; // [3, 2, 2]
 * ```
 */
export function deltaOrthogonal(scale = 1, columnAxis = -1): Initializer {
  needIfGiven("number", scale, "scale", "initializers.deltaOrthogonal");
  needIfGiven("number", columnAxis, "columnAxis", "initializers.deltaOrthogonal");
  return checkedShape((key, shape, dtype = "float32") => {
    const [inputs, outputs] = [shape.at(-2) ?? 0, shape.at(-1) ?? 0];
    if (shape.length < 3 || shape.length > 5 || inputs > outputs) {
      throw new ShapeError(
        `[deltaOrthogonal] needs 3 to 5 dims and no more inputs than outputs (the last two), but the shape is [${shape}]`,
      );
    }
    const centre = range(shape.length).map((d) =>
      d < shape.length - 2 ? Math.floor((at(shape, d) - 1) / 2) : 0,
    );
    return atOnce([key], (k) => {
      const matrix = orthogonal(scale, columnAxis)(k, [inputs, outputs], dtype);
      const block = ops.reshape(
        matrix,
        shape.map((n, d) => (d < shape.length - 2 ? 1 : n)),
      );
      const high = shape.map((n, d) => n - at(centre, d) - at(block.shape, d));
      return ops.pad(block, Tensor.scalar(0, dtype), { low: centre, high, interior: shape.map(() => 0) });
    });
  });
}
