import { attentionOperands } from "../../../ir/infer/inferAttention.js";
import { elementwiseFamilies, rowsOf } from "../../../ir/opFacts.js";
import type { Attention, AttentionExtra, OpName, OpParams, ProgramOp } from "../../../ir/ops.js";
import type { Eqn } from "../../../ir/program.js";
import { at, entriesOf, type TensorType, typesOf } from "../../../ir/shape.js";

/**
 * What splitting a factor means: `parallel` factors stay split in the result, `sum`, `max` and `min` factors
 * leave partial results on the devices, except of results that have them, those of `index` factors are combined by the
 * op's own rule on blocks, `whole` factors cannot be split.
 */
export type FactorKind = "parallel" | "sum" | "max" | "min" | "index" | "whole";

/** A piece of index space that dims of several tensors share. */
export interface Factor {
  readonly size: number;
  readonly kind: FactorKind;
}

/** For every dim of a tensor the factors it is made of, outermost first. */
export type DimFactors = readonly (readonly number[])[];

/** How the dims of an op's operands and results correspond. */
export interface FactorRule {
  readonly factors: readonly Factor[];
  readonly operands: readonly DimFactors[];
  readonly results: readonly DimFactors[];
}

/** Builds a rule: `shared` factors for dims that correspond, `own` factors for dims that stand alone. */
class RuleBuilder {
  readonly factors: Factor[] = [];

  add(size: number, kind: FactorKind = "parallel"): number {
    this.factors.push({ size, kind });
    return this.factors.length - 1;
  }

  dims(shape: readonly number[], kind: (d: number) => FactorKind = () => "parallel"): number[][] {
    return shape.map((n, d) => (n === 1 ? [] : [this.add(n, kind(d))]));
  }

  rule(operands: readonly DimFactors[], results: readonly DimFactors[]): FactorRule {
    return { factors: this.factors, operands, results };
  }
}

type Rule<K extends OpName> = (
  params: OpParams[K],
  ins: readonly TensorType[],
  outs: readonly TensorType[],
) => FactorRule;

const shapeOf = (types: readonly TensorType[], i: number) => at(types, i).shape;

/** All operands and results have the same dims; scalars have none. */
const elementwise = (
  _params: object,
  ins: readonly TensorType[],
  outs: readonly TensorType[],
): FactorRule => {
  const b = new RuleBuilder();
  const dims = b.dims(shapeOf(outs, 0));
  const of = (type: TensorType) => (type.shape.length === dims.length ? dims : []);
  return b.rule(ins.map(of), outs.map(of));
};

/** Operand and result correspond dim by dim; those that `moved` names cannot be split. */
const along = (
  x: TensorType,
  out: TensorType,
  moved: (d: number) => boolean,
  more: readonly TensorType[] = [],
): FactorRule => {
  const b = new RuleBuilder();
  const shared = b.dims(x.shape.map((n, d) => (moved(d) ? 1 : n)));
  const own = (type: TensorType) =>
    shared.map((factors, d) =>
      moved(d) && type.shape[d] !== 1 ? [b.add(at(type.shape, d), "whole")] : factors,
    );
  return b.rule([own(x), ...more.map((type) => (type.shape.length === 0 ? [] : own(type)))], [own(out)]);
};

const reduce =
  (kind: FactorKind) =>
  ({ dims }: { readonly dims: readonly number[] }, ins: readonly TensorType[]): FactorRule => {
    const b = new RuleBuilder();
    const x = b.dims(shapeOf(ins, 0), (d) => (dims.includes(d) ? kind : "parallel"));
    return b.rule([x], [x.filter((_, d) => !dims.includes(d))]);
  };

const extremeIndex = ({ dim }: { readonly dim: number }, ins: readonly TensorType[]): FactorRule =>
  reduce("index")({ dims: [dim] }, ins);

/** Operand and result have the same dims; along a split one devices exchange what they need. */
const sameDims = (_params: object, ins: readonly TensorType[]): FactorRule => {
  const b = new RuleBuilder();
  const dims = b.dims(shapeOf(ins, 0));
  return b.rule([dims], [dims]);
};

