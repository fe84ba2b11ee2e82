/**
 * What the differential test compares: every record is one function said twice, with shardwise and as a Python
 * expression over the operands `a`, `b`, `c` and the parameters `p`.
 */
import { complex, lax, np, type Tensor, vmap } from "shardwise";
import * as nn from "shardwise/nn";
import type { Draw } from "./random.js";

/** Parameters of a call: plain JSON. */
export type Params = Readonly<Record<string, unknown>>;

type NarrowInteger = "int8" | "uint8" | "int16" | "uint16";

/** An operand: its shape, and where its values lie. */
export interface OperandSpec {
  readonly shape: readonly number[];
  readonly dtype?:
    | "float32"
    | "int32"
    | "bool"
    | "bfloat16"
    | "float16"
    | "uint32"
    | "complex64"
    | NarrowInteger;
  readonly low?: number;
  readonly high?: number;
}

/** A call with operands of certain shapes. */
export interface Call {
  readonly operands: readonly OperandSpec[];
  readonly params?: Params;
}

/** One function in both languages. */
export interface FunctionRecord {
  readonly name: string;
  /** The exported function that it is about, for those of the table. */
  readonly of?: string;
  /** The Python expression. */
  readonly py: string;
  readonly ts: (args: readonly Tensor[], params: Params) => Tensor;
  /** A random call. */
  readonly call: (draw: Draw) => Call;
  /** Takes one tensor of any shape with dims and keeps values small, so that it fits into chains. */
  readonly chain?: (draw: Draw, shape: readonly number[]) => Params;
}

const records: FunctionRecord[] = [];

const first = (args: readonly Tensor[]): Tensor => {
  const [x] = args;
  if (!x) throw new Error("an operand is missing");
  return x;
};
const second = (args: readonly Tensor[]): Tensor => first(args.slice(1));
const third = (args: readonly Tensor[]): Tensor => first(args.slice(2));

/** Elementwise functions of one tensor; `chains` says whether it fits anywhere in a chain. */
function unary(
  name: string,
  py: string,
  ts: (x: Tensor) => Tensor,
  { low = -2, high = 2, chains = low === -2 }: { low?: number; high?: number; chains?: boolean } = {},
): void {
  records.push({
    name,
    py: `${py}(a)`,
    ts: (args) => ts(first(args)),
    call: (draw) => ({ operands: [{ shape: draw.shape(), low, high }] }),
    ...(chains ? { chain: () => ({}) } : {}),
  });
}

/** Elementwise functions of two tensors that broadcast. */
function binary(
  name: string,
  py: string,
  ts: (x: Tensor, y: Tensor) => Tensor,
  { low = -2, high = 2 }: { low?: number; high?: number } = {},
): void {
  records.push({
    name,
    py,
    ts: (args) => ts(first(args), second(args)),
    call: (draw) => {
      const shape = draw.shape();
      const other = shape.map((n) => (draw.chance(0.3) ? 1 : n)).slice(draw.chance(0.3) ? 1 : 0);
      const operands = [
        { shape, low, high },
        { shape: other, low, high },
      ];
      return { operands: draw.chance(0.5) ? operands : operands.reverse() };
    },
  });
}

/** Functions of one tensor and parameters that depend on its shape. */
function shaped(
  name: string,
  py: string,
  ts: (x: Tensor, p: Params) => Tensor,
  params: (draw: Draw, shape: readonly number[]) => Params,
  {
    minRank = 1,
    low = -2,
    high = 2,
    chains = true,
  }: { minRank?: number; low?: number; high?: number; chains?: boolean } = {},
): void {
  records.push({
    name,
    py,
    ts: (args, p) => ts(first(args), p),
    call: (draw) => {
      const shape = draw.shape(minRank);
      return { operands: [{ shape, low, high }], params: params(draw, shape) };
    },
    ...(chains && minRank === 1 ? { chain: params } : {}),
  });
}

/** Anything else. */
function other(
  name: string,
  py: string,
  ts: (args: readonly Tensor[], p: Params) => Tensor,
  call: (draw: Draw) => Call,
): void {
  records.push({ name, py, ts, call });
}

const numberOf = (p: Params, key: string): number => Number(p[key]);
const numbersOf = (p: Params, key: string): number[] => p[key] as number[];
const dimsOf = (p: Params): number | number[] | null => p.axis as number | number[] | null;

