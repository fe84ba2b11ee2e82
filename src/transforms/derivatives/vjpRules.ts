import { isFloat } from "../../ir/dtype.js";
import { attentionBackwardProgram, attentionProgram } from "../../ir/expansions/attention.js";
import { missingAxes, varies, varyingAxes } from "../../ir/infer/varying.js";
import type { MeshAxis } from "../../ir/mesh.js";
import {
  type AttentionExtra,
  attentionWants,
  type OpName,
  type OpParams,
  type XlaFunction,
} from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at, inversePermutation, range, type TensorType } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { condRule, customVjpRule, scanRule, shardMapRule } from "./vjpControl.js";
import { rematRule } from "./vjpRemat.js";
import type { Pull, PullContext, VjpRule } from "./vjpTypes.js";

const { add, mul, div, neg, sub } = ops;

const zero = { kind: "zero" } as const;
const pull = <K extends OpName>(rule: Pull<K>): VjpRule<K> => ({ kind: "pull", pull: rule });
const unsupported = (reason: string) => ({ kind: "unsupported", reason }) as const;

/** An op of one operand, by the factor of its cotangent. */
const scaled = <K extends OpName>(factor: (x: Tensor, out: Tensor) => Tensor): VjpRule<K> =>
  pull(({ ct, ins, outs }) => [() => mul(ct, factor(at(ins, 0), at(outs, 0)))]);

/** An op whose first operand alone has a cotangent, given by one expression. */
const back = <K extends OpName>(rule: (ct: Tensor, context: PullContext<K>) => Tensor): VjpRule<K> =>
  pull((context) => [() => rule(context.ct, context)]);

const zerosLike = (x: Tensor) => ops.zeros(x.type);
const onlyWhere = (mask: Tensor, ct: Tensor) => ops.select(mask, ct, zerosLike(ct));

/** The larger (or smaller) operand gets the cotangent; equal ones share it. */
const extreme = <K extends "max" | "min">(wins: "gt" | "lt"): VjpRule<K> =>
  pull(({ ct, ins }) => {
    const [x, y] = [at(ins, 0), at(ins, 1)];
    const share = (a: Tensor, b: Tensor) => () => {
      const half = ops.select(ops.compare("eq", a, b), mul(ct, 0.5), zerosLike(ct));
      return ops.select(ops.compare(wins, a, b), ct, half);
    };
    return [share(x, y), share(y, x)];
  });

/** Spreads a reduced tensor over the dims it was reduced from. */
function unreduce(x: Tensor, shape: readonly number[], dims: readonly number[]): Tensor {
  const kept = range(shape.length).filter((d) => !dims.includes(d));
  return ops.broadcastInDim(x, shape, kept);
}

/** Elements that equal the extreme share its cotangent. */
const reduceExtreme = <K extends "reduceMax" | "reduceMin">(): VjpRule<K> =>
  pull(({ ct, ins, outs, params: { dims } }) => [
    () => {
      const x = at(ins, 0);
      const mask = ops.compare("eq", x, unreduce(at(outs, 0), x.shape, dims));
      const count = ops.reduceSum(ops.convert(mask, ct.dtype), dims);
      return onlyWhere(mask, unreduce(div(ct, count), x.shape, dims));
    },
  ]);

/**
 * The cotangent of each device's part of a reduction over axes. Where types say that the parts differ, the result and
 * so its cotangent are equal; elsewhere every device has its own cotangent, and they are summed.
 */
function sumOfCotangents(ct: Tensor, part: Tensor, axes: readonly MeshAxis[]): Tensor {
  const known = axes.filter(({ name }) => varies(part.type, name));
  return ops.pvary(ops.psum(ct, missingAxes(known, axes)), known);
}

/** Devices that hold the extreme share the sum of its cotangents. */
const reduceAcrossExtreme = <K extends "pmax" | "pmin">(): VjpRule<K> =>
  back((ct, { ins, outs, params: { axes } }) => {
    const mask = ops.compare("eq", at(ins, 0), at(outs, 0));
    const count = ops.psum(ops.convert(mask, ct.dtype), axes);
    return onlyWhere(mask, div(sumOfCotangents(ct, at(ins, 0), axes), count));
  });

