// biome-ignore-all lint/suspicious/noApproximativeNumericConstant: expected results, rounded to float32
/** One record for every op of one operand, from which the tests of every stage make what they know of it. */
import type { UnaryOp } from "../../src/ir/opFacts.js";
import type { Fill } from "../conformance/engine/cases.js";
import { type ErrorLevel, exact, multipliesExactly, rounded, ulps } from "./errorLevel.js";

/** What the tests know of an op of one operand; of which types it is, `opFacts` says. */
export interface UnaryRecord {
  /** What ordinary operands are, away from poles and ends. */
  readonly operands: Fill;
  /** How far a result may lie from the true value. */
  readonly error: ErrorLevel;
  /** `steep` ones have poles, ends or infinite slopes, where the last bits of an operand decide everything. */
  readonly course: "smooth" | "steep" | "jumps";
  /** The op of StableHLO or its companion dialect that has this meaning. */
  readonly text: string;
  /** The results at {@link unaryPoints}, computed in float64 by JAX and SciPy and rounded to float32. */
  readonly values?: readonly number[];
}

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

/** Where every function of floats is compared with known values. */
export const unaryPoints: readonly number[] = [
  ...[nan, -inf, inf, -0, 0, -10, -2.5, -1.5, -1, -0.5],
  ...[-0.3, 1e-6, 0.3, 0.5, 1, 1.5, 2.5, 3.5, 10, 88.5],
];