unary("abs", "jnp.abs", np.abs);
unary("negative", "jnp.negative", np.negative);
unary("square", "jnp.square", np.square);
unary("sin", "jnp.sin", np.sin);
unary("cos", "jnp.cos", np.cos);
unary("tan", "jnp.tan", np.tan, { low: -1, high: 1 });
unary("tanh", "jnp.tanh", np.tanh);
unary("sinh", "jnp.sinh", np.sinh);
unary("cosh", "jnp.cosh", np.cosh);
unary("arcsin", "jnp.arcsin", np.asin, { low: -0.9, high: 0.9 });
unary("arccos", "jnp.arccos", np.acos, { low: -0.9, high: 0.9 });
unary("arctan", "jnp.arctan", np.atan);
unary("arcsinh", "jnp.arcsinh", np.asinh);
unary("arccosh", "jnp.arccosh", np.acosh, { low: 1.2, high: 4 });
unary("arctanh", "jnp.arctanh", np.atanh, { low: -0.9, high: 0.9 });
unary("exp", "jnp.exp", np.exp);
unary("exp2", "jnp.exp2", np.exp2);
unary("expm1", "jnp.expm1", np.expm1);
unary("log", "jnp.log", np.log, { low: 0.1, high: 4 });
unary("log2", "jnp.log2", np.log2, { low: 0.1, high: 4 });
unary("log10", "jnp.log10", np.log10, { low: 0.1, high: 4 });
unary("log1p", "jnp.log1p", np.log1p, { low: -0.5, high: 4 });
unary("sqrt", "jnp.sqrt", np.sqrt, { low: 0.1, high: 4 });
unary("cbrt", "jnp.cbrt", np.cbrt, { low: 0.1, high: 4 });
unary("reciprocal", "jnp.reciprocal", np.reciprocal, { low: 0.2, high: 3 });
unary("sign", "jnp.sign", np.sign);
unary("floor", "jnp.floor", np.floor);
unary("ceil", "jnp.ceil", np.ceil);
unary("trunc", "jnp.trunc", np.trunc);
unary("rint", "jnp.rint", np.rint);
unary("sinc", "jnp.sinc", np.sinc);
unary("deg2rad", "jnp.deg2rad", np.deg2rad);
unary("rad2deg", "jnp.rad2deg", np.rad2deg);
unary("isnan", "jnp.isnan", np.isnan, { chains: false });
unary("isfinite", "jnp.isfinite", np.isfinite, { chains: false });
unary("signbit", "jnp.signbit", np.signbit, { chains: false });
unary("erf", "jax.scipy.special.erf", lax.erf);
unary("erfc", "jax.scipy.special.erfc", lax.erfc);
unary("erfInv", "jax.scipy.special.erfinv", lax.erfInv, { low: -0.9, high: 0.9 });
unary("rsqrt", "lax.rsqrt", lax.rsqrt, { low: 0.1, high: 4 });
unary("relu", "jax.nn.relu", nn.relu);
unary("relu6", "jax.nn.relu6", nn.relu6, { low: -4, high: 8 });
unary("leakyRelu", "jax.nn.leaky_relu", (x) => nn.leakyRelu(x));
unary("elu", "jax.nn.elu", (x) => nn.elu(x));
unary("celu", "jax.nn.celu", (x) => nn.celu(x));
unary("selu", "jax.nn.selu", nn.selu);
unary("gelu", "jax.nn.gelu", (x) => nn.gelu(x));
unary("sigmoid", "jax.nn.sigmoid", nn.sigmoid);
unary("logSigmoid", "jax.nn.log_sigmoid", nn.logSigmoid);
unary("silu", "jax.nn.silu", nn.silu);
unary("softplus", "jax.nn.softplus", nn.softplus);
unary("softSign", "jax.nn.soft_sign", nn.softSign);
unary("mish", "jax.nn.mish", nn.mish);
unary("hardTanh", "jax.nn.hard_tanh", nn.hardTanh);
unary("hardSigmoid", "jax.nn.hard_sigmoid", nn.hardSigmoid, { low: -4, high: 4 });
unary("hardSilu", "jax.nn.hard_silu", nn.hardSilu, { low: -4, high: 4 });
unary("squareplus", "jax.nn.squareplus", (x) => nn.squareplus(x));
unary("softplus of large values", "jax.nn.softplus", nn.softplus, { low: -60, high: 60 });
unary("logSigmoid of large values", "jax.nn.log_sigmoid", nn.logSigmoid, { low: -60, high: 60 });
unary("tanh of large values", "jnp.tanh", np.tanh, { low: -40, high: 40 });
unary("logistic of large values", "jax.nn.sigmoid", nn.sigmoid, { low: -90, high: 90 });
unary("sparsePlus", "jax.nn.sparse_plus", nn.sparsePlus);
unary("sparseSigmoid", "jax.nn.sparse_sigmoid", nn.sparseSigmoid);
unary("log1mexp", "jax.nn.log1mexp", nn.log1mexp, { low: 0.01, high: 6 });
unary("frexp, mantissa", "(lambda x: jnp.frexp(x)[0])", (x) => np.frexp(x)[0], { chains: false });
unary("frexp, exponent", "(lambda x: jnp.frexp(x)[1])", (x) => np.frexp(x)[1], { chains: false });
unary(
  "spacing",
  "(lambda x: jnp.spacing(jax.lax.stop_gradient(x)))",
  (x) => np.spacing(lax.stopGradient(x)),
  { chains: false },
);

