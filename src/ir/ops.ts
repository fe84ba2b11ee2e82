import type { HostFunction } from "./callbacks.js";
import type { DType } from "./dtype.js";
import type { DimConstraint, MeshAxis, MeshShape, Spec } from "./mesh.js";
import type { Program } from "./program.js";
import type { Shape, TensorType } from "./shape.js";

/** An op without parameters. */
export type None = Readonly<Record<never, never>>;

/** How two elements are compared. */
export type CompareDirection = "eq" | "ne" | "lt" | "le" | "gt" | "ge";

/** The error function, its inverse, and −ln(1 − u), which draws from the exponential distribution. */
export type XlaFunction = "erf" | "erfInv" | "exponentialQuantile";

/** A float8 type: its bits of exponent and mantissa, and whether it is without infinities (`fn`). */
export type Float8 = "e4m3fn" | "e5m2";

/** The float8 types. */
export const float8Types: readonly Float8[] = ["e4m3fn", "e5m2"];

/**
 * The minimum precision of float32 products, by JAX's names: `highest` keeps all 24 bits of the factors, `high` and
 * `default` allow devices to use fewer, such as the 11 of TF32.
 */
export type Precision = "default" | "high" | "highest";

/** The precisions, lowest first. */
export const precisions: readonly Precision[] = ["default", "high", "highest"];

/** Which intermediate values of a `remat` region are kept for the backward pass instead of recomputed. */
export type RematPolicy =
  | { readonly kind: "nothing" }
  | { readonly kind: "everything" }
  | { readonly kind: "dots" }
  | { readonly kind: "dotsWithNoBatchDims" }
  | { readonly kind: "names"; readonly names: readonly string[] }
  | { readonly kind: "exceptNames"; readonly names: readonly string[] }
  | { readonly kind: "either"; readonly policies: readonly RematPolicy[] };

/** The kinds of policies, which texts and callers name. */
export const rematPolicyKinds: { readonly [K in RematPolicy["kind"]]: true } = {
  nothing: true,
  everything: true,
  dots: true,
  dotsWithNoBatchDims: true,
  names: true,
  exceptNames: true,
  either: true,
};

/** A reduction over whole dimensions, which disappear from the result. */
export interface Reduction {
  readonly dims: readonly number[];
}

/** Which dim of a ragged product is divided into groups: rows of the result, or what is summed. */
export type RaggedDim = "rows" | "sums";

/** The further operands that attention may have, in this order. */
export const attentionExtras = [
  /** Added to the scores: floats `[batch, N, T, S]`, where any size may be 1. */
  "bias",
  /** Which keys a query sees: bool `[batch, N, T, S]`, where any size may be 1. */
  "mask",
  /** Queries see keys of their own segment only: int32 `[batch, T]` and `[batch, S]`. */
  "querySegments",
  "keySegments",
  /** What `causal` and `window` compare instead of indices: int32 `[batch, T]` and `[batch, S]`. */
  "queryPositions",
  "keyPositions",
  /** The score of a key without a value, which every query of a head sees: floats `[batch, N]`; the batch may be 1. */
  "sinks",
  /** Threefry keys, uint32 `[batch, N, 2]`: a weight is dropped by the bits of its two positions. */
  "dropoutKeys",
  /** Only of the backward pass: the cotangent of the log-sums. */
  "logSumsCotangent",
] as const;

/** The name of a further operand of attention. */
export type AttentionExtra = (typeof attentionExtras)[number];

/** How attention weighs keys. */
export interface Attention {
  readonly scale: number;
  readonly causal: boolean;
  /** How many positions a query sees before and after its own; −1 for all. */
  readonly window?: readonly [before: number, after: number];
  /** Scores x become softcap · tanh(x / softcap). */
  readonly softcap?: number;
  /** The probability with which a weight is dropped. */
  readonly dropoutRate?: number;
  /** The operands that follow the usual ones. */
  readonly extras?: readonly AttentionExtra[];
}

/** The operands of attention besides query, key and value that have cotangents. */
export const attentionWants = ["bias", "sinks"] as const satisfies readonly AttentionExtra[];

/** One of `attentionWants`. */
export type AttentionWant = (typeof attentionWants)[number];

/**
 * What calling a host callback means: a `pure` one only computes, may be called more often or never; `debug` and `io`
 * ones are called once for every run of their equation, in the order of the program. A `check` receives whether a
 * condition holds and the values for its message, and throws if it does not.
 */
export type CallbackKind = "pure" | "debug" | "io" | "check";

