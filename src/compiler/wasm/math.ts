export { erf, erfInv } from "./math/errorFunction.js";
export { copySign, exp, expBelowZero, expm1, log, log1p, logistic, tanh } from "./math/exponential.js";
export {
  divideInteger,
  powerInteger,
  remainderInteger,
  type Signedness,
  shiftLanes,
  threefry2x32,
} from "./math/integer.js";
export {
  floatToMask,
  fromBfloat16,
  fromFloat16,
  integerToMask,
  maskToFloat,
  maskToInteger,
  toBfloat16,
  toFloat16,
} from "./math/narrow.js";
export { cbrt, pow, rem, rsqrt, sqrt } from "./math/power.js";
export { ceil, finiteMask as isFinite, floor, roundAway, roundEven, sign } from "./math/rounding.js";
export { atan2, cos, sin } from "./math/trigonometric.js";
