/**
 * Functions of complex numbers as real and imaginary parts, written with the ops of floats. They are differentiated as
 * written: scaling that only keeps numbers in range is not part of the derivative, and where a formula has no
 * derivative at a point at which the function has one, another formula is used there.
 */
import type { BinaryOp, UnaryOp } from "../ir/opFacts.js";
import type { CompareDirection } from "../ir/ops.js";
import { bind1 } from "./builder.js";
import { type Parts, Tensor } from "./tensor.js";

const none = {};
const number = (like: Tensor, value: number | Tensor) =>
  typeof value === "number" ? Tensor.scalar(value, like.dtype) : value;
const unary = (op: UnaryOp) => (x: Tensor) => bind1(op, [x], none);
const binary = (op: BinaryOp) => (x: Tensor, y: Tensor | number) => bind1(op, [x, number(x, y)], none);

const [exp, expm1, log1p, sine, cosine, root] = [
  unary("exp"),
  unary("expm1"),
  unary("log1p"),
  unary("sin"),
  unary("cos"),
  unary("sqrt"),
];
const [negative, size, logarithm] = [unary("neg"), unary("abs"), unary("log")];
const [plus, minus, times, over, larger] = [
  binary("add"),
  binary("sub"),
  binary("mul"),
  binary("div"),
  binary("max"),
];
const [either, both] = [binary("or"), binary("and")];
const compare = (direction: CompareDirection, x: Tensor, y: Tensor | number) =>
  bind1("compare", [x, number(x, y)], { direction });
const choose = (condition: Tensor, onTrue: Tensor | number, onFalse: Tensor) =>
  bind1("select", [condition, number(onFalse, onTrue), onFalse], none);
const onlyWhere = (condition: Tensor, x: Tensor) => bind1("select", [condition, x, number(x, 0)], none);
const constant = (x: Tensor) => bind1("stopGradient", [x], none);

/** The larger magnitude of both parts, as a constant: 1 where it cannot be divided by. */
function scaleOf([a, b]: Parts): { readonly scale: Tensor; readonly isOdd: Tensor; readonly safe: Tensor } {
  const scale = constant(larger(size(a), size(b)));
  const isOdd = either(compare("eq", scale, 0), compare("eq", scale, Number.POSITIVE_INFINITY));
  return { scale, isOdd, safe: choose(isOdd, 1, scale) };
}

/** The absolute value, whose derivative at 0 is 0. */
export function abs(z: Parts): Tensor {
  const { scale, isOdd, safe } = scaleOf(z);
  const [x, y] = [over(z[0], safe), over(z[1], safe)];
  const square = choose(isOdd, 1, plus(times(x, x), times(y, y)));
  return choose(isOdd, scale, times(safe, root(square)));
}

/** The direction; 0 at 0. */
export function sign(z: Parts): Parts {
  const length = abs(z);
  const safe = choose(compare("eq", length, 0), 1, length);
  return [constant(over(z[0], safe)), constant(over(z[1], safe))];
}

/** z + w. */
export const add = ([a, b]: Parts, [c, d]: Parts): Parts => [plus(a, c), plus(b, d)];
/** z − w. */
export const sub = ([a, b]: Parts, [c, d]: Parts): Parts => [minus(a, c), minus(b, d)];

/** Whether a part is the constant 0, as the imaginary part of a JavaScript number is. */
export const isLiteralZero = ({ node }: Tensor) => node.kind === "literal" && node.literal.value === 0;

/** z · w; a real constant multiplies both parts. */
export function mul([a, b]: Parts, [c, d]: Parts): Parts {
  if (isLiteralZero(d)) return [times(a, c), times(b, c)];
  if (isLiteralZero(b)) return [times(c, a), times(d, a)];
  return [minus(times(a, c), times(b, d)), plus(times(a, d), times(b, c))];
}

/** z / w without intermediate overflow; division by 0 and infinities is done part by part. */
export function div([a, b]: Parts, w: Parts): Parts {
  if (isLiteralZero(w[1])) return [over(a, w[0]), over(b, w[0])];
  const { scale, isOdd, safe } = scaleOf(w);
  const [c, d] = [over(w[0], safe), over(w[1], safe)];
  const divisor = plus(times(w[0], c), times(w[1], d));
  const real = over(plus(times(a, c), times(b, d)), divisor);
  const imag = over(minus(times(b, c), times(a, d)), divisor);
  return [choose(isOdd, over(a, scale), real), choose(isOdd, over(b, scale), imag)];
}

/** eᶻ. */
export function exponential([a, b]: Parts): Parts {
  const length = exp(a);
  const turned = times(length, sine(b));
  // ∞ · sin 0 would be NaN.
  const isReal = both(compare("eq", length, Number.POSITIVE_INFINITY), compare("eq", b, 0));
  return [times(length, cosine(b)), choose(isReal, b, turned)];
}