/**
 * Every device contributes the rows of the window that it has, and zeros for the others; a window of at least half of
 * the rows is taken from the gathered tensor, which sends less.
 */
function windowRule({ sizes }: OpParams["dynamicSlice"], ins: readonly TensorType[]): FactorRule {
  const b = new RuleBuilder();
  const { dtype, shape } = at(ins, 0);
  const partial = dtype === "bool" ? "max" : "sum";
  const kindOf = (d: number): FactorKind => {
    if (sizes[d] === shape[d]) return "parallel";
    return 2 * at(sizes, d) < at(shape, d) ? partial : "whole";
  };
  const operand = b.dims(shape, kindOf);
  const result = operand.map((factors, d) => {
    if (kindOf(d) === "parallel") return factors;
    return sizes[d] === 1 ? [] : [b.add(at(sizes, d), "whole")];
  });
  return b.rule([operand, ...ins.slice(1).map(() => [])], [result]);
}

/** Every device writes the rows of the update that belong to its block. */
function updateRule(ins: readonly TensorType[]): FactorRule {
  const b = new RuleBuilder();
  const shape = shapeOf(ins, 0);
  const operand = b.dims(shape);
  const update = shapeOf(ins, 1).map((n, d) => {
    if (n === shape[d]) return at(operand, d);
    return n === 1 ? [] : [b.add(n, "whole")];
  });
  return b.rule([operand, update, ...ins.slice(2).map(() => [])], [operand]);
}

