import { HostFunction } from "./callbacks.js";
import { type DType, dtypes, shortName } from "./dtype.js";
import {
  type DimConstraint,
  formatMesh,
  formatSpec,
  type MeshAxis,
  type MeshShape,
  type Spec,
} from "./mesh.js";
import { rowsOf, uniformFamilies } from "./opFacts.js";
import {
  attentionExtras,
  type CallbackBatching,
  type CallbackKind,
  type CompareDirection,
  type ControlRole,
  type OpName,
  type OpParams,
  type Precision,
  type RaggedDim,
  type RematPolicy,
  type XlaFunction,
} from "./ops.js";
import type { Atom, Program } from "./program.js";
import type { Scanner } from "./scanner.js";
import { formatType, type TensorType } from "./shape.js";

/** How a parameter is printed and parsed. */
export interface Form<T> {
  print(value: T): string;
  parse(scanner: Scanner): T;
  /** Set for parameters at the end of an op's list that may be missing, in which case they are not printed. */
  readonly isOptional?: true;
}

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

const count: Form<number> = { print: String, parse: (scanner) => scanner.integer("an integer") };

const number: Form<number> = {
  print: String,
  parse: (scanner) => Number(scanner.number() ?? scanner.fail("a number")),
};

const flag: Form<boolean> = {
  print: String,
  parse: (scanner) =>
    scanner.eat("true") ? true : scanner.eat("false") ? false : scanner.fail("true or false"),
};

const text: Form<string> = {
  print: (value) => JSON.stringify(value),
  parse: (scanner) => scanner.string("a name"),
};

/** One of some names. */
function among<T extends string>(what: string, names: readonly T[]): Form<T> {
  return {
    print: String,
    parse(scanner) {
      const start = scanner.here;
      const name = scanner.word(what);
      return names.find((one) => one === name) ?? scanner.failAt(start, what);
    },
  };
}

/** One of the names that are listed, all of a type. */
function oneOf<T extends string>(names: { readonly [N in T]: true }): Form<T> {
  const all = Object.keys(names) as T[];
  return among(all.join(" or "), all);
}

const dtype = among(`a data type (${dtypes.join(", ")})`, dtypes);

const byShortName = new Map(dtypes.map((name): [string, DType] => [shortName(name), name]));

/** A type such as `f32[4,8]`. */
export const plainType: Form<TensorType> = {
  print: formatType,
  parse(scanner) {
    const start = scanner.here;
    const name = byShortName.get(scanner.word("a type such as f32[4,8]"));
    if (!name) {
      return scanner.failAt(start, `a type such as f32[4,8] (${[...byShortName.keys()].join(", ")})`);
    }
    const shape = scanner.list("[", "]", () => {
      const sizeStart = scanner.here;
      const size = scanner.integer("the size of a dim");
      return size >= 0 ? size : scanner.failAt(sizeStart, "a size of at least 0");
    });
    return { dtype: name, shape };
  },
};

/** A host callback by its label: programs that call one can be parsed only in the process that has the function. */
const hostFunction: Form<HostFunction> = {
  print: ({ label }) => JSON.stringify(label),
  parse(scanner) {
    const start = scanner.here;
    const label = scanner.string("the label of a function");
    return (
      HostFunction.labelled(label) ??
      scanner.failAt(
        start,
        "a function that this process has: programs that call the host are read where they were made",
      )
    );
  },
};

function list<T>(form: Form<T>, separator = ","): Form<readonly T[]> {
  return {
    print: (values) => `[${values.map((value) => form.print(value)).join(separator)}]`,
    parse: (scanner) => scanner.list("[", "]", () => form.parse(scanner)),
  };
}

const counts = list(count);

/** An axis name, quoted unless it is an identifier. */
function axisName(scanner: Scanner): string {
  return scanner.sees('"') ? scanner.string("an axis name") : scanner.word("an axis name");
}

/** Axes with their sizes, such as `{data: 2}`. */
export const axes: Form<readonly MeshAxis[]> = {
  print: (value) => formatMesh({ axes: value }),
  parse: (scanner) =>
    scanner.list("{", "}", () => {
      const name = axisName(scanner);
      scanner.expect(":");
      return { name, size: scanner.integer("the size of the axis") };
    }),
};

const mesh: Form<MeshShape> = {
  print: formatMesh,
  parse: (scanner) => ({ axes: axes.parse(scanner) }),
};

const constraint: Form<readonly DimConstraint[]> = {
  print: formatSpec,
  parse(scanner) {
    scanner.expect("P");
    return scanner.list("(", ")", (): DimConstraint => {
      if (scanner.eat("UNCONSTRAINED")) return "unconstrained";
      if (scanner.eat("null")) return [];
      const axis = () => scanner.string("the name of an axis");
      if (scanner.sees("[")) return scanner.list("[", "]", axis);
      return scanner.sees('"') ? [axis()] : scanner.fail("an axis, a list of axes, null or UNCONSTRAINED");
    });
  },
};

const spec: Form<Spec> = {
  print: formatSpec,
  parse(scanner) {
    const start = scanner.here;
    const dims = constraint.parse(scanner).map((dim) => (dim === "unconstrained" ? undefined : dim));
    return dims.every((dim) => dim !== undefined)
      ? dims
      : scanner.failAt(start, "a spec without UNCONSTRAINED");
  },
};