binary("add", "jnp.add(a, b)", np.add);
binary("subtract", "jnp.subtract(a, b)", np.subtract);
binary("multiply", "jnp.multiply(a, b)", np.multiply);
binary("divide", "jnp.divide(a, b)", np.divide, { low: 0.3, high: 2 });
binary("maximum", "jnp.maximum(a, b)", np.maximum);
binary("minimum", "jnp.minimum(a, b)", np.minimum);
binary("power", "jnp.power(a, b)", np.power, { low: 0.2, high: 2 });
binary("arctan2", "jnp.arctan2(a, b)", np.atan2);
binary("hypot", "jnp.hypot(a, b)", np.hypot, { low: 0.2, high: 2 });
binary("logaddexp", "jnp.logaddexp(a, b)", np.logaddexp);
binary("logaddexp2", "jnp.logaddexp2(a, b)", np.logaddexp2);
binary("mod", "jnp.mod(a, b)", np.mod, { low: 0.3, high: 2 });
binary("fmod", "jnp.fmod(a, b)", np.fmod, { low: 0.3, high: 2 });
binary("floorDivide", "jnp.floor_divide(a, b)", np.floorDivide, { low: 0.3, high: 2 });
binary("copysign", "jnp.copysign(a, b)", np.copysign);
binary("heaviside", "jnp.heaviside(a, b)", np.heaviside);
binary("fmax", "jnp.fmax(a, b)", np.fmax);
binary("fmin", "jnp.fmin(a, b)", np.fmin);
binary("where", "jnp.where(a > 0, a, b)", (a, b) => np.where(a.gt(0), a, b));
binary("less", "jnp.less(a, b)", np.less);
binary("clip", "jnp.clip(a, -0.5, b)", (a, b) => np.clip(a, -0.5, b), { low: 0.2, high: 2 });
binary("xlogy", "jnp.where(a > 0.5, jnp.log(b), a * b)", (a, b) => np.where(a.gt(0.5), np.log(b), a.mul(b)), {
  low: 0.2,
  high: 2,
});