/** eᶻ − 1, precise near 0. */
export function exponentialLess1([a, b]: Parts): Parts {
  const half = sine(times(b, 0.5));
  return [minus(times(expm1(a), cosine(b)), times(times(half, half), 2)), times(exp(a), sine(b))];
}

const angle = ([a, b]: Parts) => bind1("atan2", [b, a], none);

/** The logarithm whose imaginary part is in −π … π. */
export function log(z: Parts): Parts {
  const { safe } = scaleOf(z);
  const [x, y] = [over(z[0], safe), over(z[1], safe)];
  const rest = logarithm(plus(times(x, x), times(y, y)));
  return [plus(logarithm(safe), times(rest, 0.5)), angle(z)];
}

/** log(1 + z), precise near 0. */
export function logOf1More(z: Parts): Parts {
  const [a, b] = z;
  const isSmall = compare("lt", constant(larger(size(a), size(b))), 0.5);
  const [x, y] = [onlyWhere(isSmall, a), onlyWhere(isSmall, b)];
  const near = times(log1p(plus(times(x, plus(x, 2)), times(y, y))), 0.5);
  const [far, turned] = log([plus(a, 1), b]);
  return [choose(isSmall, near, far), turned];
}

/** The absolute value as a product with 1 or −1, which has a derivative at 0, too. */
const unsigned = (x: Tensor): { readonly size: Tensor; readonly isPositive: Tensor } => {
  const isPositive = compare("ge", x, 0);
  return { size: choose(isPositive, x, negative(x)), isPositive };
};

/** The root whose real part is not negative. */
export function sqrt(z: Parts): Parts {
  const [a, b] = [unsigned(z[0]), unsigned(z[1])];
  const near = root(times(plus(a.size, abs(z)), 0.5));
  const far = over(times(b.size, 0.5), choose(compare("eq", near, 0), 1, near));
  const [x, y] = [choose(a.isPositive, near, far), choose(a.isPositive, far, near)];
  return [x, choose(b.isPositive, y, negative(y))];
}

const hyperbolic = (x: Tensor) => {
  const [up, down] = [expm1(x), expm1(negative(x))];
  return {
    sinh: times(minus(up, down), 0.5),
    cosh: times(plus(exp(x), exp(negative(x))), 0.5),
  };
};

/** The sine. */
export function sin([a, b]: Parts): Parts {
  const { sinh, cosh } = hyperbolic(b);
  return [times(sine(a), cosh), times(cosine(a), sinh)];
}

/** The cosine. */
export function cos([a, b]: Parts): Parts {
  const { sinh, cosh } = hyperbolic(b);
  return [times(cosine(a), cosh), negative(times(sine(a), sinh))];
}

/** The hyperbolic tangent, by e^(−2|a|), which is never large. */
export function tanh([a, b]: Parts): Parts {
  const { size: length, isPositive } = unsigned(a);
  const less = expm1(times(length, -2));
  const small = plus(less, 1);
  const [s, c] = [sine(b), cosine(b)];
  const divisor = plus(times(less, less), times(times(small, 4), times(c, c)));
  const real = over(negative(expm1(times(length, -4))), divisor);
  return [choose(isPositive, real, negative(real)), over(times(times(small, 4), times(s, c)), divisor)];
}

/** z to the power of w: 0 to the power of 0 is 1, to all others 0. */
export function pow(z: Parts, w: Parts): Parts {
  const isZero = (x: Parts) => both(compare("eq", x[0], 0), compare("eq", x[1], 0));
  const fromZero = isZero(z);
  const safe: Parts = [choose(fromZero, 1, z[0]), choose(fromZero, 0, z[1])];
  const [real, imag] = exponential(mul(w, log(safe)));
  const ofZero = bind1("convert", [isZero(w)], { dtype: real.dtype });
  return [choose(fromZero, ofZero, real), choose(fromZero, 0, imag)];
}

/** The angle whose tangent is z / w: −i log((w + iz) / √(w² + z²)). */
export function atan2(z: Parts, w: Parts): Parts {
  const turned: Parts = [minus(w[0], z[1]), plus(w[1], z[0])];
  const [real, imag] = log(div(turned, sqrt(add(mul(w, w), mul(z, z)))));
  return [imag, negative(real)];
}

/** Compares lexicographically: by real parts, then by imaginary parts. */
export function compared(direction: CompareDirection, [a, b]: Parts, [c, d]: Parts): Tensor {
  const [real, imag] = [compare(direction, a, c), compare(direction, b, d)];
  if (direction === "eq") return both(real, imag);
  if (direction === "ne") return either(real, imag);
  const strict = direction === "lt" || direction === "le" ? "lt" : "gt";
  return either(compare(strict, a, c), both(compare("eq", a, c), imag));
}