/**
 * How a host callback is batched: one call per element, or one for all, in which unbatched operands have a dim of size
 * 1 or are repeated; `never` refuses.
 */
export type CallbackBatching = "sequential" | "expandDims" | "broadcastAll" | "never";

/** A collective among the devices that differ only along `axes`. */
export interface Collective {
  readonly axes: readonly MeshAxis[];
}

/**
 * The op catalogue: every op with its parameters. Meaning follows StableHLO.
 *
 * Elementwise ops take operands of one shape; a scalar literal fits any shape. Everything else is explicit:
 * no op broadcasts or promotes.
 */
export interface OpParams {
  // elementwise, one operand
  neg: None;
  exp: None;
  expm1: None;
  log: None;
  log1p: None;
  tanh: None;
  sin: None;
  cos: None;
  sqrt: None;
  rsqrt: None;
  cbrt: None;
  abs: None;
  /** −1, 0 or 1; keeps −0 and NaN. */
  sign: None;
  floor: None;
  ceil: None;
  /** To the nearest integer, ties to even. */
  round: None;
  erf: None;
  erfInv: None;
  /** 1 / (1 + exp(−x)). */
  logistic: None;
  /** Logical for bool, bitwise for integers. */
  not: None;
  isFinite: None;
  /** Float to integer truncates toward zero and saturates, NaN gives 0; to bool is `x ≠ 0`. */
  convert: { readonly dtype: DType };
  /** Reads the same bits as another type of the same width. */
  bitcast: { readonly dtype: DType };
  /** A function with the bits that XLA computes on CPUs; see `xlaFunctions.ts`. */
  xlaFunction: { readonly fn: XlaFunction };
  /**
   * The nearest value of a float8 type, ties to even, in the operand's type; float64 is rounded to float32 first.
   * Overflow gives NaN or, where the type has it, an infinity. Its derivative is 1.
   */
  roundFloat8: { readonly format: Float8 };

  // elementwise, two operands
  add: None;
  sub: None;
  mul: None;
  /** Integer division truncates toward zero; by zero it gives −1 (all bits set). */
  div: None;
  /** The remainder with the sign of the dividend; integer remainder by zero gives the dividend. */
  rem: None;
  pow: None;
  /** NaN if either is NaN; `or` for bool. */
  max: None;
  /** NaN if either is NaN; `and` for bool. */
  min: None;
  and: None;
  or: None;
  xor: None;
  /** Shifts by at least 32 give 0. */
  shl: None;
  shrLogical: None;
  shrArithmetic: None;
  atan2: None;
  compare: { readonly direction: CompareDirection };

  // elementwise, more operands
  /** `select(predicate, onTrue, onFalse)`. */
  select: None;
  /** `clamp(low, x, high)` = min(max(x, low), high). */
  clamp: None;
  /** `(key0, key1, counter0, counter1) → (bits0, bits1)`, 20 rounds, all uint32. */
  threefry2x32: None;

  // identities with a purpose
  /** Marks a value for remat policies. */
  name: { readonly name: string };
  stopGradient: None;
  /** Marks a value that is equal along the axes `over` as one that may differ along them. */
  pvary: { readonly over: readonly MeshAxis[] };
  /** `(…xs) → (…xs)`: no result is available before all operands are, and nothing is merged across it. */
  optimizationBarrier: None;

  // making and moving
  iota: { readonly dtype: DType; readonly shape: Shape; readonly dim: number };
  /**
   * Operand dim `i` becomes result dim `dims[i]` (strictly increasing); size-1 operand dims are repeated. Elements that
   * are `unset` are guaranteed to be written before they are read, so an engine may leave them uninitialised.
   */
  broadcastInDim: { readonly shape: Shape; readonly dims: readonly number[]; readonly unset?: true };
  reshape: { readonly shape: Shape };
  /** Result dim `i` is operand dim `permutation[i]`. */
  transpose: { readonly permutation: readonly number[] };
  reverse: { readonly dims: readonly number[] };
  slice: {
    readonly starts: readonly number[];
    readonly limits: readonly number[];
    readonly strides: readonly number[];
  };
  /** `(x, paddingValue)`; `low` and `high` may be negative (cropping), `interior` goes between elements. */
  pad: {
    readonly low: readonly number[];
    readonly high: readonly number[];
    readonly interior: readonly number[];
  };
  concatenate: { readonly dim: number };
  /** `(x, start0, start1, …)` with one int32 scalar per dim; starts are clamped so that the slice fits. */
  dynamicSlice: { readonly sizes: Shape };
  /** `(x, update, start0, start1, …)`; starts are clamped so that the update fits. */
  dynamicUpdateSlice: None;
  /**
   * `(x, indices)` takes slices of size 1 along `dim`. The first `batchDims` dims of both are paired;
   * x `[batch…, pre…, n, post…]`, int32 indices `[batch…, rest…]` give `[batch…, pre…, rest…, post…]`.
   * Indices are clamped to 0 … n − 1.
   */
  gather: { readonly dim: number; readonly batchDims: number };
  /**
   * `(x, indices, updates)`: the updates, shaped like the result of the same `gather`, are added to x, or
   * written over it (the last one wins). Updates whose index is outside 0 … n − 1 are dropped.
   */
  scatter: { readonly dim: number; readonly batchDims: number; readonly combine: "add" | "set" };