/** The records of all ops of one operand. */
// biome-ignore format: one line for the values of each op
export const unaryOps: { readonly [K in UnaryOp]: UnaryRecord } = {
  neg: {
    operands: "any", error: exact, course: "smooth", text: "stablehlo.negate",
    values: [nan, inf, -inf, 0, -0, 10, 2.5, 1.5, 1, 0.5, 0.3, -1e-6, -0.3, -0.5, -1, -1.5, -2.5, -3.5, -10, -88.5],
  },
  exp: {
    operands: "any", error: ulps(1), course: "smooth", text: "stablehlo.exponential",
    values: [nan, 0, inf, 1, 1, 4.539993e-5, 0.082085, 0.22313017, 0.36787945, 0.60653067, 0.7408182, 1.000001, 1.3498589, 1.6487212, 2.7182817, 4.481689, 12.182494, 33.11545, 22026.465, 2.723088e38],
  },
  expm1: {
    operands: "small", error: ulps(2, 2), course: "smooth", text: "stablehlo.exponential_minus_one",
    values: [nan, -1, inf, -0, 0, -0.9999546, -0.917915, -0.77686983, -0.63212055, -0.39346933, -0.2591818, 1.0000005e-6, 0.34985882, 0.6487213, 1.7182819, 3.481689, 11.182494, 32.11545, 22025.465, 2.723088e38],
  },
  log: {
    operands: "positive", error: ulps(1), course: "steep", text: "stablehlo.log",
    values: [nan, nan, inf, -inf, -inf, nan, nan, nan, nan, nan, nan, -13.815511, -1.2039728, -0.6931472, 0, 0.4054651, 0.91629076, 1.2527629, 2.3025851, 4.4830027],
  },
  log1p: {
    operands: "positive", error: ulps(2), course: "steep", text: "stablehlo.log_plus_one",
    values: [nan, nan, inf, -0, 0, nan, nan, nan, -inf, -0.6931472, -0.35667497, 9.999995e-7, 0.26236427, 0.4054651, 0.6931472, 0.91629076, 1.2527629, 1.5040774, 2.3978953, 4.494239],
  },
  tanh: {
    operands: "any", error: ulps(6), course: "smooth", text: "stablehlo.tanh",
    values: [nan, -1, 1, -0, 0, -1, -0.9866143, -0.90514827, -0.7615942, -0.46211717, -0.29131263, 1e-6, 0.29131263, 0.46211717, 0.7615942, 0.90514827, 0.9866143, 0.9981779, 1, 1],
  },
  sin: {
    operands: "any", error: ulps(3), course: "smooth", text: "stablehlo.sine",
    values: [nan, nan, nan, -0, 0, 0.5440211, -0.5984721, -0.997495, -0.84147096, -0.47942555, -0.29552022, 1e-6, 0.29552022, 0.47942555, 0.84147096, 0.997495, 0.5984721, -0.35078323, -0.5440211, 0.51019],
  },
  cos: {
    operands: "any", error: ulps(3), course: "smooth", text: "stablehlo.cosine",
    values: [nan, nan, nan, 1, 1, -0.8390715, -0.8011436, 0.0707372, 0.5403023, 0.87758255, 0.9553365, 1, 0.9553365, 0.87758255, 0.5403023, 0.0707372, -0.8011436, -0.9364567, -0.8390715, 0.8600617],
  },
  sqrt: {
    operands: "positive", error: rounded((root, x) => multipliesExactly(root, root) && root * root === x), course: "steep", text: "stablehlo.sqrt",
    values: [nan, nan, inf, -0, 0, nan, nan, nan, nan, nan, nan, 0.001, 0.5477226, 0.70710677, 1, 1.2247449, 1.5811388, 1.8708287, 3.1622777, 9.407444],
  },
  rsqrt: {
    operands: "positive", error: ulps(1), course: "steep", text: "stablehlo.rsqrt",
    values: [nan, nan, 0, -inf, inf, nan, nan, nan, nan, nan, nan, 1000, 1.8257418, 1.4142135, 1, 0.8164966, 0.6324555, 0.5345225, 0.31622776, 0.106298804],
  },
  cbrt: {
    operands: "any", error: ulps(2), course: "steep", text: "stablehlo.cbrt",
    values: [nan, -inf, inf, -0, 0, -2.1544347, -1.3572088, -1.1447142, -1, -0.7937005, -0.66943294, 0.01, 0.66943294, 0.7937005, 1, 1.1447142, 1.3572088, 1.5182945, 2.1544347, 4.4563684],
  },
  abs: {
    operands: "any", error: exact, course: "smooth", text: "stablehlo.abs",
    values: [nan, inf, inf, 0, 0, 10, 2.5, 1.5, 1, 0.5, 0.3, 1e-6, 0.3, 0.5, 1, 1.5, 2.5, 3.5, 10, 88.5],
  },
  sign: {
    operands: "any", error: exact, course: "jumps", text: "stablehlo.sign",
    values: [nan, -1, 1, -0, 0, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
  },
  floor: {
    operands: "any", error: exact, course: "jumps", text: "stablehlo.floor",
    values: [nan, -inf, inf, -0, 0, -10, -3, -2, -1, -1, -1, 0, 0, 0, 1, 1, 2, 3, 10, 88],
  },
  ceil: {
    operands: "any", error: exact, course: "jumps", text: "stablehlo.ceil",
    values: [nan, -inf, inf, -0, 0, -10, -2, -1, -1, -0, -0, 1, 1, 1, 1, 2, 3, 4, 10, 89],
  },
  round: {
    operands: "any", error: exact, course: "jumps", text: "stablehlo.round_nearest_even",
    values: [nan, -inf, inf, -0, 0, -10, -2, -2, -1, -0, -0, 0, 0, 0, 1, 2, 2, 4, 10, 88],
  },
  erf: {
    operands: "small", error: ulps(6), course: "smooth", text: "chlo.erf",
    values: [nan, -1, 1, -0, 0, -1, -0.999593, -0.96610516, -0.8427008, -0.5204999, -0.32862678, 1.1283792e-6, 0.32862678, 0.5204999, 0.8427008, 0.96610516, 0.999593, 0.9999993, 1, 1],
  },
  erfInv: {
    operands: "unit", error: ulps(6), course: "steep", text: "chlo.erf_inv",
    values: [nan, nan, nan, -0, 0, nan, nan, nan, -inf, -0.47693628, -0.27246273, 8.862269e-7, 0.27246273, 0.47693628, inf, nan, nan, nan, nan, nan],
  },
  logistic: {
    operands: "any", error: ulps(3, 2), course: "smooth", text: "stablehlo.logistic",
    values: [nan, 0, 1, 0.5, 0.5, 4.539787e-5, 0.07585818, 0.18242553, 0.26894143, 0.37754068, 0.4255575, 0.50000024, 0.5744425, 0.62245935, 0.7310586, 0.8175745, 0.9241418, 0.97068775, 0.9999546, 1],
  },
  not: { operands: "bits", error: exact, course: "smooth", text: "stablehlo.not" },
};