const axis = (draw: Draw, shape: readonly number[]): Params => ({
  axis: draw.dims(shape.length),
  keepdims: draw.chance(0.5),
});
const keepdimsOf = (p: Params) => ({ keepdims: p.keepdims === true });
const reductions = {
  sum: np.sum,
  mean: np.mean,
  max: np.max,
  min: np.min,
  prod: np.prod,
  var: np.var,
  std: np.std,
} as const;
for (const [name, fn] of Object.entries(reductions)) {
  const py = `jnp.${name}(a, axis=axis(p["axis"]), keepdims=p["keepdims"])`;
  shaped(name, py, (x, p) => fn(x, dimsOf(p), keepdimsOf(p)), axis);
}
const one = (draw: Draw, shape: readonly number[]): Params => ({ axis: draw.dim(shape.length) });
shaped(
  "all",
  `jnp.all(a > 0, axis=axis(p["axis"]), keepdims=p["keepdims"])`,
  (x, p) => np.all(x.gt(0), dimsOf(p), keepdimsOf(p)),
  axis,
  { chains: false },
);
shaped(
  "any",
  `jnp.any(a > 0, axis=axis(p["axis"]), keepdims=p["keepdims"])`,
  (x, p) => np.any(x.gt(0), dimsOf(p), keepdimsOf(p)),
  axis,
  { chains: false },
);
shaped(
  "ptp",
  `jnp.ptp(a, axis=axis(p["axis"]), keepdims=p["keepdims"])`,
  (x, p) => np.ptp(x, dimsOf(p), keepdimsOf(p)),
  axis,
);
shaped(
  "logsumexp",
  `jax.nn.logsumexp(a, axis=axis(p["axis"]), keepdims=p["keepdims"])`,
  (x, p) => np.logsumexp(x, dimsOf(p), keepdimsOf(p)),
  axis,
);
shaped(
  "countNonzero",
  `jnp.count_nonzero(a > 0, axis=axis(p["axis"]), keepdims=p["keepdims"])`,
  (x, p) => np.countNonzero(x.gt(0), dimsOf(p), keepdimsOf(p)),
  axis,
  { chains: false },
);
shaped("argmax", `jnp.argmax(a, axis=p["axis"])`, (x, p) => np.argmax(x, numberOf(p, "axis")), one, {
  chains: false,
});
shaped("argmin", `jnp.argmin(a, axis=p["axis"])`, (x, p) => np.argmin(x, numberOf(p, "axis")), one, {
  chains: false,
});
shaped("cumsum", `jnp.cumsum(a, axis=p["axis"])`, (x, p) => np.cumsum(x, numberOf(p, "axis")), one);
shaped("cumprod", `jnp.cumprod(a, axis=p["axis"])`, (x, p) => np.cumprod(x, numberOf(p, "axis")), one);
shaped("cummax", `lax.cummax(a, axis=p["axis"] % a.ndim)`, (x, p) => lax.cummax(x, numberOf(p, "axis")), one);
shaped("median", `jnp.median(a, axis=p["axis"])`, (x, p) => np.median(x, numberOf(p, "axis")), one);
shaped(
  "quantile",
  `jnp.quantile(a, 0.3, axis=p["axis"])`,
  (x, p) => np.quantile(x, 0.3, numberOf(p, "axis")),
  one,
);
shaped("sort", `jnp.sort(a, axis=p["axis"])`, (x, p) => np.sort(x, numberOf(p, "axis")), one);
shaped(
  "sort, descending",
  `jnp.sort(a, axis=p["axis"], descending=True)`,
  (x, p) => np.sort(x, numberOf(p, "axis"), { descending: true }),
  one,
);
shaped("argsort", `jnp.argsort(a, axis=p["axis"])`, (x, p) => np.argsort(x, numberOf(p, "axis")), one, {
  chains: false,
});
shaped("softmax", `jax.nn.softmax(a, axis=p["axis"])`, (x, p) => nn.softmax(x, numberOf(p, "axis")), one);
shaped(
  "logSoftmax",
  `jax.nn.log_softmax(a, axis=p["axis"])`,
  (x, p) => nn.logSoftmax(x, numberOf(p, "axis")),
  one,
);
shaped(
  "standardize",
  `jax.nn.standardize(a, axis=p["axis"])`,
  (x, p) => nn.standardize(x, numberOf(p, "axis")),
  one,
  { chains: false },
);
shaped("diff", `jnp.diff(a, axis=p["axis"])`, (x, p) => np.diff(x, 1, numberOf(p, "axis")), one, {
  chains: false,
});
shaped("flip", `jnp.flip(a, axis=p["axis"])`, (x, p) => np.flip(x, numberOf(p, "axis")), one);
shaped("expandDims", `jnp.expand_dims(a, p["axis"])`, (x, p) => np.expandDims(x, numberOf(p, "axis")), one);
shaped(
  "roll",
  `jnp.roll(a, p["shift"], axis=p["axis"])`,
  (x, p) => np.roll(x, numberOf(p, "shift"), numberOf(p, "axis")),
  (draw, shape) => ({ ...one(draw, shape), shift: draw.int(-3, 4) }),
);
shaped(
  "roll, flat",
  `jnp.roll(a, p["shift"])`,
  (x, p) => np.roll(x, numberOf(p, "shift")),
  (draw) => ({ shift: draw.int(-3, 4) }),
);
shaped("repeat", `jnp.repeat(a, 2, axis=p["axis"])`, (x, p) => np.repeat(x, 2, numberOf(p, "axis")), one);
shaped(
  "tile",
  `jnp.tile(a, (2, 1))`,
  (x) => np.tile(x, [2, 1]),
  () => ({}),
);
shaped(
  "transpose",
  `jnp.transpose(a, p["permutation"])`,
  (x, p) => np.transpose(x, numbersOf(p, "permutation")),
  (draw, shape) => ({ permutation: draw.permutation(shape.length) }),
);
shaped(
  "ravel",
  `jnp.ravel(a)`,
  (x) => np.ravel(x),
  () => ({}),
);
shaped(
  "reshape",
  `jnp.reshape(a, (-1, a.shape[0]))`,
  (x) => np.reshape(x, [-1, x.shape[0] ?? 1]),
  () => ({}),
);
shaped(
  "moveaxis",
  `jnp.moveaxis(a, p["from"], p["to"])`,
  (x, p) => np.moveaxis(x, numberOf(p, "from"), numberOf(p, "to")),
  (draw, shape) => ({ from: draw.dim(shape.length), to: draw.dim(shape.length) }),
);
shaped(
  "swapaxes",
  `jnp.swapaxes(a, p["from"], p["to"])`,
  (x, p) => np.swapaxes(x, numberOf(p, "from"), numberOf(p, "to")),
  (draw, shape) => ({ from: draw.dim(shape.length), to: draw.dim(shape.length) }),
);
shaped(
  "pad",
  `jnp.pad(a, 1, constant_values=0.5)`,
  (x) => np.pad(x, 1, { constantValues: 0.5 }),
  () => ({}),
);
shaped(
  "pad, edge",
  `jnp.pad(a, 2, mode="edge")`,
  (x) => np.pad(x, 2, { mode: "edge" }),
  () => ({}),
  { chains: false },
);
shaped(
  "pad, reflect",
  `jnp.pad(a, 1, mode="reflect")`,
  (x) => np.pad(x, 1, { mode: "reflect" }),
  () => ({}),
  { chains: false, minRank: 2 },
);
for (const mode of ["maximum", "minimum", "mean", "median", "linear_ramp", "empty"] as const) {
  shaped(
    `pad, ${mode}`,
    `jnp.pad(a, p["width"], mode="${mode}")`,
    (x, p) => np.pad(x, numberOf(p, "width"), { mode }),
    (draw) => ({ width: draw.chance(0.5) ? 1 : 3 }),
    { chains: false },
  );
}
for (const mode of ["reflect", "symmetric"] as const) {
  shaped(
    `pad, ${mode}, odd`,
    `jnp.pad(a, p["width"], mode="${mode}", reflect_type="odd")`,
    (x, p) => np.pad(x, numberOf(p, "width"), { mode, reflectType: "odd" }),
    (draw) => ({ width: draw.chance(0.5) ? 1 : 3 }),
    { chains: false },
  );
}
for (const method of ["lower", "higher", "midpoint", "nearest"] as const) {
  shaped(
    `quantile, ${method}`,
    `jnp.quantile(a, 0.3, method="${method}")`,
    (x) => np.quantile(x, 0.3, null, { method }),
    () => ({}),
    { chains: false },
  );
}
shaped(
  "cumlogsumexp",
  `lax.cumlogsumexp(a, 0, reverse=bool(p["reverse"]))`,
  (x, p) => lax.cumlogsumexp(x, 0, numberOf(p, "reverse") === 1),
  (draw) => ({ reverse: draw.chance(0.5) ? 1 : 0 }),
);
shaped(
  "pad, wrap",
  `jnp.pad(a, 1, mode="wrap")`,
  (x) => np.pad(x, 1, { mode: "wrap" }),
  () => ({}),
  { chains: false },
);
shaped(
  "tril",
  `jnp.tril(a, p["k"])`,
  (x, p) => np.tril(x, numberOf(p, "k")),
  (draw) => ({ k: draw.int(-1, 2) }),
  { minRank: 2 },
);
shaped(
  "triu",
  `jnp.triu(a, p["k"])`,
  (x, p) => np.triu(x, numberOf(p, "k")),
  (draw) => ({ k: draw.int(-1, 2) }),
  { minRank: 2 },
);
shaped(
  "trace",
  `jnp.trace(a)`,
  (x) => np.trace(x),
  () => ({}),
  { minRank: 2 },
);
shaped(
  "diagonal",
  `jnp.diagonal(a)`,
  (x) => np.diagonal(x),
  () => ({}),
  { minRank: 2 },
);
shaped(
  "rot90",
  `jnp.rot90(a, p["k"])`,
  (x, p) => np.rot90(x, numberOf(p, "k")),
  (draw) => ({ k: draw.int(-3, 4) }),
  { minRank: 2 },
);
shaped(
  "norm",
  `jnp.linalg.norm(a, axis=p["axis"])`,
  (x, p) => np.linalg.norm(x, null, numberOf(p, "axis")),
  one,
  { chains: false },
);
shaped(
  "glu",
  `jax.nn.glu(jnp.concatenate([a, a * 2], -1))`,
  (x) => nn.glu(np.concatenate([x, x.mul(2)], -1)),
  () => ({}),
  { chains: false },
);
shaped(
  "index, negative steps",
  `a[::-1]`,
  (x) => x.get(np.s(null, null, -1)),
  () => ({}),
);
shaped(
  "index, a row",
  `a[-1]`,
  (x) => x.get(-1),
  () => ({}),
  { minRank: 2 },
);
shaped(
  "index, ellipsis and new dims",
  `a[..., None, :1]`,
  (x) => x.get("...", null, np.s(0, 1)),
  () => ({}),
);
shaped(
  "index, an array",
  `a[jnp.array([0, -1, 0])]`,
  (x) => x.get(np.array([0, -1, 0], "int32")),
  () => ({}),
);
shaped(
  "at set",
  `a.at[0].set(0.5)`,
  (x) => x.at(0).set(0.5),
  () => ({}),
);
shaped(
  "at add",
  `a.at[jnp.array([0, 0, -1])].add(a[0] * 2)`,
  (x) => x.at(np.array([0, 0, -1], "int32")).add(x.get(0).mul(2)),
  () => ({}),
);
shaped(
  "at multiply",
  `a.at[..., 0].multiply(3.0)`,
  (x) => x.at("...", 0).multiply(3),
  () => ({}),
);
shaped(
  "at max",
  `a.at[0].max(0.25)`,
  (x) => x.at(0).max(0.25),
  () => ({}),
);
shaped(
  "topK",
  `lax.top_k(a, 1)[0]`,
  (x) => lax.topK(x, 1)[0],
  () => ({}),
);