function clampIndices(indices: Tensor, size: number): Tensor {
  return ops.clamp(Tensor.scalar(0, "int32"), indices, Tensor.scalar(size - 1, "int32"));
}

/** A mask over `indices` as a mask over the updates of a gather or scatter. */
function spreadMask(mask: Tensor, like: Tensor, x: Tensor, { dim, batchDims }: OpParams["gather"]): Tensor {
  const numIndexDims = mask.ndim - batchDims;
  const pre = dim - batchDims;
  const dims = [...range(batchDims), ...range(numIndexDims).map((i) => batchDims + pre + i)];
  return x.ndim + mask.ndim === 0 ? mask : ops.broadcastInDim(mask, like.shape, dims);
}

const scatterPull: Pull<"scatter"> = ({ ct, ins, params }) => {
  const [x, indices, updates] = [at(ins, 0), at(ins, 1), at(ins, 2)];
  const size = at(x.shape, params.dim);
  const inside = () => ops.and(ops.compare("ge", indices, 0), ops.compare("lt", indices, size));
  const { dim, batchDims, combine } = params;
  if (combine === "add") {
    return [
      () => ct,
      null,
      () => onlyWhere(spreadMask(inside(), updates, x, params), ops.gather(ct, indices, { dim, batchDims })),
    ];
  }
  const lastWriter = () => {
    const batch = indices.shape.slice(0, batchDims);
    const ids = ops.reshape(ops.iota("int32", [indices.size], 0), indices.shape);
    const where = { dim: batchDims, batchDims };
    const board = ops.scatter(ops.full([...batch, size], -1, "int32"), indices, ids, {
      ...where,
      combine: "set",
    });
    return ops.and(inside(), ops.compare("eq", ops.gather(board, indices, where), ids));
  };
  return [
    () => ops.scatter(ct, indices, zerosLike(updates), params),
    null,
    () =>
      onlyWhere(spreadMask(lastWriter(), updates, x, params), ops.gather(ct, indices, { dim, batchDims })),
  ];
};

const padPull: Pull<"pad"> = ({ ct, ins, params: { low, high, interior } }) => {
  const x = at(ins, 0);
  const dx = () => {
    const none = low.map(() => 0);
    const cropped = ops.pad(ct, Tensor.scalar(0, ct.dtype), {
      low: low.map((n) => 0 - n),
      high: high.map((n) => 0 - n),
      interior: none,
    });
    return ops.slice(
      cropped,
      none,
      cropped.shape,
      interior.map((n) => n + 1),
    );
  };
  const all = range(x.ndim);
  return [dx, () => sub(ops.reduceSum(ct, all), ops.reduceSum(dx(), all))];
};

const dotPull: Pull<"dotGeneral"> = ({ ct, ins, params: p }) => {
  const [x, y] = [at(ins, 0), at(ins, 1)];
  const exact = p.precision === undefined ? {} : { precision: p.precision };
  const free = (t: Tensor, used: readonly number[]) => range(t.ndim).filter((d) => !used.includes(d));
  const xFree = free(x, [...p.lhsBatch, ...p.lhsContract]);
  const yFree = free(y, [...p.rhsBatch, ...p.rhsContract]);
  const numBatch = p.lhsBatch.length;
  const batch = range(numBatch);
  const ctX = xFree.map((_, i) => numBatch + i);
  const ctY = yFree.map((_, i) => numBatch + xFree.length + i);
  const wide = (t: Tensor) => ops.convert(t, ct.dtype);
  const arrange = (result: Tensor, order: readonly number[]) =>
    ops.transpose(result, inversePermutation(order));
  const partners = (dims: readonly number[], own: readonly number[], other: readonly number[]) =>
    [...dims].sort((a, b) => a - b).map((d) => at(other, own.indexOf(d)));
  return [
    () =>
      arrange(
        ops.dotGeneral(
          ct,
          wide(y),
          { ...exact, lhsContract: ctY, rhsContract: yFree, lhsBatch: batch, rhsBatch: p.rhsBatch },
          x.dtype,
        ),
        [...p.lhsBatch, ...xFree, ...partners(p.rhsContract, p.rhsContract, p.lhsContract)],
      ),
    () =>
      arrange(
        ops.dotGeneral(
          wide(x),
          ct,
          { ...exact, lhsContract: xFree, rhsContract: ctX, lhsBatch: p.lhsBatch, rhsBatch: batch },
          y.dtype,
        ),
        [...p.rhsBatch, ...partners(p.lhsContract, p.lhsContract, p.rhsContract), ...yFree],
      ),
  ];
};

