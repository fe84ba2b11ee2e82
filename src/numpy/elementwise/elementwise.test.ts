import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { b, c, f, g, h, i, j, n, p, type Row, testRows, u, v, w } from "../../../test/support/jaxRows.js";
import { DTypeError, grad, hessian, ShapeError, type Tensor, ValueError } from "../../index.js";
import * as np from "../index.js";

const unary: readonly Row[] = [
  [
    "np.exp(f)",
    () => np.exp(f),
    "float32",
    [2, 3],
    [0.22313017, 1.2840254, 7.389056, 20.085537, 0.47236654, 1.6487212],
  ],
  [
    "np.expm1(f)",
    () => np.expm1(f),
    "float32",
    [2, 3],
    [-0.77686983, 0.2840254, 6.389056, 19.085537, -0.5276334, 0.6487213],
  ],
  [
    "np.sin(f)",
    () => np.sin(f),
    "float32",
    [2, 3],
    [-0.997495, 0.24740396, 0.9092974, 0.14112, -0.6816388, 0.47942555],
  ],
  [
    "np.cos(f)",
    () => np.cos(f),
    "float32",
    [2, 3],
    [0.0707372, 0.9689124, -0.41614684, -0.9899925, 0.73168886, 0.87758255],
  ],
  [
    "np.tan(f)",
    () => np.tan(f),
    "float32",
    [2, 3],
    [-14.10142, 0.25534192, -2.1850398, -0.14254655, -0.93159646, 0.5463025],
  ],
  [
    "np.tanh(f)",
    () => np.tanh(f),
    "float32",
    [2, 3],
    [-0.9051482, 0.24491866, 0.9640276, 0.9950547, -0.635149, 0.46211717],
  ],
  [
    "np.sinh(f)",
    () => np.sinh(f),
    "float32",
    [2, 3],
    [-2.1292794, 0.2526123, 3.6268604, 10.017875, -0.8223167, 0.52109534],
  ],
  [
    "np.cosh(f)",
    () => np.cosh(f),
    "float32",
    [2, 3],
    [2.3524096, 1.0314131, 3.7621958, 10.067662, 1.2946833, 1.127626],
  ],
  [
    "np.asinh(f)",
    () => np.asinh(f),
    "float32",
    [2, 3],
    [-1.1947632, 0.24746647, 1.4436355, 1.8184464, -Math.LN2, 0.48121184],
  ],
  [
    "np.atan(f)",
    () => np.atan(f),
    "float32",
    [2, 3],
    [-0.9827938, 0.24497868, 1.1071489, 1.2490458, -0.64350116, 0.46364754],
  ],
  [
    "np.cbrt(f)",
    () => np.cbrt(f),
    "float32",
    [2, 3],
    [-1.1447142, 0.62996054, 1.2599211, 1.4422495, -0.9085603, 0.7937005],
  ],
  ["np.square(f)", () => np.square(f), "float32", [2, 3], [2.25, 0.0625, 4, 9, 0.5625, 0.25]],
  ["np.floor(f)", () => np.floor(f), "float32", [2, 3], [-2, 0, 2, 3, -1, 0]],
  ["np.ceil(f)", () => np.ceil(f), "float32", [2, 3], [-1, 1, 2, 3, -0, 1]],
  ["np.trunc(f)", () => np.trunc(f), "float32", [2, 3], [-1, 0, 2, 3, -0, 0]],
  ["np.rint(f)", () => np.rint(f), "float32", [2, 3], [-2, 0, 2, 3, -1, 0]],
  [
    "np.reciprocal(f)",
    () => np.reciprocal(f),
    "float32",
    [2, 3],
    [-0.6666667, 4, 0.5, 0.33333334, -1.3333334, 2],
  ],
  ["np.abs(f)", () => np.abs(f), "float32", [2, 3], [1.5, 0.25, 2, 3, 0.75, 0.5]],
  ["np.sign(f)", () => np.sign(f), "float32", [2, 3], [-1, 1, 1, 1, -1, 1]],
  ["np.negative(f)", () => np.negative(f), "float32", [2, 3], [1.5, -0.25, -2, -3, 0.75, -0.5]],
  [
    "np.sinc(f)",
    () => np.sinc(f),
    "float32",
    [2, 3],
    [-0.21220659, 0.9003163, 2.7827534e-8, -2.5305382e-9, 0.30010542, 0.63661975],
  ],
  ["np.exp2(f)", () => np.exp2(f), "float32", [2, 3], [0.35355338, 1.1892071, 4, 8, 0.59460354, Math.SQRT2]],
  [
    "np.deg2rad(f)",
    () => np.deg2rad(f),
    "float32",
    [2, 3],
    [-0.02617994, 0.004363323, 0.034906585, 0.05235988, -0.01308997, 0.008726646],
  ],
  [
    "np.rad2deg(f)",
    () => np.rad2deg(f),
    "float32",
    [2, 3],
    [-85.94367, 14.323945, 114.59156, 171.88734, -42.971836, 28.64789],
  ],
  ["np.fabs(f)", () => np.fabs(f), "float32", [2, 3], [1.5, 0.25, 2, 3, 0.75, 0.5]],
  ["np.positive(f)", () => np.positive(f), "float32", [2, 3], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  [
    "np.log(p)",
    () => np.log(p),
    "float32",
    [2, 3],
    [-Math.LN10, 0, 0.91629076, -0.2876821, Math.LN10, 1.0986123],
  ],
  [
    "np.log2(p)",
    () => np.log2(p),
    "float32",
    [2, 3],
    [-3.321928, 0, 1.3219281, -0.4150375, 3.321928, 1.5849625],
  ],
  ["np.log10(p)", () => np.log10(p), "float32", [2, 3], [-1, 0, 0.39794004, -0.12493875, 1, 0.47712126]],
  [
    "np.log1p(p)",
    () => np.log1p(p),
    "float32",
    [2, 3],
    [0.09531018, Math.LN2, 1.252763, 0.5596158, 2.3978953, 1.3862944],
  ],
  [
    "np.sqrt(p)",
    () => np.sqrt(p),
    "float32",
    [2, 3],
    [0.31622776, 1, 1.5811388, 0.8660254, 3.1622777, 1.7320508],
  ],
  [
    "np.acosh(p)",
    () => np.acosh(p),
    "float32",
    [2, 3],
    [Number.NaN, 0, 1.5667994, Number.NaN, 2.993223, 1.7627472],
  ],
  ["np.asin(u)", () => np.asin(u), "float32", [5], [-1.1197695, -0.25268024, 0, 0.5235988, 1.4292569]],
  ["np.acos(u)", () => np.acos(u), "float32", [5], [2.6905658, 1.8234766, 1.5707964, 1.0471976, 0.14153941]],
  ["np.atanh(u)", () => np.atanh(u), "float32", [5], [-1.4722193, -0.25541282, 0, 0.54930615, 2.646653]],
  [
    "np.exp(i)",
    () => np.exp(i),
    "float32",
    [2, 3],
    [148.41316, 0.049787067, 1096.6332, 0.00033546262, 7.389056, 1],
  ],
  [
    "np.sqrt(i)",
    () => np.sqrt(i),
    "float32",
    [2, 3],
    [2.236068, Number.NaN, 2.6457512, Number.NaN, Math.SQRT2, 0],
  ],
  ["np.floor(i)", () => np.floor(i), "int32", [2, 3], [5, -3, 7, -8, 2, 0]],
  ["np.abs(i)", () => np.abs(i), "int32", [2, 3], [5, 3, 7, 8, 2, 0]],
  ["np.sign(i)", () => np.sign(i), "int32", [2, 3], [1, -1, 1, -1, 1, 0]],
  ["np.square(i)", () => np.square(i), "int32", [2, 3], [25, 9, 49, 64, 4, 0]],
  [
    "np.reciprocal(i)",
    () => np.reciprocal(i),
    "float32",
    [2, 3],
    [0.2, -0.33333334, 0.14285715, -0.125, 0.5, Infinity],
  ],
  ["np.rint(i)", () => np.rint(i), "float32", [2, 3], [5, -3, 7, -8, 2, 0]],
  [
    "np.sinh(i)",
    () => np.sinh(i),
    "float32",
    [2, 3],
    [74.20321, -10.017875, 548.31616, -1490.4789, 3.6268604, 0],
  ],
  ["np.isnan(n)", () => np.isnan(n), "bool", [5], [1, 0, 0, 0, 0]],
  ["np.isinf(n)", () => np.isinf(n), "bool", [5], [0, 1, 1, 0, 0]],
  ["np.isfinite(n)", () => np.isfinite(n), "bool", [5], [0, 0, 0, 1, 1]],
  ["np.isposinf(n)", () => np.isposinf(n), "bool", [5], [0, 1, 0, 0, 0]],
  ["np.isneginf(n)", () => np.isneginf(n), "bool", [5], [0, 0, 1, 0, 0]],
  ["np.signbit(n)", () => np.signbit(n), "bool", [5], [0, 0, 1, 1, 0]],
  ["np.abs(n)", () => np.abs(n), "float32", [5], [Number.NaN, Infinity, Infinity, 0, 1]],
  ["np.sign(n)", () => np.sign(n), "float32", [5], [Number.NaN, 1, -1, -0, 1]],
  ["np.floor(n)", () => np.floor(n), "float32", [5], [Number.NaN, Infinity, -Infinity, -0, 1]],
  ["np.isnan(i)", () => np.isnan(i), "bool", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.isinf(i)", () => np.isinf(i), "bool", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.isfinite(i)", () => np.isfinite(i), "bool", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.exp(h)", () => np.exp(h), "bfloat16", [4], [4.46875, 0.10546875, Infinity, 1.0078125]],
  ["np.tan(h)", () => np.tan(h), "bfloat16", [4], [14.125, 1.2421875, 45.25, 0.010009766]],
  ["np.sinh(h)", () => np.sinh(h), "bfloat16", [4], [2.125, -4.6875, Infinity, 0.010009766]],
  ["np.log10(h)", () => np.log10(h), "bfloat16", [4], [0.17578125, Number.NaN, 2.484375, -1.9921875]],
  ["np.sqrt(h)", () => np.sqrt(h), "bfloat16", [4], [1.2265625, Number.NaN, 17.375, 0.100097656]],
  ["np.nanToNum(n)", () => np.nanToNum(n), "float32", [5], [0, 3.4028235e38, -3.4028235e38, -0, 1]],
  [
    "np.nanToNum(n, { nan: 2, posinf: 5, neginf: -5 })",
    () => np.nanToNum(n, { nan: 2, posinf: 5, neginf: -5 }),
    "float32",
    [5],
    [2, 5, -5, -0, 1],
  ],
  [
    "np.nanToNum(n, { nan: NaN })",
    () => np.nanToNum(n, { nan: Number.NaN }),
    "float32",
    [5],
    [Number.NaN, 3.4028235e38, -3.4028235e38, -0, 1],
  ],
  ["np.round(f)", () => np.round(f), "float32", [2, 3], [-2, 0, 2, 3, -1, 0]],
  [
    "np.round(np.multiply(f, 1.37), 1)",
    () => np.round(np.multiply(f, 1.37), 1),
    "float32",
    [2, 3],
    [-2.1000001, 0.3, 2.7, 4.1, -1, 0.7],
  ],
  [
    "np.round(np.multiply(f, 100), -2)",
    () => np.round(np.multiply(f, 100), -2),
    "float32",
    [2, 3],
    [-200, 0, 200, 300, -100, 0],
  ],
  ["np.round(i)", () => np.round(i), "int32", [2, 3], [5, -3, 7, -8, 2, 0]],
  ["np.bitwiseNot(i)", () => np.bitwiseNot(i), "int32", [2, 3], [-6, 2, -8, 7, -3, -1]],
  ["np.bitwiseNot(b)", () => np.bitwiseNot(b), "bool", [2, 3], [0, 1, 0, 1, 1, 0]],
  ["np.bitwiseNot(w)", () => np.bitwiseNot(w), "uint32", [3], [4294967288, 4294967294, 294967295]],
  [
    `np.astype(np.array([1.9, -1.9, 3e9, Number.NaN]), "int32")`,
    () => np.astype(np.array([1.9, -1.9, 3e9, Number.NaN]), "int32"),
    "int32",
    [4],
    [1, -1, 2147483647, 0],
  ],
  [`np.astype(n, "bool")`, () => np.astype(n, "bool"), "bool", [5], [1, 1, 1, 0, 1]],
  [
    `np.astype(i, "uint32")`,
    () => np.astype(i, "uint32"),
    "uint32",
    [2, 3],
    [5, 4294967293, 7, 4294967288, 2, 0],
  ],
  [`np.astype(w, "float32")`, () => np.astype(w, "float32"), "float32", [3], [7, 1, 4e9]],
  [
    "np.sinh(np.array([90, -90, 0.001]))",
    () => np.sinh(np.array([90, -90, 0.001])),
    "float32",
    [3],
    [Infinity, -Infinity, 0.001],
  ],
  [
    "np.asinh(np.array([1e30, -1e30, 1e-6, -3]))",
    () => np.asinh(np.array([1e30, -1e30, 1e-6, -3])),
    "float32",
    [4],
    [69.7707, -69.7707, 1e-6, -1.8184464],
  ],
  [
    "np.acosh(np.array([0.5, 1, 1e30]))",
    () => np.acosh(np.array([0.5, 1, 1e30])),
    "float32",
    [3],
    [Number.NaN, 0, 69.7707],
  ],
  ["np.acos(np.array([-1, 1]))", () => np.acos(np.array([-1, 1])), "float32", [2], [Math.PI, 0]],
];

const binary: readonly Row[] = [
  ["np.add(f, g)", () => np.add(f, g), "float32", [2, 3], [-1, 2.25, 1, 4.5, -2.75, 0.75]],
  ["np.subtract(f, g)", () => np.subtract(f, g), "float32", [2, 3], [-2, -1.75, 3, 1.5, 1.25, 0.25]],
  ["np.multiply(f, g)", () => np.multiply(f, g), "float32", [2, 3], [-0.75, 0.5, -2, 4.5, 1.5, 0.125]],
  ["np.divide(f, g)", () => np.divide(f, g), "float32", [2, 3], [-3, 0.125, -2, 2, 0.375, 2]],
  ["np.floorDivide(f, g)", () => np.floorDivide(f, g), "float32", [2, 3], [-3, 0, -2, 2, -0, 2]],
  ["np.mod(f, g)", () => np.mod(f, g), "float32", [2, 3], [-0, 0.25, 0, 0, -0.75, 0]],
  ["np.fmod(f, g)", () => np.fmod(f, g), "float32", [2, 3], [-0, 0.25, 0, 0, -0.75, 0]],
  ["np.maximum(f, g)", () => np.maximum(f, g), "float32", [2, 3], [0.5, 2, 2, 3, -0.75, 0.5]],
  ["np.minimum(f, g)", () => np.minimum(f, g), "float32", [2, 3], [-1.5, 0.25, -1, 1.5, -2, 0.25]],
  ["np.fmax(f, g)", () => np.fmax(f, g), "float32", [2, 3], [0.5, 2, 2, 3, -0.75, 0.5]],
  ["np.fmin(f, g)", () => np.fmin(f, g), "float32", [2, 3], [-1.5, 0.25, -1, 1.5, -2, 0.25]],
  [
    "np.atan2(f, g)",
    () => np.atan2(f, g),
    "float32",
    [2, 3],
    [-1.2490457, 0.124354996, 2.0344439, 1.1071488, -2.782822, 1.1071488],
  ],
  [
    "np.hypot(f, g)",
    () => np.hypot(f, g),
    "float32",
    [2, 3],
    [1.5811388, 2.0155644, 2.236068, 3.3541021, 2.1360009, 0.559017],
  ],
  [
    "np.logaddexp(f, g)",
    () => np.logaddexp(f, g),
    "float32",
    [2, 3],
    [0.626928, 2.1602242, 2.0485873, 3.2014134, -0.49807093, 1.0759394],
  ],
  [
    "np.logaddexp2(f, g)",
    () => np.logaddexp2(f, g),
    "float32",
    [2, 3],
    [0.8219281, 2.375514, 2.169925, 3.4367518, -0.2436538, 1.3804084],
  ],
  ["np.copysign(f, g)", () => np.copysign(f, g), "float32", [2, 3], [1.5, 0.25, -2, 3, -0.75, 0.5]],
  ["np.heaviside(f, g)", () => np.heaviside(f, g), "float32", [2, 3], [0, 1, 1, 1, 0, 1]],
  ["np.add(i, j)", () => np.add(i, j), "int32", [2, 3], [8, -5, 11, -5, 0, 4]],
  ["np.subtract(i, j)", () => np.subtract(i, j), "int32", [2, 3], [2, -1, 3, -11, 4, -4]],
  ["np.multiply(i, j)", () => np.multiply(i, j), "int32", [2, 3], [15, 6, 28, -24, -4, 0]],
  ["np.divide(i, j)", () => np.divide(i, j), "float32", [2, 3], [1.6666667, 1.5, 1.75, -2.6666667, -1, 0]],
  ["np.floorDivide(i, j)", () => np.floorDivide(i, j), "int32", [2, 3], [1, 1, 1, -3, -1, 0]],
  ["np.mod(i, j)", () => np.mod(i, j), "int32", [2, 3], [2, -1, 3, 1, 0, 0]],
  ["np.fmod(i, j)", () => np.fmod(i, j), "int32", [2, 3], [2, -1, 3, -2, 0, 0]],
  ["np.maximum(i, j)", () => np.maximum(i, j), "int32", [2, 3], [5, -2, 7, 3, 2, 4]],
  ["np.add(b, c)", () => np.add(b, c), "bool", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.multiply(b, c)", () => np.multiply(b, c), "bool", [2, 3], [1, 0, 0, 0, 0, 0]],
  ["np.maximum(b, c)", () => np.maximum(b, c), "bool", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.minimum(b, c)", () => np.minimum(b, c), "bool", [2, 3], [1, 0, 0, 0, 0, 0]],
  ["np.mod(b, c)", () => np.mod(b, c), "int32", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.power(b, c)", () => np.power(b, c), "int32", [2, 3], [1, 0, 1, 0, 0, 1]],
  [
    "np.floorDivide by the integer 0",
    () => np.floorDivide(np.array([5, -5, 0], "int32"), np.array([0, 0, 0], "int32")),
    "int32",
    [3],
    [-2, -2, -1],
  ],
  ["np.floorDivide(w, 3)", () => np.floorDivide(w, 3), "uint32", [3], [2, 0, 1333333333]],
  ["np.mod(w, 3)", () => np.mod(w, 3), "uint32", [3], [1, 1, 1]],
  ["np.add(w, 3)", () => np.add(w, 3), "uint32", [3], [10, 4, 4000000003]],
  ["np.divide(w, 3)", () => np.divide(w, 3), "float32", [3], [2.3333335, 0.33333334, 1.3333334e9]],
  ["np.add(f, v)", () => np.add(f, v), "float32", [2, 3], [-0.5, -1.75, 2.5, 4, -2.75, 1]],
  ["np.multiply(f, v)", () => np.multiply(f, v), "float32", [2, 3], [-1.5, -0.5, 1, 3, 1.5, 0.25]],
  [
    "np.power(p, f)",
    () => np.power(p, f),
    "float32",
    [2, 3],
    [31.622776, 1, 6.25, 0.421875, 0.17782794, 1.7320508],
  ],
  ["np.power(p, 2)", () => np.power(p, 2), "float32", [2, 3], [0.010000001, 1, 6.25, 0.5625, 100, 9]],
  [
    "np.floatPower(p, 2)",
    () => np.floatPower(p, 2),
    "float32",
    [2, 3],
    [0.010000001, 1, 6.25, 0.5625, 100, 9],
  ],
  ["np.power(f, 3)", () => np.power(f, 3), "float32", [2, 3], [-3.375, 0.015625, 8, 27, -0.421875, 0.125]],
  [
    "np.power(f, -2)",
    () => np.power(f, -2),
    "float32",
    [2, 3],
    [0.44444445, 16, 0.25, 0.11111111, 1.7777778, 4],
  ],
  ["np.power(f, 0)", () => np.power(f, 0), "float32", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.power(i, 3)", () => np.power(i, 3), "int32", [2, 3], [125, -27, 343, -512, 8, 0]],
  ["np.add(i, 0.5)", () => np.add(i, 0.5), "float32", [2, 3], [5.5, -2.5, 7.5, -7.5, 2.5, 0.5]],
  ["np.add(i, 2)", () => np.add(i, 2), "int32", [2, 3], [7, -1, 9, -6, 4, 2]],
  ["np.add(b, 1)", () => np.add(b, 1), "int32", [2, 3], [2, 1, 2, 1, 1, 2]],
  ["np.subtract(1, f)", () => np.subtract(1, f), "float32", [2, 3], [2.5, 0.75, -1, -2, 1.75, 0.5]],
  ["np.add(h, 0.1)", () => np.add(h, 0.1), "bfloat16", [4], [1.6015625, -2.15625, 300, 0.11035156]],
  ["np.add(i, f)", () => np.add(i, f), "float32", [2, 3], [3.5, -2.75, 9, -5, 1.25, 0.5]],
  ["np.add(i, w)", () => np.add(i, w), "int32", [2, 3], [12, -2, -294967289, -1, 3, -294967296]],
  ["np.add(h, np.ones([4]))", () => np.add(h, np.ones([4])), "float32", [4], [2.5, -1.25, 301, 1.0100098]],
  [
    `np.add(h, np.array([1, 2, 3, 4], "float16"))`,
    () => np.add(h, np.array([1, 2, 3, 4], "float16")),
    "float32",
    [4],
    [2.5, -0.25, 303, 4.01001],
  ],
  [
    "np.mod(np.array([5, -5, 5, 1, -1, Infinity]), np.array([3, 3, -3, 0, Infinity, 2]))",
    () => np.mod(np.array([5, -5, 5, 1, -1, Infinity]), np.array([3, 3, -3, 0, Infinity, 2])),
    "float32",
    [6],
    [2, 1, -1, Number.NaN, Infinity, Number.NaN],
  ],
  [
    "np.floorDivide(np.array([5, -5, 5, 1, -1]), np.array([2, 2, -2, 0, 0]))",
    () => np.floorDivide(np.array([5, -5, 5, 1, -1]), np.array([2, 2, -2, 0, 0])),
    "float32",
    [5],
    [2, -3, -3, Infinity, -Infinity],
  ],
  [
    "np.logaddexp(n, n)",
    () => np.logaddexp(n, n),
    "float32",
    [5],
    [Number.NaN, Infinity, -Infinity, Math.LN2, 1.6931472],
  ],
  [
    "np.hypot(np.array([3e30, 0, Infinity]), np.array([4e30, 0, 1]))",
    () => np.hypot(np.array([3e30, 0, Infinity]), np.array([4e30, 0, 1])),
    "float32",
    [3],
    [5e30, 0, Infinity],
  ],
  ["np.fmax(n, 0)", () => np.fmax(n, 0), "float32", [5], [0, Infinity, 0, 0, 1]],
  ["np.maximum(n, 0)", () => np.maximum(n, 0), "float32", [5], [Number.NaN, Infinity, 0, 0, 1]],
  [
    "np.copysign(v, n.get(np.s(1, 4)))",
    () => np.copysign(v, n.get(np.s(1, 4))),
    "float32",
    [3],
    [1, -2, -0.5],
  ],
  ["np.mod(f, 0.75)", () => np.mod(f, 0.75), "float32", [2, 3], [-0, 0.25, 0.5, 0, -0, 0.5]],
  ["np.mod(i, 3)", () => np.mod(i, 3), "int32", [2, 3], [2, 0, 1, 1, 2, 0]],
  ["np.mod(i, -3)", () => np.mod(i, -3), "int32", [2, 3], [-1, 0, -2, -2, -1, 0]],
  ["np.mod(7, j)", () => np.mod(7, j), "int32", [3], [1, -1, 3]],
  ["np.mod(i, 0)", () => np.mod(i, 0), "int32", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.floorDivide(i, 3)", () => np.floorDivide(i, 3), "int32", [2, 3], [1, -1, 2, -3, 0, 0]],
  ["np.floorDivide(f, -0.5)", () => np.floorDivide(f, -0.5), "float32", [2, 3], [3, -1, -4, -6, 1, -1]],
  ["np.floorDivide(7, j)", () => np.floorDivide(7, j), "int32", [3], [2, -4, 1]],
  [
    "np.hypot(f, 2)",
    () => np.hypot(f, 2),
    "float32",
    [2, 3],
    [2.5, 2.0155644, 2.828427, 3.6055512, 2.1360009, 2.0615528],
  ],
  ["np.copysign(f, -1)", () => np.copysign(f, -1), "float32", [2, 3], [-1.5, -0.25, -2, -3, -0.75, -0.5]],
  ["np.heaviside(f, 0.5)", () => np.heaviside(f, 0.5), "float32", [2, 3], [0, 1, 1, 1, 0, 1]],
  [
    "np.logaddexp(0, f)",
    () => np.logaddexp(0, f),
    "float32",
    [2, 3],
    [0.20141329, 0.8259394, 2.126928, 3.0485873, 0.386871, 0.974077],
  ],
  ["np.add(2, 3)", () => np.add(2, 3), "float32", [], [5]],
  ["np.mod(7, 4)", () => np.mod(7, 4), "float32", [], [3]],
  ["np.divmod(f, g)[0]", () => np.divmod(f, g)[0], "float32", [2, 3], [-3, 0, -2, 2, -0, 2]],
  ["np.clip(f, -1, 1)", () => np.clip(f, -1, 1), "float32", [2, 3], [-1, 0.25, 1, 1, -0.75, 0.5]],
  ["np.clip(f, null, v)", () => np.clip(f, null, v), "float32", [2, 3], [-1.5, -2, 0.5, 1, -2, 0.5]],
  ["np.clip(i, 0.5)", () => np.clip(i, 0.5), "float32", [2, 3], [5, 0.5, 7, 0.5, 2, 0.5]],
  ["np.clip(i, 0, 4)", () => np.clip(i, 0, 4), "int32", [2, 3], [4, 0, 4, 0, 2, 0]],
];

const logic: readonly Row[] = [
  ["np.equal(f, g)", () => np.equal(f, g), "bool", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.notEqual(f, g)", () => np.notEqual(f, g), "bool", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.less(f, g)", () => np.less(f, g), "bool", [2, 3], [1, 1, 0, 0, 0, 0]],
  ["np.lessEqual(f, g)", () => np.lessEqual(f, g), "bool", [2, 3], [1, 1, 0, 0, 0, 0]],
  ["np.greater(f, g)", () => np.greater(f, g), "bool", [2, 3], [0, 0, 1, 1, 1, 1]],
  ["np.greaterEqual(f, g)", () => np.greaterEqual(f, g), "bool", [2, 3], [0, 0, 1, 1, 1, 1]],
  ["np.less(i, 0.5)", () => np.less(i, 0.5), "bool", [2, 3], [0, 1, 0, 1, 0, 1]],
  ["np.equal(n, n)", () => np.equal(n, n), "bool", [5], [0, 1, 1, 1, 1]],
  ["np.equal(b, c)", () => np.equal(b, c), "bool", [2, 3], [1, 0, 0, 0, 0, 0]],
  ["np.logicalAnd(f, b)", () => np.logicalAnd(f, b), "bool", [2, 3], [1, 0, 1, 0, 0, 1]],
  ["np.logicalOr(f, b)", () => np.logicalOr(f, b), "bool", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.logicalXor(f, b)", () => np.logicalXor(f, b), "bool", [2, 3], [0, 1, 0, 1, 1, 0]],
  ["np.bitwiseAnd(i, j)", () => np.bitwiseAnd(i, j), "int32", [2, 3], [1, -4, 4, 0, 2, 0]],
  ["np.bitwiseOr(i, j)", () => np.bitwiseOr(i, j), "int32", [2, 3], [7, -1, 7, -5, -2, 4]],
  ["np.bitwiseXor(i, j)", () => np.bitwiseXor(i, j), "int32", [2, 3], [6, 3, 3, -5, -4, 4]],
  ["np.bitwiseAnd(b, c)", () => np.bitwiseAnd(b, c), "bool", [2, 3], [1, 0, 0, 0, 0, 0]],
  ["np.bitwiseXor(b, c)", () => np.bitwiseXor(b, c), "bool", [2, 3], [0, 1, 1, 1, 1, 1]],
  ["np.leftShift(i, 2)", () => np.leftShift(i, 2), "int32", [2, 3], [20, -12, 28, -32, 8, 0]],
  ["np.rightShift(i, 2)", () => np.rightShift(i, 2), "int32", [2, 3], [1, -1, 1, -2, 0, 0]],
  ["np.leftShift(w, 1)", () => np.leftShift(w, 1), "uint32", [3], [14, 2, 3705032704]],
  ["np.rightShift(w, 1)", () => np.rightShift(w, 1), "uint32", [3], [3, 0, 2000000000]],
  ["np.logicalNot(f)", () => np.logicalNot(f), "bool", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.where(b, f, g)", () => np.where(b, f, g), "float32", [2, 3], [-1.5, 2, 2, 1.5, -2, 0.5]],
  ["np.where(c, f, 0)", () => np.where(c, f, 0), "float32", [2, 3], [-1.5, 0.25, 0, 3, -0.75, 0]],
  ["np.where(b, i, 0)", () => np.where(b, i, 0), "int32", [2, 3], [5, 0, 7, 0, 0, 0]],
  ["np.where(f, i, f)", () => np.where(f, i, f), "float32", [2, 3], [5, -3, 7, -8, 2, 0]],
  [
    "np.select([f.lt(0), f.lt(1)], [f, g], -1)",
    () => np.select([f.lt(0), f.lt(1)], [f, g], -1),
    "float32",
    [2, 3],
    [-1.5, 2, -1, -1, -0.75, 0.25],
  ],
  ["np.isclose(f, f.add(1e-7))", () => np.isclose(f, f.add(1e-7)), "bool", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.isclose(n, n)", () => np.isclose(n, n), "bool", [5], [0, 1, 1, 1, 1]],
  [
    "np.isclose(n, n, { equalNan: true })",
    () => np.isclose(n, n, { equalNan: true }),
    "bool",
    [5],
    [1, 1, 1, 1, 1],
  ],
  [
    "np.allclose(f, f.mul(1.1), { rtol: 0.2 })",
    () => np.allclose(f, f.mul(1.1), { rtol: 0.2 }),
    "bool",
    [],
    [1],
  ],
  ["np.allclose(f, g)", () => np.allclose(f, g), "bool", [], [0]],
  ["np.arrayEqual(f, f)", () => np.arrayEqual(f, f), "bool", [], [1]],
  ["np.arrayEqual(f, v)", () => np.arrayEqual(f, v), "bool", [], [0]],
  ["np.arrayEqual(n, n, { equalNan: true })", () => np.arrayEqual(n, n, { equalNan: true }), "bool", [], [1]],
];

describe("elementwise functions", () => {
  testRows(unary);

  test("refuse bool where numbers are needed", () => {
    expect(() => np.negative(b)).toThrow(DTypeError);
    expect(() => np.sign(b)).toThrow('[sign] works on numbers, not on bool: convert with astype("int32")');
    expect(() => np.bitwiseNot(f)).toThrow("[bitwiseNot] works on integers and bool, not on f32[2,3]");
    expect(() => np.round(i, -1)).toThrow(DTypeError);
  });

  test("refuse what is no tensor", () => {
    expect(() => np.exp([1, 2] as unknown as Tensor)).toThrow(
      "[exp] expects tensors or numbers, got a list of 2: convert it with np.array(…)",
    );
  });

  test.each([
    ["asinh", np.asinh, 1],
    ["sinc", np.sinc, 0],
    ["sinh", np.sinh, 1],
    ["atan", np.atan, 1],
  ] as const)("%s has its gradient at 0", async (_, fn, expected) => {
    expect(await grad((x: Tensor) => fn(x))(np.array(0)).item()).toBeCloseTo(expected, 6);
  });

  test.each([
    ["asin", np.asin, 1, Infinity],
    ["acos", np.acos, -1, -Infinity],
    ["acosh", np.acosh, 1, Infinity],
    ["cbrt", np.cbrt, 0, Infinity],
  ] as const)("%s is infinitely steep at the end of its slope", async (_, fn, end, expected) => {
    expect(await grad((x: Tensor) => fn(x))(np.array(end)).item()).toBe(expected);
  });

  test("acosh keeps its digits near 1", async () => {
    const x = np.array([1 + 2 ** -23, 1.0001, 1.001, 1.5]);
    const [points, values] = [await x.data(), await np.acosh(x).data()];
    const errors = Array.from(values, (value, i) => Math.abs(value / Math.acosh(points[i] ?? 1) - 1));
    expect(Math.max(...errors)).toBeLessThan(4 * 2 ** -23);
  });

  test("gradients stay finite where one of two formulas overflows", async () => {
    const slope = await grad((x: Tensor) => np.sinh(x).sum())(np.array([80, -80])).data();
    expect(slope[0]).toBeCloseTo(Math.cosh(80), -30);
    expect(await grad((x: Tensor) => np.asinh(x))(np.array(1e20)).item()).toBeCloseTo(1e-20, 25);
  });
});

describe("arithmetic", () => {
  testRows(binary);

  test("the parts of integers are floats", async () => {
    const [rest, whole] = np.modf(np.array([-3, 2], "int32"));
    expect([rest.dtype, await rest.js(), whole.dtype, await whole.js()]).toEqual([
      "float32",
      [0, 0],
      "float32",
      [-3, 2],
    ]);
  });

  test("a hypotenuse is infinite when one side is, whatever the other", async () => {
    const sides = np.hypot(np.array([Infinity, NaN, NaN]), np.array([NaN, -Infinity, 1]));
    expect(await sides.js()).toEqual([Infinity, Infinity, NaN]);
  });

  test("an absolute value has the slope 1 at 0, as in JAX", async () => {
    const slopes = grad((x: Tensor) => np.abs(x).sum())(np.array([-2, -0, 0, 3]));
    expect(await slopes.js()).toEqual([-1, 1, 1, 1]);
  });

  test("a Bessel function is flat at 0, and curved by a half", async () => {
    const slope = grad((x: Tensor) => np.i0(x));
    expect(await slope(np.array(0)).item()).toBe(0);
    expect(await grad(slope)(np.array(0)).item()).toBe(0.5);
  });

  const third = 1 / Math.hypot(3, 3);
  test.each([
    [
      "logaddexp",
      np.logaddexp,
      [2, 2],
      [
        [0.25, -0.25],
        [-0.25, 0.25],
      ],
    ],
    [
      "hypot",
      np.hypot,
      [3, 3],
      [
        [third / 2, -third / 2],
        [-third / 2, third / 2],
      ],
    ],
    [
      "hypot",
      np.hypot,
      [-3, 3],
      [
        [third / 2, third / 2],
        [third / 2, third / 2],
      ],
    ],
    [
      "hypot",
      np.hypot,
      [0, 5],
      [
        [0.2, 0],
        [0, 0],
      ],
    ],
    [
      "hypot",
      np.hypot,
      [5, 0],
      [
        [0, 0],
        [0, 0.2],
      ],
    ],
  ] as const)("%s has its second derivatives where operands are equal or 0", async (_, fn, at, expected) => {
    const second = hessian((v: Tensor) => fn(v.get(0), v.get(1)))(np.array(at));
    await expectClose(second, np.array(expected));
  });

  test("names both shapes when they do not broadcast", () => {
    expect(() => np.add(f, np.ones([2, 4]))).toThrow(ShapeError);
    expect(() => np.add(f, np.ones([2, 4]))).toThrow(
      "[add] shapes [2,3] and [2,4] do not broadcast: dim -1 has sizes 3 and 4, which must be equal or 1",
    );
  });

  test("refuses numbers that do not fit the integers beside them", () => {
    expect(() => np.add(i, 2 ** 31)).toThrow(ValueError);
    expect(() => np.add(i, 2 ** 31)).toThrow(
      "[add] 2147483648 does not fit into int32 (-2147483648 … 2147483647): convert the tensor with astype first",
    );
  });

  test("refuses the difference of bools and negative powers of integers", () => {
    expect(() => np.subtract(b, c)).toThrow("use logicalXor");
    expect(() => np.power(i, -1)).toThrow(DTypeError);
  });

  test("spreads the gradient of logaddexp like a softmax", async () => {
    const slope = grad((x: Tensor) => np.logaddexp(x, np.array([1, 1, -Infinity])).sum());
    await expectClose(slope(np.array([1, 3, 2])), [0.5, 1 / (1 + Math.exp(-2)), 1]);
  });
});

describe("comparison and logic", () => {
  testRows(logic);

  test("bitwise functions refuse floats", () => {
    expect(() => np.bitwiseAnd(f, g)).toThrow("[bitwiseAnd] works on integers and bool, not on f32[2,3]");
    expect(() => np.leftShift(f, 1)).toThrow(DTypeError);
  });

  test("select needs a choice for each condition", () => {
    expect(() => np.select([b], [])).toThrow("[select] got 1 conditions and 0 choices");
  });

  test("select takes the first condition that holds, and the gradient follows the chosen elements", async () => {
    const slope = grad((x: Tensor) => np.where(x.gt(0), x.mul(3), x).sum());
    await expectClose(slope(np.array([1, -1])), [3, 1]);
  });
});