other(
  "matmul",
  "jnp.matmul(a, b)",
  (args) => np.matmul(first(args), second(args)),
  (draw) => {
    const [m, k, n] = [draw.size(), draw.size(), draw.size()];
    const batch = draw.pick<number[]>([[], [2], [3, 1], [1, 2]]);
    const other = draw.pick<number[]>([[], [2], [2]]);
    return draw.chance(0.3)
      ? { operands: [{ shape: [k] }, { shape: [...batch, k, n] }] }
      : { operands: [{ shape: [...batch, m, k] }, { shape: [...other, k, n] }] };
  },
);
other(
  "dot",
  "jnp.dot(a, b)",
  (args) => np.dot(first(args), second(args)),
  (draw) => {
    const k = draw.size();
    return {
      operands: [
        { shape: [draw.size(), k] },
        { shape: draw.pick<number[]>([[k], [k, draw.size()], [2, k, 3]]) },
      ],
    };
  },
);
other(
  "tensordot",
  "jnp.tensordot(a, b, axes=2)",
  (args) => np.tensordot(first(args), second(args), 2),
  (draw) => {
    const [k, l] = [draw.size(), draw.size()];
    return { operands: [{ shape: [draw.size(), k, l] }, { shape: [k, l, draw.size()] }] };
  },
);
other(
  "outer",
  "jnp.outer(a, b)",
  (args) => np.outer(first(args), second(args)),
  (draw) => ({ operands: [{ shape: [draw.size()] }, { shape: [draw.size()] }] }),
);
other(
  "inner",
  "jnp.inner(a, b)",
  (args) => np.inner(first(args), second(args)),
  (draw) => {
    const k = draw.size();
    return { operands: [{ shape: [draw.size(), k] }, { shape: [draw.size(), k] }] };
  },
);
other(
  "kron",
  "jnp.kron(a, b)",
  (args) => np.kron(first(args), second(args)),
  (draw) => ({ operands: [{ shape: [draw.size(), 2] }, { shape: [draw.size(), 3] }] }),
);
other(
  "cross",
  "jnp.cross(a, b)",
  (args) => np.cross(first(args), second(args)),
  (draw) => {
    const n = draw.size();
    return { operands: [{ shape: [n, 3] }, { shape: [n, 3] }] };
  },
);
const einsums: readonly [string, number[], number[]][] = [
  ["ij,jk->ik", [2, 3], [3, 4]],
  ["bij,bkj->bik", [2, 3, 4], [2, 5, 4]],
  ["ij,ij->", [2, 3], [2, 3]],
  ["ij,kl->ijkl", [2, 3], [3, 2]],
  ["i,j->ji", [3], [4]],
  ["bhqd,bhkd->bhqk", [2, 2, 3, 4], [2, 2, 5, 4]],
  ["...ij,jk->...ik", [2, 2, 3], [3, 2]],
  ["ii,ij->j", [3, 3], [3, 2]],
  ["ab,b", [3, 4], [4]],
];
other(
  "einsum",
  `jnp.einsum(p["formula"], a, b)`,
  (args, p) => np.einsum(String(p.formula), first(args), second(args)),
  (draw) => {
    const [formula, x, y] = draw.pick(einsums);
    return { operands: [{ shape: x }, { shape: y }], params: { formula } };
  },
);
other(
  "take",
  `jnp.take(a, b, axis=p["axis"], mode="clip")`,
  (args, p) => np.take(first(args), second(args), numberOf(p, "axis"), { mode: "clip" }),
  (draw) => {
    const shape = draw.shape();
    return {
      operands: [
        { shape },
        { shape: draw.pick<number[]>([[], [3], [2, 2]]), dtype: "int32", low: -1, high: 6 },
      ],
      params: { axis: draw.dim(shape.length) },
    };
  },
);
other(
  "takeAlongAxis",
  `jnp.take_along_axis(a, b, axis=-1)`,
  (args) => np.takeAlongAxis(first(args), second(args), -1),
  (draw) => {
    const n = draw.size();
    return { operands: [{ shape: [n, 4] }, { shape: [n, 3], dtype: "int32", low: 0, high: 4 }] };
  },
);
other(
  "concatenate",
  `jnp.concatenate([a, b], axis=p["axis"])`,
  (args, p) => np.concatenate([first(args), second(args)], numberOf(p, "axis")),
  (draw) => {
    const shape = draw.shape();
    return { operands: [{ shape }, { shape }], params: { axis: draw.dim(shape.length) } };
  },
);
other(
  "stack",
  `jnp.stack([a, b], axis=p["axis"])`,
  (args, p) => np.stack([first(args), second(args)], numberOf(p, "axis")),
  (draw) => {
    const shape = draw.shape();
    return { operands: [{ shape }, { shape }], params: { axis: draw.dim(shape.length + 1) } };
  },
);
other(
  "split",
  `jnp.split(a, 2, axis=0)[1]`,
  (args) => np.split(first(args), 2, 0)[1] ?? first(args),
  (draw) => ({ operands: [{ shape: [4, draw.size()] }] }),
);
other(
  "dynamicSlice",
  `lax.dynamic_slice(a, (b, 1), (2, 2))`,
  (args) => lax.dynamicSlice(first(args), [second(args), 1], [2, 2]),
  () => ({ operands: [{ shape: [5, 4] }, { shape: [], dtype: "int32", low: -7, high: 7 }] }),
);
other(
  "dynamicUpdateSlice",
  `lax.dynamic_update_slice(a, b, (c, 1))`,
  (args) => lax.dynamicUpdateSlice(first(args), second(args), [third(args), 1]),
  () => ({
    operands: [{ shape: [5, 4] }, { shape: [2, 2] }, { shape: [], dtype: "int32", low: -7, high: 7 }],
  }),
);
other(
  "scan",
  `lax.scan(lambda c, x: (jnp.sin(c) * b + x, c * x), a[0], a)[1]`,
  (args) => {
    const [x, w] = [first(args), second(args)];
    return lax.scan(
      (c: Tensor, v: Tensor): [Tensor, Tensor] => [np.sin(c).mul(w).add(v), c.mul(v)],
      x.get(0),
      x,
    )[1];
  },
  (draw) => {
    const n = draw.size();
    return { operands: [{ shape: [4, n] }, { shape: [n] }] };
  },
);
other(
  "cond",
  `lax.cond(jnp.sum(a) > 0, lambda u, v: jnp.sin(u) * v, lambda u, v: u - v, a, b)`,
  (args) =>
    lax.cond(
      np.sum(first(args)).gt(0),
      (u: Tensor, v: Tensor) => np.sin(u).mul(v),
      (u: Tensor, v: Tensor) => u.sub(v),
      first(args),
      second(args),
    ),
  (draw) => {
    const shape = draw.shape();
    return { operands: [{ shape }, { shape }] };
  },
);
other(
  "foriLoop",
  `lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ b) + i, a)`,
  (args) => lax.foriLoop(0, 3, (i, c: Tensor) => np.tanh(np.matmul(c, second(args))).add(i), first(args)),
  (draw) => {
    const n = draw.size();
    return { operands: [{ shape: [n] }, { shape: [n, n] }] };
  },
);
other(
  "vmap",
  `jax.vmap(lambda x, y: jnp.sum(x * y) / (1 + jnp.max(x)), in_axes=(0, None))(a, b)`,
  (args) =>
    vmap((x: Tensor, y: Tensor) => np.sum(x.mul(y)).div(np.max(x).add(1)), { inAxes: [0, null] })(
      first(args),
      second(args),
    ),
  (draw) => {
    const n = draw.size();
    return { operands: [{ shape: [3, n], low: 0 }, { shape: [n] }] };
  },
);
other(
  "attention",
  `jax.nn.dot_product_attention(a, b, b * 0.5)`,
  (args) => nn.dotProductAttention(first(args), second(args), second(args).mul(0.5)),
  () => ({ operands: [{ shape: [2, 3, 2, 4] }, { shape: [2, 3, 2, 4] }] }),
);
other(
  "oneHot",
  `jax.nn.one_hot(b, 5) @ a`,
  (args) => np.matmul(nn.oneHot(second(args), 5), first(args)),
  () => ({ operands: [{ shape: [5, 2] }, { shape: [4], dtype: "int32", low: -1, high: 6 }] }),
);
other(
  "searchsorted",
  `jnp.searchsorted(jnp.sort(a), b)`,
  (args) => np.searchsorted(np.sort(first(args)), second(args)),
  () => ({ operands: [{ shape: [7] }, { shape: [4] }] }),
);
other(
  "interp of extremes",
  `jnp.where(jnp.isfinite(1 / jnp.where(a > 0, a, 0)), a, -a)`,
  (args) => {
    const a = first(args);
    return np.where(np.isfinite(np.divide(1, np.where(a.gt(0), a, 0))), a, a.neg());
  },
  (draw) => ({ operands: [{ shape: draw.shape() }] }),
);