/** The cotangents of rows go back where the rows came from; rows of `into` that were replaced have none. */
const raggedAllToAllPull: Pull<"raggedAllToAll"> = ({ ct, ins, params: { axes } }) => {
  const [x, sends, receives] = [at(ins, 0), at(ins, 2), at(ins, 3)];
  const column = (i: number) => ops.reshape(ops.sliceDim(receives, 1, i, i + 1), [at(receives.shape, 0)]);
  return [
    () => ops.raggedAllToAll([ct, ops.pvary(ops.zeros(x.type), varyingAxes(ct.type)), receives, sends], axes),
    () => {
      const shape = [at(ct.shape, 0), at(receives.shape, 0)];
      const row = ops.iota("int32", shape, 0);
      const along = (edges: Tensor) => ops.broadcastInDim(edges, shape, [1]);
      const [start, size] = [column(0), column(1)];
      const isReplaced = ops.and(
        ops.compare("ge", row, along(start)),
        ops.compare("lt", row, along(add(start, size))),
      );
      const mask = ops.broadcastInDim(ops.reduceMax(isReplaced, [1]), ct.shape, [0]);
      return ops.select(mask, zerosLike(ct), ct);
    },
  ];
};

/** Both kinds of ragged products are each other's derivatives; the sizes have none. */
const raggedDotPull: Pull<"raggedDot"> = ({ ct, ins, params: { ragged, precision } }) => {
  const [x, y, sizes] = [at(ins, 0), at(ins, 1), at(ins, 2)];
  const exact = precision === undefined ? {} : { precision };
  const wide = (t: Tensor) => ops.convert(t, ct.dtype);
  const swapped = (t: Tensor) => ops.moveDim(t, t.ndim - 1, t.ndim - 2);
  if (ragged === "rows") {
    return [
      () => ops.raggedDot(ct, swapped(wide(y)), sizes, "rows", { ...exact, dtype: x.dtype }),
      () => ops.raggedDot(wide(x), ct, sizes, "sums", { ...exact, dtype: y.dtype }),
    ];
  }
  return [
    () => ops.raggedDot(wide(y), swapped(ct), sizes, "rows", { ...exact, dtype: x.dtype }),
    () => ops.raggedDot(wide(x), ct, sizes, "rows", { ...exact, dtype: y.dtype }),
  ];
};

/** One op gives the cotangents of all operands that need one. */
const attentionPull: Pull<"attention"> = ({ cts, given, active, ins, outs, params }) => {
  const extras = params.extras ?? [];
  const operands = [...ins.slice(0, 3), at(outs, 1), at(cts, 0), at(outs, 0), ...ins.slice(3)];
  const wants = attentionWants.filter((name) => active[3 + extras.indexOf(name)] && extras.includes(name));
  let pulled: readonly Tensor[] | undefined;
  const all = () => {
    const wanted = wants.length > 0 ? { ...params, wants } : params;
    if (!given[1]) return bind("attentionBackward", operands, wanted);
    return bind("attentionBackward", [...operands, at(cts, 1)], {
      ...wanted,
      extras: [...extras, "logSumsCotangent"],
    });
  };
  const pull = (i: number) => () => {
    pulled ??= all();
    return at(pulled, i);
  };
  const pullExtra = (name: AttentionExtra, i: number) => {
    const place = (wants as readonly AttentionExtra[]).indexOf(name);
    return place < 0 ? null : () => sumRepeated(pull(3 + place)(), at(ins, 3 + i));
  };
  return [pull(0), pull(1), pull(2), ...extras.map(pullExtra)];
};

