/**
 * Functions that WGSL lacks, or whose results it leaves too free: what NaN, infinities and zeros give, and how exact a
 * result is. They use no float64 and no assumption that products are or are not fused with sums, that numbers below
 * 2⁻¹²⁶ are kept, or that a comparison of a float with itself is not left out.
 */

/** The constant of a shader that says whether `fma` rounds once. */
export const FUSES = "fma_rounds_once";

const functions = {
  // A private variable is not a constant, so infinities and NaN made of it are no errors of the compiler.
  zero: { code: "var<private> zero: u32 = 0u;" },
  is_nan: {
    code: "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
  },
  f_max: {
    uses: ["is_nan"],
    code: `fn f_max(a: f32, b: f32) -> f32 {
  let same = bitcast<f32>(bitcast<u32>(a) & bitcast<u32>(b));
  let larger = select(select(b, a, a > b), same, a == b);
  return select(select(larger, b, is_nan(b)), a, is_nan(a));
}`,
  },
  f_min: {
    uses: ["is_nan"],
    code: `fn f_min(a: f32, b: f32) -> f32 {
  let same = bitcast<f32>(bitcast<u32>(a) | bitcast<u32>(b));
  let smaller = select(select(b, a, a < b), same, a == b);
  return select(select(smaller, b, is_nan(b)), a, is_nan(a));
}`,
  },
  // Integers in the order of floats, and back: extremes of many are found faster among these.
  ranked: {
    code: "fn ranked(u: u32) -> u32 { return u ^ (bitcast<u32>(bitcast<i32>(u) >> 31u) & 0x7fffffffu); }",
  },
  // A float that is a fraction of 1 or more and below 2, times 2^exponent, also where it is subnormal.
  parts: {
    code: `struct Parts { significand: u32, exponent: i32 }
fn parts(magnitude: u32) -> Parts {
  if (magnitude >= 0x800000u) { return Parts((magnitude & 0x7fffffu) | 0x800000u, i32(magnitude >> 23u) - 127); }
  let s = countLeadingZeros(magnitude) - 8u;
  return Parts(magnitude << s, -126 - i32(s));
}`,
  },
  f_sqrt: {
    uses: ["zero", "parts", "pair"],
    // WGSL allows some units in the last place. Where nothing can vanish, fused products correct the root by what its
    // square leaves of x; elsewhere it is the root of a 48-bit integer, with the remainder that rounding needs.
    code: `fn f_sqrt(x: f32) -> f32 {
  let u = bitcast<u32>(x);
  // From 2^-60 to 2^60.
  if (${FUSES} && u - 0x21800000u <= 0x3c000000u) {
    let inverse = inverseSqrt(x);
    let root = x * inverse;
    let half = 0.5 * inverse;
    let left = fma(-root, half, 0.5);
    let closer = fma(root, left, root);
    return fma(fma(-closer, closer, x), fma(half, left, half), closer);
  }
  if ((u & 0x7fffffffu) == 0u || u == 0x7f800000u) { return x; }
  if (u > 0x7f800000u) { return bitcast<f32>(0x7fc00000u | zero); }
  let p = parts(u);
  let m = p.significand << u32(p.exponent & 1);
  var root = u32(sqrt(f32(m) * 8388608.0));
  var rest = bitcast<i32>((m << 23u) - root * root);
  while (rest < 0) { root -= 1u; rest += i32(2u * root + 1u); }
  while (rest > i32(2u * root)) { rest -= i32(2u * root + 1u); root += 1u; }
  if (rest > i32(root)) { root += 1u; }
  return bitcast<f32>((u32((p.exponent >> 1u) + 126) << 23u) + root);
}`,
  },
  to_i32: {
    uses: ["is_nan"],
    code: `fn to_i32(x: f32) -> u32 {
  if (is_nan(x)) { return 0u; }
  if (x >= 2147483648.0) { return 0x7fffffffu; }
  if (x <= -2147483648.0) { return 0x80000000u; }
  return bitcast<u32>(i32(x));
}`,
  },
  to_u32: {
    uses: ["is_nan"],
    code: `fn to_u32(x: f32) -> u32 {
  if (is_nan(x) || x <= 0.0) { return 0u; }
  if (x >= 4294967296.0) { return 0xffffffffu; }
  return u32(x);
}`,
  },
  f_rem: {
    uses: ["zero"],
    // Long division of the significands, which is exact for every quotient.
    code: `fn f_rem(x: f32, y: f32) -> f32 {
  let sign = bitcast<u32>(x) & 0x80000000u;
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  if (b == 0u || a >= 0x7f800000u || b > 0x7f800000u) { return bitcast<f32>(0x7fc00000u | zero); }
  if (a < b) { return x; }
  var ea = i32(a >> 23u);
  var eb = i32(b >> 23u);
  var ma = (a & 0x7fffffu) | 0x800000u;
  var mb = (b & 0x7fffffu) | 0x800000u;
  if (ea == 0) { let s = countLeadingZeros(a) - 8u; ma = a << s; ea = 1 - i32(s); }
  if (eb == 0) { let s = countLeadingZeros(b) - 8u; mb = b << s; eb = 1 - i32(s); }
  for (var e = ea; e > eb; e--) {
    if (ma >= mb) { ma -= mb; }
    ma <<= 1u;
  }
  if (ma >= mb) { ma -= mb; }
  if (ma == 0u) { return bitcast<f32>(sign); }
  let s = countLeadingZeros(ma) - 8u;
  ma <<= s;
  let e = eb - i32(s);
  if (e > 0) { return bitcast<f32>(sign | (u32(e) << 23u) | (ma & 0x7fffffu)); }
  return bitcast<f32>(sign | (ma >> u32(1 - e)));
}`,
  },
  mul_wide: {
    code: `fn mul_wide(a: u32, b: u32) -> vec2<u32> {
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let b0 = b & 0xffffu;
  let b1 = b >> 16u;
  let low = a0 * b0;
  let middle = a1 * b0 + (low >> 16u);
  let other = a0 * b1 + (middle & 0xffffu);
  return vec2<u32>((other << 16u) | (low & 0xffffu), a1 * b1 + (middle >> 16u) + (other >> 16u));
}`,
  },
  trig: {
    uses: ["mul_wide", "zero"],
    // The argument times 2/π in fixed point, of which only the bits below 4 matter: exact enough for every float32.
    code: `const two_over_pi = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
fn trig_word(bit: u32) -> u32 {
  let w = bit >> 5u;
  let s = bit & 31u;
  if (s == 0u) { return two_over_pi[w]; }
  return (two_over_pi[w] << s) | (two_over_pi[w + 1u] >> (32u - s));
}
fn trig(x: f32, quarter: u32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  if (a >= 0x7f800000u) { return bitcast<f32>(0x7fc00000u | zero); }
  var r = bitcast<f32>(a);
  var quadrant = quarter;
  if (a > 0x3f490fdau) {
    let bit = (a >> 23u) - 120u;
    let m = (a & 0x7fffffu) | 0x800000u;
    let p = mul_wide(m, trig_word(bit + 64u));
    let q = mul_wide(m, trig_word(bit + 32u));
    let p1 = q.x + p.y;
    let p2 = m * trig_word(bit) + q.y + select(0u, 1u, p1 < q.x);
    quadrant += p2 >> 30u;
    var high = (p2 << 2u) | (p1 >> 30u);
    var low = (p1 << 2u) | (p.x >> 30u);
    let isBelow = high >= 0x80000000u;
    if (isBelow) {
      quadrant += 1u;
      high = ~high;
      low = ~low + 1u;
      if (low == 0u) { high += 1u; }
    }
    var zeros = countLeadingZeros(high);
    if (high == 0u) { zeros = 32u + countLeadingZeros(low); high = low; low = 0u; }
    let s = zeros & 31u;
    if (s > 0u) { high = (high << s) | (low >> (32u - s)); }
    let t = f32(high) * bitcast<f32>((95u - zeros) << 23u);
    r = t * 1.5707964 + t * -4.371139e-8;
    if (isBelow) { r = -r; }
  }
  let z = r * r;
  let sine = r * (z * ((-1.9515295891e-4 * z + 8.3321608736e-3) * z + -1.6666654611e-1) + 1.0);
  let cosine = z * z * ((2.443315711809948e-5 * z + -1.388731625493765e-3) * z + 4.166664568298827e-2) + (1.0 - z * 0.5);
  let value = select(sine, cosine, (quadrant & 1u) != 0u);
  return select(value, -value, (quadrant & 2u) != 0u);
}`,
  },
  f_sin: {
    uses: ["trig"],
    code: "fn f_sin(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(trig(x, 0u)) ^ (bitcast<u32>(x) & 0x80000000u)); }",
  },
  f_cos: { uses: ["trig"], code: "fn f_cos(x: f32) -> f32 { return trig(x, 1u); }" },
  pair: {
    // Numbers as unevaluated sums of two float32, which hold twice as many bits; infinities have no second part.
    code: `override ${FUSES}: bool = false;
fn rounded(x: f32) -> f32 {
  // A choice, so that no compiler takes a sum or product for exact by joining it with what is done to it next.
  let u = bitcast<u32>(x);
  return bitcast<f32>(select(u, 0u, u == 1u));
}
fn two_sum(a: f32, b: f32) -> vec2<f32> {
  let s = rounded(a + b);
  let t = rounded(s - a);
  return vec2<f32>(s, (a - (s - t)) + (b - t));
}
fn two_product(a: f32, b: f32) -> vec2<f32> {
  let p = rounded(a * b);
  if (${FUSES}) { return vec2<f32>(p, select(0.0, fma(a, b, -p), abs(p) < 1e38)); }
  let ah = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
  let bh = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
  let al = a - ah;
  let bl = b - bh;
  let rest = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
  return vec2<f32>(p, select(0.0, rest, abs(p) < 1e38));
}
fn pair_product(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  let p = two_product(a.x, b.x);
  return select(two_sum(p.x, p.y + (a.x * b.y + a.y * b.x)), p, p.x == 0.0);
}
fn pair_sum(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  let s = two_sum(a.x, b.x);
  let low = s.y + (a.y + b.y);
  return select(two_sum(s.x, low), vec2<f32>(s.x, 0.0), s.x == 0.0 && low == 0.0);
}`,
  },
  f_div: {
    uses: ["pair", "zero", "parts"],
    // WGSL allows 2.5 units in the last place. Where nothing can overflow or vanish, the quotient is corrected twice by
    // what it leaves of a, of which fused products lose nothing; without them it is corrected once, and moved to its
    // neighbour if that is closer. Elsewhere it is divided as integers.
    code: `fn f_div(a: f32, b: f32) -> f32 {
  let inverse = 1.0 / b;
  if (${FUSES}) {
    let isWide = !(abs(a) >= 1e-18 && abs(a) <= 1e18) || !(abs(b) >= 1e-18 && abs(b) <= 1e18);
    if (isWide) { return wide_div(bitcast<u32>(a), bitcast<u32>(b)); }
    let closer = fma(fma(-b, inverse, 1.0), inverse, inverse);
    let first = a * closer;
    let second = fma(fma(-b, first, a), closer, first);
    return fma(fma(-b, second, a), closer, second);
  }
  let q = a * inverse;
  let range = vec3<f32>(abs(a), abs(b), abs(q));
  if (!(all(range > vec3<f32>(1e-24)) && all(range < vec3<f32>(1e24)))) { return wide_div(bitcast<u32>(a), bitcast<u32>(b)); }
  let p = two_product(q, b);
  let closer = q + ((a - p.x) - p.y) * inverse;
  let left = two_product(closer, b);
  let rest = (a - left.x) - left.y;
  let u = bitcast<u32>(closer);
  let isLarger = (rest > 0.0) == ((u ^ bitcast<u32>(b)) < 0x80000000u);
  // Below a power of two the next number is half as far.
  let steps = select(24u, 25u, (u & 0x7fffffu) == 0u && !isLarger);
  let half = bitcast<f32>((u & 0x7f800000u) - (steps << 23u));
  return bitcast<f32>(select(u, select(u - 1u, u + 1u, isLarger), abs(rest) > half * abs(b)));
}
fn wide_div(ua: u32, ub: u32) -> f32 {
  let sign = (ua ^ ub) & 0x80000000u;
  let a = ua & 0x7fffffffu;
  let b = ub & 0x7fffffffu;
  let isInvalid = (a == 0u && b == 0u) || (a == 0x7f800000u && b == 0x7f800000u);
  if (isInvalid || a > 0x7f800000u || b > 0x7f800000u) { return bitcast<f32>(0x7fc00000u | zero); }
  if (a == 0u || b == 0x7f800000u) { return bitcast<f32>(sign); }
  if (b == 0u || a == 0x7f800000u) { return bitcast<f32>(sign | 0x7f800000u | zero); }
  let pa = parts(a);
  let pb = parts(b);
  var exponent = pa.exponent - pb.exponent;
  var quotient = u32(f32(pa.significand) / f32(pb.significand) * 16777216.0);
  var rest = bitcast<i32>((pa.significand << 24u) - quotient * pb.significand);
  let divisor = i32(pb.significand);
  while (rest < 0) { quotient -= 1u; rest += divisor; }
  while (rest >= divisor) { quotient += 1u; rest -= divisor; }
  if (quotient < 16777216u) {
    exponent -= 1;
    quotient = 2u * quotient;
    rest = 2 * rest;
    if (rest >= divisor) { quotient += 1u; rest -= divisor; }
  }
  // 24 bits and one to round by; below the smallest normal number, more of them are rounded away.
  let biased = exponent + 127;
  if (biased >= 255) { return bitcast<f32>(sign | 0x7f800000u | zero); }
  let shift = u32(1 + max(1 - biased, 0));
  if (shift > 25u) { return bitcast<f32>(sign); }
  let kept = quotient >> shift;
  let lost = quotient & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  let isUp = lost > half || (lost == half && (rest > 0 || (kept & 1u) == 1u));
  return bitcast<f32>((sign | (u32(max(biased - 1, 0)) << 23u)) + kept + select(0u, 1u, isUp));
}`,
  },
  quick_div: {
    uses: ["f_div"],
    // The quotients of many numbers by one, of which neither is so large or small that more than this is needed.
    code: `fn quick_div_is_long(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) - 0x21800000u > 0x3c000000u; }
fn quick_div_inverse(b: f32) -> f32 {
  let inverse = 1.0 / b;
  return fma(fma(-b, inverse, 1.0), inverse, inverse);
}
fn quick_div(a: f32, b: f32, inverse: f32) -> f32 {
  if (!${FUSES}) { return f_div(a, b); }
  let first = a * inverse;
  let second = fma(fma(-b, first, a), inverse, first);
  return select(fma(fma(-b, second, a), inverse, second), first, a == 0.0);
}`,
  },
  f_pow: {
    uses: ["pair", "zero", "is_nan"],
    // 2^(y · log2 x) for x ≥ 0, the logarithm as a pair: log2 m = 2 / ln 2 · (s + s³ / 3 + …), s = (m − 1) / (m + 1).
    code: `fn f_pow(x: f32, y: f32) -> f32 {
  if (is_nan(x) || is_nan(y)) { return bitcast<f32>(0x7fc00000u | zero); }
  let infinity = bitcast<f32>(0x7f800000u | zero);
  if (y == 0.0) { return 1.0; }
  if (x == 0.0) { return select(0.0, infinity, y < 0.0); }
  if (x == infinity) { return select(infinity, 0.0, y < 0.0); }
  var u = bitcast<u32>(x);
  var exponent = 0;
  if (u < 0x800000u) { let s = countLeadingZeros(u) - 8u; u = u << s; exponent = -i32(s); }
  let shifted = i32(u - 0x3f3504f3u) >> 23u;
  exponent += shifted;
  let m = bitcast<f32>(u - u32(shifted << 23u));
  let f = m - 1.0;
  let d = two_sum(m, 1.0);
  let s0 = f / d.x;
  let p = two_product(s0, d.x);
  let s = two_sum(s0, (((f - p.x) - p.y) - s0 * d.y) / d.x);
  let s2 = pair_product(s, s);
  let tail = s2.x * s2.x * (((0.07692308 * s2.x + 0.09090909) * s2.x + 0.11111111) * s2.x * s2.x + (0.14285715 * s2.x + 0.2));
  let third = pair_product(s2, vec2<f32>(0.33333334, -9.934108e-9));
  let series = pair_sum(vec2<f32>(1.0, 0.0), pair_sum(third, vec2<f32>(tail, 0.0)));
  let fraction = pair_product(pair_product(s, series), vec2<f32>(2.88539, 3.851926e-8));
  let logarithm = pair_sum(vec2<f32>(f32(exponent), 0.0), fraction);
  let power = clamp(y, -1.0995116e12, 1.0995116e12);
  let product = two_product(power, logarithm.x);
  let low = product.y + power * logarithm.y;
  if (product.x > 200.0) { return infinity; }
  if (product.x < -200.0) { return 0.0; }
  let n = round(product.x);
  let r = (product.x - n) + low;
  let e = r * (((((1.5252734e-5 * r + 1.5403530e-4) * r + 1.3333558e-3) * r + 9.6181291e-3) * r + 5.5504109e-2) * r + 2.4022651e-1) * r;
  let mantissa = 1.0 + (r * 0.6931472 + e);
  let whole = i32(n);
  let half = whole >> 1u;
  return mantissa * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(whole - half + 127) << 23u);
}`,
  },
} as const;

/** The name of a function of the library. */
export type WgslFunctionName = keyof typeof functions;

/** Every function with those that it calls. */
const library: {
  readonly [N in WgslFunctionName]: { readonly uses?: readonly WgslFunctionName[]; readonly code: string };
} = functions;

/** The code of some functions and of those that they call, each once and before its use. */
export function functionsCode(names: Iterable<WgslFunctionName>): string {
  const lines = new Map<WgslFunctionName, string>();
  const add = (name: WgslFunctionName): void => {
    if (lines.has(name)) return;
    const { uses = [], code } = library[name];
    uses.forEach(add);
    lines.set(name, code);
  };
  for (const name of names) add(name);
  return [...lines.values()].join("\n");
}
