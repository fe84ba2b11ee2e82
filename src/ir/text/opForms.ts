import type { DType } from "../dtype.js";
import type { MeshShape, Spec } from "../mesh.js";
import { rowsOf, uniformFamilies } from "../opFacts.js";
import {
  attentionExtras,
  type CallbackBatching,
  type CallbackKind,
  type CompareDirection,
  type Float8,
  type OpName,
  type OpParams,
  type Precision,
  type RaggedDim,
  type XlaFunction,
} from "../ops.js";
import type { Atom, Program } from "../program.js";
import {
  among,
  axes,
  constraint,
  count,
  counts,
  dtype,
  flag,
  hops,
  hostFunction,
  list,
  mesh,
  named,
  number,
  oneOf,
  onlyTrue,
  optional,
  type ParamForm,
  pairOf,
  plainType,
  policy,
  role,
  specs,
  text,
} from "./forms.js";
import type { Scanner } from "./scanner.js";

type ProgramNames<K extends OpName> = {
  [P in keyof OpParams[K]]-?: OpParams[K][P] extends Program | readonly Program[] ? P : never;
}[keyof OpParams[K]];

type Values<K extends OpName> = Omit<OpParams[K], ProgramNames<K>>;

/** How an equation's parameters are printed and parsed. */
export interface OpForm<K extends OpName> {
  /** The entries in braces after the operands, each `name: value`; an empty list prints no braces. */
  print(params: Values<K>, ins: readonly Atom[]): readonly string[];
  /** Reads what {@link print} wrote, without the braces. */
  parse(scanner: Scanner, ins: readonly Atom[]): Values<K>;
  /** The parameters that are programs or lists of programs, printed after the braces. */
  readonly programs: { readonly [P in ProgramNames<K>]: "one" | "list" };
}

type ValueForms<K extends OpName> = {
  readonly [P in keyof Values<K>]-?: ParamForm<NonNullable<Values<K>[P]>>;
};

/** The form of an op whose parameters are printed by name, in the order given here. */
function fields<K extends OpName>(
  forms: ValueForms<K>,
  programs: { readonly [P in ProgramNames<K>]: "one" | "list" },
): OpForm<K> {
  return { ...named<Values<K>>(forms), programs };
}

const raggedDim = oneOf<RaggedDim>({ rows: true, sums: true });

const precision = oneOf<Precision>({ default: true, high: true, highest: true });

type DimPairs = readonly [lhs: readonly number[], rhs: readonly number[]];

/** Dims of both operands, such as `[1]x[0]`. */
const dimPairs: ParamForm<DimPairs> = pairOf(counts, "x");

const dotFields = named<{ contract: DimPairs; batch?: DimPairs; dtype?: DType; precision?: Precision }>({
  contract: dimPairs,
  batch: optional(dimPairs),
  dtype: optional(dtype),
  precision: optional(precision),
});

const dotGeneral: OpForm<"dotGeneral"> = {
  print({ lhsContract, rhsContract, lhsBatch, rhsBatch, dtype: result, precision: exact }, ins) {
    const isBatched = lhsBatch.length > 0 || rhsBatch.length > 0;
    return dotFields.print({
      contract: [lhsContract, rhsContract],
      batch: isBatched ? [lhsBatch, rhsBatch] : undefined,
      dtype: ins.every(({ type }) => type.dtype === result) ? undefined : result,
      precision: exact,
    });
  },
  parse(scanner, ins) {
    const {
      contract,
      batch = [[], []],
      dtype: result = ins[0]?.type.dtype,
      ...rest
    } = dotFields.parse(scanner);
    const [[lhsContract, rhsContract], [lhsBatch, rhsBatch]] = [contract, batch];
    const dims = { lhsContract, rhsContract, lhsBatch, rhsBatch };
    return { ...dims, dtype: result ?? scanner.fail("two operands before the parameters"), ...rest };
  },
  programs: {},
};

const shardMapFields = named<{
  mesh: MeshShape;
  manual?: readonly string[];
  in: readonly Spec[];
  out: readonly Spec[];
  checked?: boolean;
}>({
  mesh,
  manual: optional(list(text, ", ")),
  in: specs,
  out: specs,
  checked: optional(flag),
});

const shardMap: OpForm<"shardMap"> = {
  print({ mesh: whole, manual, inSpecs, outSpecs, checked }) {
    const isAll =
      manual.length === whole.axes.length && manual.every((name, i) => name === whole.axes[i]?.name);
    return shardMapFields.print({
      mesh: whole,
      manual: isAll ? undefined : manual,
      in: inSpecs,
      out: outSpecs,
      checked: checked ? undefined : false,
    });
  },
  parse(scanner) {
    const values = shardMapFields.parse(scanner);
    const { mesh: whole, manual = whole.axes.map(({ name }) => name), checked = true } = values;
    return { mesh: whole, manual, inSpecs: values.in, outSpecs: values.out, checked };
  },
  programs: { body: "one" },
};