/** The sum over the dims along which an operand of size 1 was repeated. */
function sumRepeated(ct: Tensor, { shape }: Tensor): Tensor {
  const dims = range(ct.ndim).filter((d) => shape[d] === 1 && ct.shape[d] !== 1);
  return dims.length === 0 ? ct : ops.reshape(ops.reduceSum(ct, dims), shape);
}

/** An op that is differentiated by decomposing it into smaller ops. */
const asProgram = <K extends OpName>(
  programOf: (params: OpParams[K], types: readonly TensorType[]) => Program,
): VjpRule<K> => ({
  kind: "linearize",
  programOf,
  linearize: (ins, params, active, { linearize }) => {
    const types = ins.map(({ type }) => type);
    return linearize(programOf(params, types), ins, active);
  },
});

/** The operands of an elementwise op in the shape of its result; literals among them are scalars. */
const spread = (x: Tensor, like: Tensor) =>
  x.ndim === like.ndim ? x : ops.broadcastInDim(x, like.shape, []);

const powPull: Pull<"pow"> = ({ ct, ins, outs }) => {
  const [x, y] = [at(ins, 0), at(ins, 1)];
  return [
    () => {
      const [base, exponent] = [spread(x, ct), spread(y, ct)];
      const flat = ops.compare("eq", exponent, 0);
      const lower = ops.select(flat, ops.full(ct.shape, 1, ct.dtype), sub(exponent, 1));
      return ops.select(flat, zerosLike(ct), mul(ct, mul(exponent, ops.pow(base, lower))));
    },
    () => {
      const base = spread(x, ct);
      const safe = ops.select(ops.compare("eq", base, 0), ops.full(ct.shape, 1, ct.dtype), base);
      return mul(ct, mul(ops.log(safe), at(outs, 0)));
    },
  ];
};

/** Sorting moves every operand by the same permutation, which is found by sorting indices along with them. */
const sortPull: Pull<"sort"> = ({ cts, ins, params: { dim, numKeys } }) => {
  const shape = at(ins, 0).shape;
  const positions = ops.iota("int32", shape, dim);
  const sorted = ops.sort([...ins, positions], dim, numKeys);
  const back = ops.moveDim(at(sorted, ins.length), dim, shape.length - 1);
  const where = { dim: shape.length - 1, batchDims: shape.length - 1 };
  return ins.map((_, i) => () => {
    const ct = ops.moveDim(at(cts, i), dim, shape.length - 1);
    return ops.moveDim(
      ops.scatter(zerosLike(ct), back, ct, { ...where, combine: "add" }),
      shape.length - 1,
      dim,
    );
  });
};

const twoOverRootPi = 2 / Math.sqrt(Math.PI);

const xlaDerivatives: { readonly [F in XlaFunction]: (x: Tensor, out: Tensor) => Tensor } = {
  erf: (x) => mul(ops.exp(neg(mul(x, x))), twoOverRootPi),
  erfInv: (_, out) => mul(ops.exp(mul(out, out)), 1 / twoOverRootPi),
  exponentialQuantile: (_, out) => ops.exp(out),
};

