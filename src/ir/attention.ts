/**
 * Attention in terms of smaller ops: its definition, and what runs where no fused kernel exists.
 *
 * Scores are `[batch, K, T, G, S]`: for each of the K heads of key and value, the T positions of its G query heads are
 * the rows of one matrix.
 */
import { type DType, limits, sumType } from "./dtype.js";
import { inferTypes } from "./infer.js";
import type { Attention, OpName, OpParams } from "./ops.js";
import { type Atom, type Eqn, makeEqn, newLiteral, newVar, type Program, type Var } from "./program.js";
import { at, type Shape, type TensorType, tensorType } from "./shape.js";

/** Collects the equations of a program. */
class Builder {
  readonly eqns: Eqn[] = [];

  add<K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K]): Var {
    const outs = inferTypes(op, ins, params).map(newVar);
    this.eqns.push(makeEqn<OpName>(op, ins, outs, params));
    return at(outs, 0);
  }

  convert(x: Var, dtype: DType): Var {
    return x.type.dtype === dtype ? x : this.add("convert", [x], { dtype });
  }

  /** The value repeated along the last dim. */
  alongKeys(x: Var, shape: Shape): Var {
    return this.add("broadcastInDim", [x], { shape, dims: [0, 1, 2, 3] });
  }

  transpose(x: Var, permutation: readonly number[]): Var {
    return this.add("transpose", [x], { permutation });
  }

  reshape(x: Var, shape: Shape): Var {
    return this.add("reshape", [x], { shape });
  }
}

/** The sizes of an attention, from the types of query and key. */
function sizesOf(query: TensorType, key: TensorType) {
  const [batch = 0, length = 0, heads = 0, headSize = 0] = query.shape;
  const [, keyLength = 0, keyHeads = 0] = key.shape;
  const groups = heads / keyHeads;
  return {
    whole: query.shape,
    grouped: [batch, length, keyHeads, groups, headSize],
    sums: [batch, heads, length],
    scores: [batch, keyHeads, length, groups, keyLength],
    wide: sumType(query.dtype),
    narrow: query.dtype,
  };
}

type Sizes = ReturnType<typeof sizesOf>;

/** The scaled products of queries and keys; masked ones are far below all others. */
function scoresOf(b: Builder, grouped: Var, key: Var, sizes: Sizes, { scale, causal }: Attention): Var {
  const { scores, wide } = sizes;
  const [, , length = 0, , keyLength = 0] = scores;
  const products = b.add("dotGeneral", [grouped, key], {
    lhsContract: [4],
    rhsContract: [3],
    lhsBatch: [0, 2],
    rhsBatch: [0, 2],
    dtype: wide,
  });
  const scaled = b.add("mul", [products, newLiteral(scale, wide)], {});
  if (!causal) return scaled;
  const position = (dim: number) => b.add("iota", [], { dtype: "int32", shape: [length, keyLength], dim });
  const seen = b.add("compare", [position(0), position(1)], { direction: "ge" });
  const mask = b.add("broadcastInDim", [seen], { shape: scores, dims: [2, 4] });
  // Finite, so that differences of such scores are not NaN.
  return b.add("select", [mask, scaled, newLiteral(-0.7 * limits(wide).max, wide)], {});
}

/** `[batch, K, T, G, H]` as query heads: `[batch, T, N, H]`. */
function asHeads(b: Builder, x: Var, shape: Shape): Var {
  return b.reshape(b.transpose(x, [0, 2, 1, 3, 4]), shape);
}