  // reductions
  reduceSum: Reduction;
  /** Also `any` for bool. */
  reduceMax: Reduction;
  /** Also `all` for bool. */
  reduceMin: Reduction;
  /** The int32 index of the first largest element along `dim`; NaN counts as largest. */
  argmax: { readonly dim: number };
  /** The int32 index of the first smallest element along `dim`; NaN counts as smallest. */
  argmin: { readonly dim: number };
  cumsum: { readonly dim: number; readonly reverse: boolean };
  /** `(…xs) → (…sorted)`: stable, ascending by the first `numKeys` operands; −0 equals 0, NaN comes last. */
  sort: { readonly dim: number; readonly numKeys: number };
  /** Result dims: batch, then free dims of the left, then of the right operand. Accumulates in float32 or wider. */
  dotGeneral: {
    readonly lhsContract: readonly number[];
    readonly rhsContract: readonly number[];
    readonly lhsBatch: readonly number[];
    readonly rhsBatch: readonly number[];
    readonly dtype: DType;
    /** The minimum precision of float32 products; the engine's default if omitted. */
    readonly precision?: Precision;
  };
  /**
   * `(x, y, sizes)`: products of consecutive groups of rows of x `[batch…, m, k]`; the int32 sizes are `[batch…, g]`,
   * negative ones count as 0, and what exceeds m is cut off. With ragged `rows`, y is `[batch…, g, k, n]`: the rows of
   * a group are multiplied with its matrix, rows after the last group give zeros, the result is `[batch…, m, n]`. With
   * `sums`, y is `[batch…, m, n]`: the products of a group's rows are summed, the result is `[batch…, g, k, n]`.
   */
  raggedDot: {
    readonly ragged: RaggedDim;
    readonly dtype: DType;
    /** The minimum precision of float32 products; the engine's default if omitted. */
    readonly precision?: Precision;
  };
  /**
   * `(query, key, value, …extras) → (mixed, logSums)`: softmax(query · keyᵀ · scale) · value for every head, and the
   * logarithms of the softmax's sums. query is `[batch, T, N, H]`, key and value `[batch, S, K, H]` where each of the K
   * heads serves N / K query heads; logSums is `[batch, N, T]`. `causal` lets position t see positions up to t. The
   * result of a query that sees no key is 0, its log-sum −∞. The softmax is computed in float32 or wider, its weights
   * are rounded to the type of the operands.
   */
  attention: Attention;
  /**
   * `(query, key, value, logSums, mixedCotangent, mixed, …extras)` → the cotangents of query, key and value, and of the
   * operands that it `wants`, for every batch element and head: where sizes are 1, they are still to be summed.
   */
  attentionBackward: Attention & { readonly wants?: readonly AttentionWant[] };

  // the host
  /**
   * `(…operands) → (…results)`: passes the operands to a host callback and waits for its results. Of the devices that
   * differ only along the axes `once` only the first calls; the others get zeros.
   */
  callback: {
    readonly fn: HostFunction;
    readonly kind: CallbackKind;
    readonly batching: CallbackBatching;
    readonly results: readonly TensorType[];
    readonly once: readonly MeshAxis[];
  };

  // control flow
  /**
   * `(…consts, …carry, …xs) → (…carry, …ys)`; the body maps `(…consts, …carry, …x)` to `(…carry, …y)`
   * where x and y are slices along dim 0. `reverse` runs from the last slice to the first.
   */
  scan: {
    readonly body: Program;
    readonly length: number;
    readonly reverse: boolean;
    readonly numConsts: number;
    readonly numCarry: number;
    readonly role?: ControlRole;
  };
  /** `(…conditionConsts, …bodyConsts, …carry) → (…carry)` while `condition(…conditionConsts, …carry)`. */
  while: {
    readonly condition: Program;
    readonly body: Program;
    readonly numConditionConsts: number;
    readonly numBodyConsts: number;
  };
  /** `(int32 index, …operands)`: the branch with that index (clamped) applied to the operands. */
  cond: { readonly branches: readonly Program[]; readonly role?: ControlRole };
  /** The body; differentiation keeps only what the policy names and recomputes the rest. */
  remat: { readonly body: Program; readonly policy: RematPolicy };
  /**
   * The body with its own derivative. Operands are `(…captures, …args)`; `forward` maps them to
   * `(…outs, …residuals)`, `backward` maps `(…captures, …residuals, …outCotangents)` to the cotangents of the
   * args whose type is a float.
   */
  customVjp: {
    readonly body: Program;
    readonly forward: Program;
    readonly backward: Program;
    readonly numCaptures: number;
    readonly numResiduals: number;
  };