const specs = list(spec, ", ");

/** Two values with a mark between them. */
function pairOf<T>(form: Form<T>, mark: string): Form<readonly [T, T]> {
  return {
    print: ([first, second]) => `${form.print(first)}${mark}${form.print(second)}`,
    parse(scanner) {
      const first = form.parse(scanner);
      scanner.expect(mark);
      return [first, form.parse(scanner)];
    },
  };
}

const hops = list(pairOf(count, "→"), ", ");

/** Maximum nesting of policies, so that a hostile input cannot exhaust the stack. */
const MAX_POLICIES = 64;

const policy: Form<RematPolicy> = {
  print(value) {
    switch (value.kind) {
      case "names":
      case "exceptNames":
        return `${value.kind}(${value.names.map(text.print).join(", ")})`;
      case "either":
        return `either(${value.policies.map(policy.print).join(", ")})`;
      default:
        return value.kind;
    }
  },
  parse: (scanner) => parsePolicy(scanner, 0),
};

const policyKind = oneOf<RematPolicy["kind"]>({
  nothing: true,
  everything: true,
  dots: true,
  dotsWithNoBatchDims: true,
  names: true,
  exceptNames: true,
  either: true,
});

function parsePolicy(scanner: Scanner, depth: number): RematPolicy {
  if (depth > MAX_POLICIES) scanner.fail(`at most ${MAX_POLICIES} policies in each other`);
  const kind = policyKind.parse(scanner);
  switch (kind) {
    case "names":
    case "exceptNames":
      return { kind, names: scanner.list("(", ")", () => text.parse(scanner)) };
    case "either":
      return { kind, policies: scanner.list("(", ")", () => parsePolicy(scanner, depth + 1)) };
    default:
      return { kind };
  }
}

type ValueForms<K extends OpName> = { readonly [P in keyof Values<K>]-?: Form<NonNullable<Values<K>[P]>> };

const roleKind = oneOf<ControlRole["kind"]>({
  forward: true,
  backward: true,
  slots: true,
  action: true,
  message: true,
  link: true,
});
const direction = oneOf<Extract<ControlRole, { kind: "message" }>["from"]>({
  fromLeft: true,
  fromRight: true,
  fromSelf: true,
});

/** What a loop or a choice stands for, if it is said: its kind and its numbers in parentheses. */
const role: Form<ControlRole> = {
  isOptional: true,
  print: ({ kind, ...values }) => `${kind}(${Object.values(values).join(", ")})`,
  parse: (scanner) => {
    const kind = roleKind.parse(scanner);
    scanner.expect("(");
    const next = () => {
      const value = count.parse(scanner);
      if (!scanner.eat(",")) scanner.expect(")");
      return value;
    };
    switch (kind) {
      case "action":
        scanner.expect(")");
        return { kind };
      case "message": {
        const from = direction.parse(scanner);
        scanner.expect(")");
        return { kind, from };
      }
      case "link":
        return { kind, link: next() };
      default:
        return { kind, numStages: next(), numMicrobatches: next(), numRepeats: next() };
    }
  },
};

/** A parameter that may be missing. */
const optional = <T>(form: Form<T>): Form<T> => ({ ...form, isOptional: true });

/** A last parameter that is true or missing. */
const onlyTrue: Form<true> = {
  isOptional: true,
  print: () => "true",
  parse: (scanner) => scanner.eat("true") || scanner.fail("true"),
};

/** Parameters that are printed by name, in the order given here. */
function named<Params extends object>(
  forms: { readonly [P in keyof Params]-?: Form<NonNullable<Params[P]>> },
) {
  const entries = Object.entries<Form<unknown>>(forms);
  return {
    print(params: { readonly [P in keyof Params]: Params[P] | undefined }) {
      const values = new Map<string, unknown>(Object.entries(params));
      const given = entries.filter(([name, form]) => !form.isOptional || values.get(name) !== undefined);
      return given.map(([name, form]) => `${name}: ${form.print(values.get(name))}`);
    },
    parse(scanner: Scanner) {
      const values = entries.flatMap(([name, form], i) => {
        const comma = i === 0 ? [] : [","];
        if (form.isOptional && !scanner.sees(...comma, `${name}:`)) return [];
        for (const token of comma) scanner.expect(token);
        if (!scanner.eat(`${name}:`)) scanner.fail(`the parameter "${name}:"`);
        return [[name, form.parse(scanner)]];
      });
      // Every parameter has its form.
      return Object.fromEntries(values) as Params;
    },
  };
}

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
const dimPairs: Form<DimPairs> = pairOf(counts, "x");

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
const combine = oneOf<OpParams["scatter"]["combine"]>({ add: true, set: true });

const callbackKind = oneOf<CallbackKind>({ pure: true, debug: true, io: true, check: true });
const callbackBatching = oneOf<CallbackBatching>({
  sequential: true,
  expandDims: true,
  broadcastAll: true,
  never: true,
});

const attentionExtra = among(`an operand of attention (${attentionExtras.join(", ")})`, attentionExtras);

const window: Form<readonly [before: number, after: number]> = {
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