/** What `attention` computes, for operands of these types. */
export function attentionProgram(params: Attention, types: readonly TensorType[]): Program {
  const inputs = types.map(({ dtype, shape }) => newVar(tensorType(dtype, shape)));
  const [query, key, value] = [at(inputs, 0), at(inputs, 1), at(inputs, 2)];
  const b = new Builder();
  const sizes = sizesOf(query.type, key.type);
  const scores = scoresOf(b, b.reshape(query, sizes.grouped), key, sizes, params);
  const peak = b.add("reduceMax", [scores], { dims: [4] });
  const exps = b.add("exp", [b.add("sub", [scores, b.alongKeys(peak, sizes.scores)], {})], {});
  const sum = b.add("reduceSum", [exps], { dims: [4] });
  const weights = b.add("div", [exps, b.alongKeys(sum, sizes.scores)], {});
  const mixed = b.add("dotGeneral", [b.convert(weights, sizes.narrow), value], {
    lhsContract: [4],
    rhsContract: [1],
    lhsBatch: [0, 1],
    rhsBatch: [0, 2],
    dtype: sizes.narrow,
  });
  const logs = b.add("add", [peak, b.add("log", [sum], {})], {});
  const logSums = b.reshape(b.transpose(logs, [0, 1, 3, 2]), sizes.sums);
  return { inputs, eqns: b.eqns, outputs: [asHeads(b, mixed, sizes.whole), logSums] };
}

/**
 * What `attentionBackward` computes, for operands of these types: the weights are recomputed from the log-sums. A
 * seventh operand is the cotangent of the log-sums, where they have one.
 */
export function attentionBackwardProgram(params: Attention, types: readonly TensorType[]): Program {
  const inputs = types.map(({ dtype, shape }) => newVar(tensorType(dtype, shape)));
  const [query, key, value, logSums, ct, mixed, logSumsCt] = inputs;
  if (!query || !key || !value || !logSums || !ct || !mixed) return { inputs, eqns: [], outputs: [] };
  const b = new Builder();
  const sizes = sizesOf(query.type, key.type);
  const { scores, grouped, wide, narrow, sums } = sizes;
  const rows = [at(scores, 0), at(scores, 1), at(scores, 3), at(scores, 2)];
  const perRow = (x: Var) => b.transpose(b.reshape(x, rows), [0, 1, 3, 2]);
  const groups = b.reshape(query, grouped);
  const ctGroups = b.reshape(ct, grouped);
  const logits = scoresOf(b, groups, key, sizes, params);
  const weights = b.add("exp", [b.add("sub", [logits, b.alongKeys(perRow(logSums), scores)], {})], {});
  const weightCts = b.add("dotGeneral", [ctGroups, value], {
    lhsContract: [4],
    rhsContract: [3],
    lhsBatch: [0, 2],
    rhsBatch: [0, 2],
    dtype: wide,
  });
  const products = b.add("mul", [b.convert(ct, wide), b.convert(mixed, wide)], {});
  const inner = b.transpose(b.add("reduceSum", [products], { dims: [3] }), [0, 2, 1]);
  const shared = perRow(logSumsCt ? b.add("sub", [inner, logSumsCt], {}) : b.reshape(inner, sums));
  const pulled = b.add("mul", [weights, b.add("sub", [weightCts, b.alongKeys(shared, scores)], {})], {});
  const scoreCts = b.convert(b.add("mul", [pulled, newLiteral(params.scale, wide)], {}), narrow);
  const queryCt = b.add("dotGeneral", [scoreCts, key], {
    lhsContract: [4],
    rhsContract: [1],
    lhsBatch: [0, 1],
    rhsBatch: [0, 2],
    dtype: narrow,
  });
  // One sum over the rows of all query heads that a key head serves.
  const overRows = (x: Var, y: Var) => {
    const product = b.add("dotGeneral", [x, y], {
      lhsContract: [2, 3],
      rhsContract: [1, 3],
      lhsBatch: [0, 1],
      rhsBatch: [0, 2],
      dtype: narrow,
    });
    return b.transpose(product, [0, 2, 1, 3]);
  };
  const outputs = [
    asHeads(b, queryCt, sizes.whole),
    overRows(scoreCts, groups),
    overRows(b.convert(weights, narrow), ctGroups),
  ];
  return { inputs, eqns: b.eqns, outputs };
}