/** The derivative of every op. */
export const vjpRules: { readonly [K in OpName]: VjpRule<K> } = {
  neg: back((ct) => neg(ct)),
  exp: scaled((_, out) => out),
  expm1: scaled((_, out) => add(out, 1)),
  log: back((ct, { ins }) => div(ct, at(ins, 0))),
  log1p: back((ct, { ins }) => div(ct, add(at(ins, 0), 1))),
  tanh: scaled((_, out) => sub(ops.full(out.shape, 1, out.dtype), mul(out, out))),
  sin: scaled((x) => ops.cos(x)),
  cos: scaled((x) => neg(ops.sin(x))),
  sqrt: back((ct, { outs }) => div(mul(ct, 0.5), at(outs, 0))),
  rsqrt: scaled((x, out) => mul(div(out, x), -0.5)),
  cbrt: scaled((_, out) => {
    const inverse = div(ops.full(out.shape, 1, out.dtype), out);
    return mul(mul(inverse, inverse), 1 / 3);
  }),
  // As in JAX the slope at 0 is 1.
  abs: back((ct, { ins }) => ops.select(ops.compare("ge", at(ins, 0), 0), ct, neg(ct))),
  sign: zero,
  floor: zero,
  ceil: zero,
  round: zero,
  erf: scaled(xlaDerivatives.erf),
  erfInv: scaled(xlaDerivatives.erfInv),
  logistic: scaled((_, out) => mul(out, sub(ops.full(out.shape, 1, out.dtype), out))),
  not: zero,
  isFinite: zero,
  convert: pull(({ ct, ins }) => {
    const { dtype } = at(ins, 0);
    return [isFloat(dtype) ? () => ops.convert(ct, dtype) : null];
  }),
  bitcast: zero,
  xlaFunction: back((ct, { ins, outs, params }) =>
    mul(ct, xlaDerivatives[params.fn](at(ins, 0), at(outs, 0))),
  ),
  // Straight through: the rounding has no other useful derivative.
  roundFloat8: pull(({ ct }) => [() => ct]),

  add: pull(({ ct }) => [() => ct, () => ct]),
  sub: pull(({ ct }) => [() => ct, () => neg(ct)]),
  mul: pull(({ ct, ins }) => [() => mul(ct, at(ins, 1)), () => mul(ct, at(ins, 0))]),
  div: pull(({ ct, ins, outs }) => [
    () => div(ct, at(ins, 1)),
    () => neg(div(mul(ct, at(outs, 0)), at(ins, 1))),
  ]),
  rem: pull(({ ct, ins }) => [
    () => ct,
    () => {
      const ratio = div(at(ins, 0), at(ins, 1));
      return neg(mul(ct, mul(ops.sign(ratio), ops.floor(ops.abs(ratio)))));
    },
  ]),
  pow: pull(powPull),
  max: extreme("gt"),
  min: extreme("lt"),
  and: zero,
  or: zero,
  xor: zero,
  shl: zero,
  shrLogical: zero,
  shrArithmetic: zero,
  atan2: pull(({ ct, ins }) => {
    const [y, x] = [spread(at(ins, 0), ct), spread(at(ins, 1), ct)];
    const square = () => add(mul(x, x), mul(y, y));
    return [() => mul(ct, div(x, square())), () => neg(mul(ct, div(y, square())))];
  }),
  compare: zero,
  select: pull(({ ct, ins }) => {
    const predicate = at(ins, 0);
    return [
      null,
      () => ops.select(predicate, ct, zerosLike(ct)),
      () => ops.select(predicate, zerosLike(ct), ct),
    ];
  }),
  clamp: pull(({ ct, ins }) => {
    const [low, x, high] = [at(ins, 0), at(ins, 1), at(ins, 2)];
    return [
      // Where low exceeds high, the result is high.
      () => onlyWhere(ops.and(ops.compare("lt", x, low), ops.compare("lt", low, high)), ct),
      () => onlyWhere(ops.and(ops.compare("gt", x, low), ops.compare("lt", x, high)), ct),
      () => onlyWhere(ops.compare("gt", x, high), ct),
    ];
  }),
  threefry2x32: zero,
  name: pull(({ ct }) => [() => ct]),
  stopGradient: zero,
  pvary: back((ct, { params: { over } }) => ops.psum(ops.pvary(ct, over), over)),
  optimizationBarrier: pull(({ cts }) => cts.map((ct) => () => ct)),

  iota: zero,
  broadcastInDim: back((ct, { ins, params: { dims, shape } }) => {
    const x = at(ins, 0);
    const spread = range(shape.length).filter((d) => {
      const i = dims.indexOf(d);
      return i < 0 || (x.shape[i] === 1 && shape[d] !== 1);
    });
    return ops.reshape(ops.reduceSum(ct, spread), x.shape);
  }),
  reshape: back((ct, { ins }) => ops.reshape(ct, at(ins, 0).shape)),
  transpose: back((ct, { params }) => ops.untranspose(ct, params.permutation)),
  reverse: back((ct, { params }) => ops.reverse(ct, params.dims)),
  slice: back((ct, { ins, params: { starts, strides } }) => {
    const { shape } = at(ins, 0);
    const interior = strides.map((s) => s - 1);
    const high = shape.map((n, d) => {
      const m = at(ct.shape, d);
      return n - at(starts, d) - (m + Math.max(0, m - 1) * at(interior, d));
    });
    return ops.pad(ct, Tensor.scalar(0, ct.dtype), { low: starts, high, interior });
  }),
  pad: pull(padPull),
  concatenate: pull(({ ct, ins, params: { dim } }) => {
    let end = 0;
    return ins.map((x) => {
      const start = end;
      end += at(x.shape, dim);
      const limit = end;
      return () => ops.sliceDim(ct, dim, start, limit);
    });
  }),
  dynamicSlice: back((ct, { ins }) => {
    const [x, ...starts] = ins;
    return ops.dynamicUpdateSlice(ops.zeros((x ?? ct).type), ct, starts);
  }),
  dynamicUpdateSlice: pull(({ ct, ins }) => {
    const [, update, ...starts] = ins;
    const part = update ?? ct;
    return [
      () => ops.dynamicUpdateSlice(ct, zerosLike(part), starts),
      () => ops.dynamicSlice(ct, starts, part.shape),
    ];
  }),
  gather: pull(({ ct, ins, params }) => [
    () => {
      const [x, indices] = [at(ins, 0), at(ins, 1)];
      const inside = clampIndices(indices, at(x.shape, params.dim));
      return ops.scatter(zerosLike(x), inside, ct, { ...params, combine: "add" });
    },
  ]),
  scatter: pull(scatterPull),

  reduceSum: back((ct, { ins, params: { dims } }) => unreduce(ct, at(ins, 0).shape, dims)),
  reduceMax: reduceExtreme(),
  reduceMin: reduceExtreme(),
  argmax: zero,
  argmin: zero,
  cumsum: back((ct, { params: { dim, reverse } }) => ops.cumsum(ct, dim, !reverse)),
  sort: pull(sortPull),
  dotGeneral: pull(dotPull),
  raggedDot: pull(raggedDotPull),
  attention: { kind: "pull", pull: attentionPull, programOf: attentionProgram },
  attentionBackward: asProgram(attentionBackwardProgram),

  scan: { kind: "linearize", linearize: scanRule },
  callback: unsupported(
    "a call of the host has no derivative: give the function around it one with customJvp or customVjp, or stop the gradient with lax.stopGradient",
  ),
  while: unsupported(
    "a loop with a dynamic number of iterations has no reverse derivative: use lax.scan or lax.foriLoop with fixed bounds",
  ),
  cond: { kind: "linearize", linearize: condRule },
  remat: { kind: "linearize", linearize: rematRule },
  customVjp: { kind: "linearize", linearize: customVjpRule },

  psum: back((ct, { ins, params: { axes } }) => sumOfCotangents(ct, at(ins, 0), axes)),
  pmax: reduceAcrossExtreme(),
  pmin: reduceAcrossExtreme(),
  allGather: back((ct, { params: { axes, dim } }) => ops.psumScatter(ct, axes, dim)),
  psumScatter: back((ct, { params: { axes, dim } }) => ops.allGather(ct, axes, dim)),
  ppermute: back((ct, { params: { axes, permutation } }) => {
    const inverse = permutation.map(([source, target]) => [target, source] as const);
    return ops.ppermute(ct, axes, inverse);
  }),
  allToAll: back((ct, { params: { axes, splitDim, concatDim } }) =>
    ops.allToAll(ct, axes, concatDim, splitDim),
  ),
  raggedAllToAll: pull(raggedAllToAllPull),
  axisIndex: zero,

  shardMap: { kind: "linearize", linearize: shardMapRule },
  shardingConstraint: back((ct, { params }) => ops.shardingConstraint(ct, params)),
};