/** Splits two shapes of the same elements into the largest factors they share, outermost first. */
function reshapeRule(from: readonly number[], to: readonly number[]): FactorRule {
  const b = new RuleBuilder();
  const operand: number[][] = from.map(() => []);
  const result: number[][] = to.map(() => []);
  // Nothing has no factors.
  if (from.includes(0)) return b.rule([operand], [result]);
  let [i, j, restI, restJ] = [0, 0, from[0] ?? 1, to[0] ?? 1];
  while (i < from.length || j < to.length) {
    if (restI === 1 && i < from.length) {
      i++;
      restI = from[i] ?? 1;
    } else if (restJ === 1 && j < to.length) {
      j++;
      restJ = to[j] ?? 1;
    } else {
      const size = greatestCommonDivisor(restI, restJ);
      if (size === 1) break;
      const factor = b.add(size);
      operand[i]?.push(factor);
      result[j]?.push(factor);
      restI /= size;
      restJ /= size;
    }
  }
  return b.rule([operand], [result]);
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

function gatherFactors(
  b: RuleBuilder,
  x: readonly number[],
  indices: readonly number[],
  { dim, batchDims }: { readonly dim: number; readonly batchDims: number },
  kinds: { readonly looked: FactorKind; readonly rest: FactorKind },
) {
  const operand = b.dims(x, (d) => (d === dim ? kinds.looked : "parallel"));
  const rest = b.dims(indices.slice(batchDims), () => kinds.rest);
  const index = [...operand.slice(0, batchDims), ...rest];
  const taken = [...operand.slice(0, dim), ...rest, ...operand.slice(dim + 1)];
  return { operand, index, taken };
}

/**
 * Batch, heads and queries can be split, keys cannot. Backward, queries and the query heads that share a key head are
 * summed into the cotangents of keys and values.
 */
function attentionFactors(
  op: "attention" | "attentionBackward",
  { extras = [] }: Attention,
  ins: readonly TensorType[],
) {
  const [batch, length, heads, headSize] = entriesOf(shapeOf(ins, 0), 4);
  const [, keyLength, keyHeads] = entriesOf(shapeOf(ins, 1), 4);
  const b = new RuleBuilder();
  const summed = op === "attention" ? "parallel" : "sum";
  const kinds: FactorKind[] = ["parallel", "parallel", summed, summed, "whole", "whole"];
  const sizes = [batch, keyHeads, heads / keyHeads, length, keyLength, headSize];
  const [i = [], k = [], g = [], t = [], s = [], h = []] = b.dims(sizes, (d) => at(kinds, d));
  const n = [...k, ...g];
  const dimsOf: { readonly [N in AttentionExtra]: DimFactors } = {
    bias: [i, n, t, s],
    mask: [i, n, t, s],
    querySegments: [i, t],
    keySegments: [i, s],
    queryPositions: [i, t],
    keyPositions: [i, s],
    sinks: [i, n],
    dropoutKeys: [i, n, []],
    logSumsCotangent: [i, n, t],
  };
  const more = extras.map((name, place) => {
    const { shape } = at(ins, attentionOperands[op] + place);
    // Keys of two words and what stands for all of a dim are the same on every device.
    return at([dimsOf[name]], 0).map((factors, d) =>
      shape[d] === 1 ? [] : name === "dropoutKeys" && d === 2 ? [b.add(at(shape, d), "whole")] : factors,
    );
  });
  return { b, query: [i, t, n, h], key: [i, s, k, h], sums: [i, n, t], more };
}

const collective = (
  dims: readonly number[],
  ins: readonly TensorType[],
  outs: readonly TensorType[],
): FactorRule => along(at(ins, 0), at(outs, 0), (d) => dims.includes(d));

/** The ops that have factors; ops with bodies are partitioned by their bodies. */
export type FactoredOp = Exclude<OpName, ProgramOp>;

const rules: { readonly [K in FactoredOp]: Rule<K> } = {
  ...rowsOf(elementwiseFamilies, elementwise),
  optimizationBarrier: (_, ins) => {
    const b = new RuleBuilder();
    const dims = ins.map(({ shape }) => b.dims(shape));
    return b.rule(dims, dims);
  },

  iota: (_, __, outs) => {
    const b = new RuleBuilder();
    return b.rule([], [b.dims(shapeOf(outs, 0))]);
  },
  broadcastInDim: ({ shape, dims }, ins) => {
    const b = new RuleBuilder();
    const result = b.dims(shape);
    return b.rule([dims.map((d, i) => (shapeOf(ins, 0)[i] === 1 ? [] : at(result, d)))], [result]);
  },
  reshape: ({ shape }, ins) => reshapeRule(shapeOf(ins, 0), shape),
  transpose: ({ permutation }, ins) => {
    const b = new RuleBuilder();
    const x = b.dims(shapeOf(ins, 0));
    return b.rule([x], [permutation.map((d) => at(x, d))]);
  },
  reverse: sameDims,
  slice: ({ starts, limits, strides }, ins, outs) =>
    along(
      at(ins, 0),
      at(outs, 0),
      (d) => starts[d] !== 0 || limits[d] !== shapeOf(ins, 0)[d] || strides[d] !== 1,
    ),
  pad: ({ low, high, interior }, ins, outs) =>
    along(at(ins, 0), at(outs, 0), (d) => low[d] !== 0 || high[d] !== 0 || interior[d] !== 0, ins.slice(1)),
  concatenate: ({ dim }, ins, outs) => along(at(ins, 0), at(outs, 0), (d) => d === dim, ins.slice(1)),
  dynamicSlice: windowRule,
  dynamicUpdateSlice: (_, ins) => updateRule(ins),
  gather: (params, ins) => {
    const b = new RuleBuilder();
    // The rows that other devices hold are zeros here, and false for booleans, which cannot be summed.
    const kinds = { looked: at(ins, 0).dtype === "bool" ? "max" : "sum", rest: "parallel" } as const;
    const { operand, index, taken } = gatherFactors(b, shapeOf(ins, 0), shapeOf(ins, 1), params, kinds);
    return b.rule([operand, index], [taken]);
  },
  scatter: (params, ins) => {
    const b = new RuleBuilder();
    const kinds = { looked: "parallel", rest: params.combine === "add" ? "sum" : "whole" } as const;
    const { operand, index, taken } = gatherFactors(b, shapeOf(ins, 0), shapeOf(ins, 1), params, kinds);
    return b.rule([operand, index, taken], [operand]);
  },

  reduceSum: reduce("sum"),
  reduceMax: reduce("max"),
  reduceMin: reduce("min"),
  argmax: extremeIndex,
  argmin: extremeIndex,
  cumsum: sameDims,
  sort: ({ dim }, ins) => {
    const b = new RuleBuilder();
    const dims = b.dims(shapeOf(ins, 0), (d) => (d === dim ? "whole" : "parallel"));
    const all = ins.map(() => dims);
    return b.rule(all, all);
  },
  dotGeneral: (p, ins) => {
    const b = new RuleBuilder();
    const x = b.dims(shapeOf(ins, 0), (d) => (p.lhsContract.includes(d) ? "sum" : "parallel"));
    const y = shapeOf(ins, 1).map((n, d) => {
      const contracted = p.rhsContract.indexOf(d);
      if (contracted >= 0) return at(x, at(p.lhsContract, contracted));
      const batch = p.rhsBatch.indexOf(d);
      if (batch >= 0) return at(x, at(p.lhsBatch, batch));
      return n === 1 ? [] : [b.add(n)];
    });
    const free = (dims: number[][], used: readonly number[]) => dims.filter((_, d) => !used.includes(d));
    const batch = p.lhsBatch.map((d) => at(x, d));
    const [rows, columns] = [
      free(x, [...p.lhsBatch, ...p.lhsContract]),
      free(y, [...p.rhsBatch, ...p.rhsContract]),
    ];
    return b.rule([x, y], [[...batch, ...rows, ...columns]]);
  },

  raggedDot: ({ ragged }, ins) => {
    const b = new RuleBuilder();
    const [x, rank] = [shapeOf(ins, 0), shapeOf(ins, 0).length - 2];
    const isRows = ragged === "rows";
    const kinds: readonly FactorKind[] = isRows ? ["parallel", "sum"] : ["sum", "parallel"];
    const batch = b.dims(x.slice(0, rank));
    const [m = [], k = []] = b.dims(x.slice(rank), (d) => at(kinds, d));
    const [n = []] = b.dims(shapeOf(ins, 1).slice(-1));
    const [g = []] = b.dims(shapeOf(ins, 2).slice(rank), () => "whole");
    const matrices = [...batch, g, k, n];
    const rows = [...batch, m, n];
    return b.rule([[...batch, m, k], isRows ? matrices : rows, [...batch, g]], [isRows ? rows : matrices]);
  },
  attention: (params, ins) => {
    const { b, query, key, sums, more } = attentionFactors("attention", params, ins);
    return b.rule([query, key, key, ...more], [query, sums]);
  },
  attentionBackward: (params, ins) => {
    const { b, query, key, sums, more } = attentionFactors("attentionBackward", params, ins);
    const [batch = [], , heads = []] = query;
    const { extras = [], wants = [] } = params;
    const wanted = wants.map((name) => [batch, heads, ...at(more, extras.indexOf(name)).slice(2)]);
    return b.rule([query, key, key, sums, query, query, ...more], [query, key, key, ...wanted]);
  },

  callback: (_, ins, outs) => {
    const b = new RuleBuilder();
    const whole = ({ shape }: TensorType) => b.dims(shape, () => "whole");
    return b.rule(ins.map(whole), outs.map(whole));
  },

  psum: elementwise,
  pmax: elementwise,
  pmin: elementwise,
  ppermute: elementwise,
  allGather: ({ dim }, ins, outs) => collective([dim], ins, outs),
  psumScatter: ({ dim }, ins, outs) => collective([dim], ins, outs),
  allToAll: ({ splitDim, concatDim }, ins, outs) => collective([splitDim, concatDim], ins, outs),
  raggedAllToAll: (_, ins) => {
    const b = new RuleBuilder();
    const whole = ({ shape }: TensorType) => b.dims(shape, () => "whole");
    const row = b.dims(shapeOf(ins, 0).slice(1));
    const rows = (i: number) => [...b.dims(shapeOf(ins, i).slice(0, 1), () => "whole"), ...row];
    const [x, into] = [rows(0), rows(1)];
    return b.rule([x, into, ...ins.slice(2).map(whole)], [into]);
  },
  axisIndex: (_, __, outs) => elementwise({}, [], outs),
  shardingConstraint: elementwise,
};

/** How the dims of an equation's operands and results correspond. */
export function factorRule<K extends FactoredOp>(eqn: Eqn<K>): FactorRule {
  const { op, params, ins, outs }: Pick<Eqn, "ins" | "outs"> & { op: K; params: OpParams[K] } = eqn;
  const rule: Rule<K> = rules[op];
  return rule(params, typesOf(ins), typesOf(outs));
}