  // collectives: named axes of the surrounding shard map or vmap
  psum: Collective;
  pmax: Collective;
  pmin: Collective;
  /** Concatenates the devices' blocks along `dim`. */
  allGather: Collective & { readonly dim: number };
  /** Sums over the devices; each keeps its block of `dim`. */
  psumScatter: Collective & { readonly dim: number };
  /**
   * Sends to the listed destination; a device that receives nothing gets zeros, or, where its result is `unset` and
   * guaranteed not to be read, uninitialised memory.
   */
  ppermute: Collective & {
    readonly permutation: readonly (readonly [source: number, target: number])[];
    readonly unset?: true;
  };
  /** Splits `splitDim` among the devices and concatenates what they send along `concatDim`. */
  allToAll: Collective & { readonly splitDim: number; readonly concatDim: number };
  /**
   * `(x, into, sends, receives)`: moves blocks of rows between devices, the same number of blocks between any two of
   * them. The int32 tables are `[devices · blocks, 3]`. A row of `sends` is the first row of x that goes to a device, how
   * many go, and the row of its result where they begin; a row of `receives` the first row of the result that comes
   * from a device, how many come, and where they begin in its x. The other rows of the result are those of `into`. Both
   * tables must agree, and blocks must not overlap.
   */
  raggedAllToAll: Collective;
  /** The int32 position of this device, row-major over `axes`. */
  axisIndex: Collective;

  // two views of one mesh
  /** The body is a per-device program over the `manual` axes of the mesh. */
  shardMap: {
    readonly mesh: MeshShape;
    readonly manual: readonly string[];
    readonly inSpecs: readonly Spec[];
    readonly outSpecs: readonly Spec[];
    /** Whether the types in the body say along which axes values differ; see `varying.ts`. */
    readonly checked: boolean;
    readonly body: Program;
  };
  shardingConstraint: { readonly mesh: MeshShape; readonly spec: readonly DimConstraint[] };
}

/**
 * What a loop or a choice of a pipeline stands for. It changes nothing that is computed, and reaches the compiled steps,
 * so that those who read them need not guess:
 * * `forward` and `backward` loops pass every microbatch on by one stage in an iteration; the backward pass of a loop has
 *   the other role;
 * * in an iteration of a loop over `slots`, every stage takes the `action` that a schedule gives it;
 * * `message` is the choice whether a message is stored, `link` that of what two neighbours exchange.
 */
export type ControlRole =
  | PipelineLoop
  | { readonly kind: "action" }
  | { readonly kind: "message"; readonly from: "fromLeft" | "fromRight" | "fromSelf" }
  | { readonly kind: "link"; readonly link: number };

/** The role of a loop over the iterations or slots of a pipeline. */
export interface PipelineLoop {
  readonly kind: "forward" | "backward" | "slots";
  readonly numStages: number;
  readonly numMicrobatches: number;
  /** How often a microbatch passes through all stages; for slots, the number of chunks of a stage. */
  readonly numRepeats: number;
}

/** The name of an op. */
export type OpName = keyof OpParams;

/** A total table: one entry for every op, so that a new op makes the type checker list every missing rule. */
export type OpTable<Rule extends { readonly [K in OpName]: unknown }> = { readonly [K in OpName]: Rule[K] };

/** The names of an op's parameters that are programs, or lists of programs. */
type ProgramParam<K extends OpName> = {
  [P in keyof OpParams[K]]-?: OpParams[K][P] extends Program | readonly Program[] ? P : never;
}[keyof OpParams[K]];

/** Ops that carry programs inside. */
export type ProgramOp = { [K in OpName]: [ProgramParam<K>] extends [never] ? never : K }[OpName];

/** Ops that name axes of a mesh, so that devices may see different results of equal operands. */
export type AxisOp = { [K in OpName]: OpParams[K] extends Collective ? K : never }[OpName];