/** Functions on all pairs of data types, whose results also have to agree in data type. */
const mixed: readonly [string, string, (a: Tensor, b: Tensor) => Tensor][] = [
  ["add", "jnp.add(a, b)", np.add],
  ["multiply", "jnp.multiply(a, b)", np.multiply],
  ["divide", "jnp.divide(a, b)", np.divide],
  ["maximum", "jnp.maximum(a, b)", np.maximum],
  ["less", "jnp.less(a, b)", np.less],
  ["where", "jnp.where(a > 1, a, b)", (a, b) => np.where(np.greater(a, 1), a, b)],
  ["power", "jnp.power(a, b)", np.power],
  ["floorDivide", "jnp.floor_divide(a, b)", np.floorDivide],
  ["mod", "jnp.mod(a, b)", np.mod],
  ["matmul", "jnp.matmul(a, b)", np.matmul],
  ["arctan2", "jnp.arctan2(a, b)", np.atan2],
];
const narrow = ["int8", "uint8", "int16", "uint16"] as const;
const dtypes = ["float32", "bfloat16", "float16", "int32", "uint32", ...narrow, "bool", "complex64"] as const;
/** What is refused of complex numbers, or orders them, which the goldens of complex numbers have. */
const ofRealsAlone = ["maximum", "less", "where", "floorDivide", "mod", "arctan2", "argmax", "softmax"];
for (const [name, py, ts] of mixed) {
  for (const x of dtypes) {
    for (const y of dtypes) {
      if (["power", "floorDivide", "mod"].includes(name) && (x === "bool" || y === "bool")) continue;
      if (ofRealsAlone.includes(name) && (x === "complex64" || y === "complex64")) continue;
      const spec = (dtype: (typeof dtypes)[number]): OperandSpec => ({
        shape: [4],
        dtype,
        low: 1,
        high: dtype === "bool" ? 2 : 4,
      });
      records.push({
        name: `${name} of ${x} and ${y}`,
        py,
        ts: (args) => ts(first(args), second(args)),
        call: () => ({ operands: [spec(x), spec(y)] }),
      });
    }
  }
}
const typed: readonly [string, string, (a: Tensor) => Tensor][] = [
  ["sum", "jnp.sum(a)", (a) => np.sum(a)],
  ["mean", "jnp.mean(a)", (a) => np.mean(a)],
  ["prod", "jnp.prod(a)", (a) => np.prod(a)],
  ["max", "jnp.max(a)", (a) => np.max(a)],
  ["var", "jnp.var(a)", (a) => np.var(a)],
  ["cumsum", "jnp.cumsum(a)", (a) => np.cumsum(a)],
  ["exp", "jnp.exp(a)", np.exp],
  ["sqrt", "jnp.sqrt(a)", np.sqrt],
  ["argmax", "jnp.argmax(a)", (a) => np.argmax(a)],
  ["sort", "jnp.sort(a)", (a) => np.sort(a)],
  ["softmax", "jax.nn.softmax(a)", (a) => nn.softmax(a)],
  ["a number added", "a + 1", (a) => a.add(1)],
  ["a fraction multiplied", "a * 0.5", (a) => a.mul(0.5)],
  ["a number divided", "1 / a", (a) => np.divide(1, a)],
];
for (const [name, py, ts] of typed) {
  for (const dtype of dtypes) {
    if (dtype === "bool" && ["sort", "softmax"].includes(name)) continue;
    if (dtype === "complex64" && ofRealsAlone.includes(name)) continue;
    // JAX subtracts the maximum in the unsigned type, which wraps around.
    if (dtype.startsWith("uint") && name === "softmax") continue;
    records.push({
      name: `${name} of ${dtype}`,
      py,
      ts: (args) => ts(first(args)),
      call: () => ({ operands: [{ shape: [5], dtype, low: 1, high: dtype === "bool" ? 2 : 4 }] }),
    });
  }
}