const comparison = oneOf<CompareDirection>({ eq: true, ne: true, lt: true, le: true, gt: true, ge: true });
const xlaFunction = oneOf<XlaFunction>({ erf: true, erfInv: true, exponentialQuantile: true });
const float8 = oneOf<Float8>({ e4m3fn: true, e5m2: true });
const combine = oneOf<OpParams["scatter"]["combine"]>({ add: true, set: true });

const callbackKind = oneOf<CallbackKind>({ pure: true, debug: true, io: true, check: true });
const callbackBatching = oneOf<CallbackBatching>({
  sequential: true,
  expandDims: true,
  broadcastAll: true,
  never: true,
});

const attentionExtra = among(`an operand of attention (${attentionExtras.join(", ")})`, attentionExtras);

const window: ParamForm<readonly [before: number, after: number]> = {
  print: counts.print,
  parse(scanner) {
    const start = scanner.here;
    const [before, after, ...rest] = counts.parse(scanner);
    if (before !== undefined && after !== undefined && rest.length === 0) return [before, after];
    return scanner.failAt(start, "two sides of a window");
  },
};

const attention: ValueForms<"attention"> = {
  scale: number,
  causal: flag,
  window: optional(window),
  softcap: optional(number),
  dropoutRate: optional(number),
  extras: optional(list(attentionExtra)),
};

const none = fields<"neg">({}, {});

/** How the parameters of every op are printed and parsed. */
const opForms: { readonly [K in OpName]: OpForm<K> } = {
  ...rowsOf(uniformFamilies, none),
  isFinite: none,
  convert: fields({ dtype }, {}),
  bitcast: fields({ dtype }, {}),
  xlaFunction: fields({ fn: xlaFunction }, {}),
  roundFloat8: fields({ format: float8 }, {}),
  compare: fields({ direction: comparison }, {}),
  select: none,
  clamp: none,
  threefry2x32: none,
  name: fields({ name: text }, {}),
  stopGradient: none,
  pvary: fields({ over: axes }, {}),
  optimizationBarrier: none,
  iota: fields({ dtype, shape: counts, dim: count }, {}),
  broadcastInDim: fields({ shape: counts, dims: counts, unset: onlyTrue }, {}),
  reshape: fields({ shape: counts }, {}),
  transpose: fields({ permutation: counts }, {}),
  reverse: fields({ dims: counts }, {}),
  slice: fields({ starts: counts, limits: counts, strides: counts }, {}),
  pad: fields({ low: counts, high: counts, interior: counts }, {}),
  concatenate: fields({ dim: count }, {}),
  dynamicSlice: fields({ sizes: counts }, {}),
  dynamicUpdateSlice: none,
  gather: fields({ dim: count, batchDims: count }, {}),
  scatter: fields({ dim: count, batchDims: count, combine }, {}),
  reduceSum: fields({ dims: counts }, {}),
  reduceMax: fields({ dims: counts }, {}),
  reduceMin: fields({ dims: counts }, {}),
  argmax: fields({ dim: count }, {}),
  argmin: fields({ dim: count }, {}),
  cumsum: fields({ dim: count, reverse: flag }, {}),
  sort: fields({ dim: count, numKeys: count }, {}),
  dotGeneral,
  raggedDot: fields({ ragged: raggedDim, dtype, precision: optional(precision) }, {}),
  attention: fields(attention, {}),
  attentionBackward: fields({ ...attention, wants: optional(list(oneOf({ bias: true, sinks: true }))) }, {}),
  callback: fields(
    {
      fn: hostFunction,
      kind: callbackKind,
      batching: callbackBatching,
      results: list(plainType, ", "),
      once: axes,
    },
    {},
  ),
  scan: fields({ length: count, reverse: flag, numConsts: count, numCarry: count, role }, { body: "one" }),
  while: fields({ numConditionConsts: count, numBodyConsts: count }, { condition: "one", body: "one" }),
  cond: fields({ role }, { branches: "list" }),
  remat: fields({ policy }, { body: "one" }),
  customVjp: fields(
    { numCaptures: count, numResiduals: count },
    { body: "one", forward: "one", backward: "one" },
  ),
  psum: fields({ axes }, {}),
  pmax: fields({ axes }, {}),
  pmin: fields({ axes }, {}),
  allGather: fields({ axes, dim: count }, {}),
  psumScatter: fields({ axes, dim: count }, {}),
  ppermute: fields({ axes, permutation: hops, unset: onlyTrue }, {}),
  allToAll: fields({ axes, splitDim: count, concatDim: count }, {}),
  raggedAllToAll: fields({ axes }, {}),
  axisIndex: fields({ axes }, {}),
  shardMap,
  shardingConstraint: fields({ mesh, spec: constraint }, {}),
};

/** How an op's parameters are printed and parsed. */
export function opForm<K extends OpName>(op: K): OpForm<K> {
  return opForms[op];
}