/** Functions of complex numbers z, w = a + bi, b − ai; both parts of what they give, so that they are differentiated. */
function ofComplex(
  name: string,
  py: string,
  ts: (z: Tensor, w: Tensor) => Tensor,
  { shape = (draw: Draw): number[] => draw.shape(), low = -2, high = 2 } = {},
): void {
  records.push({
    name: `${name} of complex numbers`,
    py: `(lambda y: jnp.stack([jnp.real(y), jnp.imag(y)]))((lambda z, w: ${py})(lax.complex(a, b), lax.complex(b, -a)))`,
    ts: (args) => {
      const [a, b] = [first(args), second(args)];
      const y = ts(lax.complex(a, b), lax.complex(b, a.neg()));
      return np.stack([np.real(y), np.imag(y)]);
    },
    call: (draw) => {
      const own = shape(draw);
      return { operands: [0, 1].map(() => ({ shape: own, low, high })) };
    },
  });
}

const matrix = () => ({ shape: (draw: Draw) => [draw.int(2, 5), draw.int(2, 5)] });
const squareMatrix = () => ({ shape: (draw: Draw) => [draw.int(2, 5)].flatMap((n) => [n, n]) });
ofComplex("abs", "jnp.abs(z)", (z) => np.abs(z));
ofComplex("angle", "jnp.angle(z)", (z) => np.angle(z));
ofComplex("conj", "jnp.conj(z) * w", (z, w) => z.conj().mul(w));
ofComplex("divide", "z / (w + 3)", (z, w) => z.div(w.add(3)));
ofComplex("exp", "jnp.exp(z)", (z) => np.exp(z));
ofComplex("log", "jnp.log(z)", (z) => np.log(z), { low: 0.5 });
ofComplex("sqrt", "jnp.sqrt(z)", (z) => np.sqrt(z), { low: 0.5 });
ofComplex("sin", "jnp.sin(z) + jnp.cos(w)", (z, w) => np.sin(z).add(np.cos(w)));
ofComplex("tanh", "jnp.tanh(z)", (z) => np.tanh(z), { low: -0.7, high: 0.7 });
ofComplex("power", "z ** w", (z, w) => z.pow(w), { low: 0.5, high: 1.5 });
ofComplex("sum", "jnp.sum(z * z, 0)", (z) => np.sum(z.mul(z), 0));
ofComplex("prod", "jnp.prod(z, -1)", (z) => np.prod(z, -1));
ofComplex("cumsum", "jnp.cumsum(z * w, -1)", (z, w) => np.cumsum(z.mul(w), -1));
ofComplex("var", "jnp.var(z)", (z) => np.var(z));
ofComplex("where", "jnp.where(jnp.abs(z) > 1, z, w * 2j)", (z, w) =>
  np.where(np.abs(z).gt(1), z, w.mul(complex(0, 2))),
);
ofComplex("matmul", "z @ jnp.swapaxes(w, -1, -2)", (z, w) => np.matmul(z, np.matrixTranspose(w)), matrix());
ofComplex("fft", "jnp.fft.fft(z) * w", (z, w) => np.fft.fft(z).mul(w));
ofComplex(
  "inv",
  "jnp.linalg.inv(z + 9 * jnp.eye(z.shape[-1]))",
  (z) => np.linalg.inv(shifted(z, 9)),
  squareMatrix(),
);
ofComplex("det", "jnp.linalg.det(z)", (z) => np.linalg.det(z), squareMatrix());
ofComplex(
  "cholesky",
  "jnp.linalg.cholesky(z @ z.conj().T + 9 * jnp.eye(z.shape[-1]))",
  (z) => np.linalg.cholesky(shifted(np.matmul(z, z.conj().T), 9)),
  squareMatrix(),
);
ofComplex(
  "qr",
  "jnp.linalg.qr(z + 9 * jnp.eye(z.shape[-1]))[0]",
  (z) => np.linalg.qr(shifted(z, 9))[0],
  squareMatrix(),
);
ofComplex(
  "scan",
  "lax.scan(lambda c, x: (c * x + 1j, jnp.conj(c)), z[0], w)[1]",
  (z, w) =>
    lax.scan(
      (c: Tensor, x: Tensor): [Tensor, Tensor] => [c.mul(x).add(complex(0, 1)), c.conj()],
      z.get(0),
      w,
    )[1],
);

function shifted(z: Tensor, by: number): Tensor {
  return z.add(np.eye(z.shape.at(-1) ?? 0).mul(by));
}

/** All functions that are compared. */
export const functionRecords: readonly FunctionRecord[] = records;
