/**
 * Afterwards the program uses a smaller set of ops: no `name`, `stopGradient`, `optimizationBarrier` or `clamp`, no
 * `attention` but what one kernel computes, no `xlaFunction` or `roundFloat8`, no conversion, reshape or transpose that changes nothing, no sum or product in 16-bit floats or
 * narrow integers, no sum of more than 2^22 float32 values, no matrix product of integers or of one row and a large matrix, no `allToAll` except
 * along dim 0, and nothing that has no effect on an output, another device or a host callback.
 *
 * Unchanged are the inputs, the types and values of the outputs, and the order of the collectives, except that
 * adjacent small sums have become one.
 */

import { zip } from "../../ir/collections.js";
import { type DType, isFloat, isNarrowInteger, sumType } from "../../ir/dtype.js";
import { hasEffects } from "../../ir/effects.js";
import { InternalError } from "../../ir/errors.js";
import { attentionBackwardProgram, attentionProgram } from "../../ir/expansions/attention.js";
import { float8Program } from "../../ir/expansions/float8.js";
import { raggedAllToAllProgram, raggedDotProgram } from "../../ir/expansions/ragged.js";
import { xlaProgram } from "../../ir/expansions/xlaFunctions.js";
import { liveEqns } from "../../ir/liveness.js";
import { axesSize } from "../../ir/mesh.js";
import { isCollective, type ReduceOp, rowsOf, uniformFamilies } from "../../ir/opFacts.js";
import type { OpName } from "../../ir/ops.js";
import { afterPass } from "../../ir/passes.js";
import {
  type Atom,
  type Eqn,
  hasPrograms,
  mapInnerPrograms,
  newLiteral,
  newVar,
  type Program,
  someEqn,
  type Var,
} from "../../ir/program.js";
import { at, range, sameNumbers, sizeOf, type TensorType, tensorType, typesOf } from "../../ir/shape.js";
import { reductionIdentity } from "../identities.js";
import { bucketSums } from "./bucketSums.js";
import { indicesFirst } from "./indicesFirst.js";
import { integerDot } from "./integerDot.js";
import { joinPads } from "./joinPads.js";
import { reduceInParts, sumInParts } from "./longSums.js";
import { narrowProducts } from "./narrowProducts.js";
import { isOneKernel } from "./oneKernel.js";
import { type RewriteOptions, Rewriter } from "./rewriter.js";
import { isRowProduct, rowProduct } from "./rowProduct.js";
import { shareStacks } from "./shareStacks.js";
import { tiledAttention, tiledAttentionBackward } from "./tiledAttention.js";

/**
 * Brings a per-device program into the small language that the later passes understand:
 *
 * * `name`, `stopGradient`, `optimizationBarrier` and shape-preserving movements are gone;
 * * 16-bit floats are reduced, scanned and multiplied in float32, narrow integers in int32; products keep bfloat16
 *   operands only if the engine can multiply them, and are float32 themselves;
 * * very long sums of float32 are sums of sums, since a single accumulator would lose terms;
 * * integer matrix products, and those of one row, are products and sums, attention is products and a softmax unless one kernel computes it, and functions with the bits of XLA are polynomials;
 * * loops stack only what is not in memory already;
 * * sums of padded blocks that tile a tensor are concatenations;
 * * small sums over the same devices are one;
 * * collectives move dense blocks, `allToAll` along dim 0;
 * * results without elements, or made of no elements, are constants;
 * * what nothing needs is dropped;
 * * indices are computed first.
 */
export function normalise(program: Program, options: RewriteOptions = {}): Program {
  const rewritten = afterPass("normalise", new Rewriter(rewriteEqn, options).program(program), "lowered");
  // A GPU computes all of a factor at a time; blocks one after the other would leave it idle.
  const tiled = options.gpu ? rewritten : afterPass("narrowProducts", narrowProducts(rewritten), "lowered");
  const shared = afterPass("shareStacks", shareStacks(tiled), "lowered");
  const joined = afterPass("joinPads", joinPads(shared), "lowered");
  const used = afterPass("dropUnused", dropUnused(joined), "lowered");
  const bucketed = afterPass("bucketSums", bucketSums(used), "lowered");
  return afterPass("indicesFirst", indicesFirst(bucketed), "lowered");
}

/** Keeps the equations whose results are needed; collectives stay, since other devices wait for them, and calls of the host. */
function dropUnused(program: Program): Program {
  const { eqns } = liveEqns(program, program.outputs, (eqn, used) =>
    used.includes(true) || communicates(eqn) || hasEffects(eqn) ? eqn : undefined,
  );
  return { ...program, eqns };
}

function communicates(eqn: Eqn): boolean {
  return someEqn({ eqns: [eqn] }, ({ op }) => isCollective(op));
}

/** What becomes of an equation. */
type Rewrite<K extends OpName> = (r: Rewriter, eqn: Eqn<K>) => void;

const keep: Rewrite<OpName> = (r, eqn) => r.keep(eqn);

const passOn: Rewrite<OpName> = (r, { ins, outs }) => {
  for (const [out, atom] of zip(outs, ins)) r.replace(out, atom);
};

const normaliseBodies: Rewrite<OpName> = (r, eqn) =>
  r.keep(mapInnerPrograms(eqn, (program) => normalise(program, r.options)));

const unlessSameType: Rewrite<"convert" | "bitcast"> = (r, eqn) => {
  const [x, out] = [at(eqn.ins, 0), at(eqn.outs, 0)];
  if (x.type.dtype === eqn.params.dtype) r.replace(out, x);
  else r.keep(eqn);
};

const unlessSameShape: Rewrite<"reshape" | "broadcastInDim"> = (r, eqn) => {
  const [x, out] = [at(eqn.ins, 0), at(eqn.outs, 0)];
  if (x.kind === "literal" && eqn.op === "reshape") r.splat(x, out);
  else if (x.kind === "var" && sameNumbers(x.type.shape, out.type.shape)) r.replace(out, x);
  else r.keep(eqn);
};

/** The partitioner leaves none of these in the program of a device. */
const unknown: Rewrite<OpName> = (_, { op }) => {
  throw new InternalError(`[compile] ${op} must not occur in a per-device program`);
};

/** Attention is a step where one kernel computes it, in float32, and otherwise a program. */
function attentionStepOrProgram(
  r: Rewriter,
  eqn: Eqn<"attention"> | Eqn<"attentionBackward">,
  programOf: (types: readonly TensorType[]) => Program,
): void {
  const { op, ins, outs, params } = eqn;
  if (!r.options.attentionSteps || !isOneKernel(eqn, r.options.gpu)) {
    r.inline(programOf(typesOf(ins)), eqn);
    return;
  }
  const wide = outs.map((out) => asFloat32(out, () => newVar(tensorType("float32", out.type.shape))));
  r.emit<OpName>(
    op,
    ins.map((x) => asFloat32(x, () => r.convert(x, "float32"))),
    wide,
    params,
  );
  for (const [out, result] of zip(outs, wide)) {
    if (out !== result) r.emit("convert", [result], [out], { dtype: out.type.dtype });
  }
}

/** A value if it is float32 already, and otherwise what a function gives. */
function asFloat32<A extends Atom>(x: A, otherwise: () => A | Var): A | Var {
  return x.type.dtype === "float32" ? x : otherwise();
}

/** What becomes of every op. */
const rewrites: { readonly [K in OpName]: Rewrite<K> } = {
  ...rowsOf(uniformFamilies, keep),
  isFinite: keep,
  convert: unlessSameType,
  bitcast: unlessSameType,
  xlaFunction: (r, eqn) => r.inline(xlaProgram(eqn.params, typesOf(eqn.ins)), eqn),
  roundFloat8: (r, eqn) => r.inline(float8Program(eqn.params, typesOf(eqn.ins)), eqn),
  compare: keep,
  select: keep,
  clamp: (r, { ins, outs }) => {
    const [low, x, high, out] = [at(ins, 0), at(ins, 1), at(ins, 2), at(outs, 0)];
    r.emit("min", [r.make("max", [x, low], out.type, {}), high], [out], {});
  },
  threefry2x32: keep,
  name: passOn,
  stopGradient: passOn,
  pvary: passOn,
  optimizationBarrier: passOn,

  iota: keep,
  broadcastInDim: unlessSameShape,
  reshape: unlessSameShape,
  transpose: (r, eqn) => {
    if (eqn.params.permutation.every((p, i) => p === i)) r.replace(at(eqn.outs, 0), at(eqn.ins, 0));
    else r.keep(eqn);
  },
  reverse: keep,
  slice: keep,
  pad: keep,
  concatenate: keep,
  dynamicSlice: keep,
  dynamicUpdateSlice: keep,
  gather: keep,
  scatter,

  ...rowsOf(["reduction"], reduce),
  argmax: keep,
  argmin: keep,
  cumsum,
  sort: keep,
  dotGeneral: dot,
  raggedDot,
  // A GPU computes all heads at a time.
  attention: (r, eqn) => {
    const programOf = r.options.gpu ? attentionProgram : tiledAttention;
    attentionStepOrProgram(r, eqn, (types) => programOf(eqn.params, types));
  },
  attentionBackward: (r, eqn) => {
    const programOf = r.options.gpu ? attentionBackwardProgram : tiledAttentionBackward;
    attentionStepOrProgram(r, eqn, (types) => programOf(eqn.params, types));
  },

  callback: keep,

  ...rowsOf(["control"], normaliseBodies),
  ...rowsOf(["call", "sharding"], unknown),

  psum: keep,
  pmax: keep,
  pmin: keep,
  allGather: keep,
  psumScatter: keep,
  ppermute: keep,
  allToAll,
  raggedAllToAll: (r, eqn) => {
    if (!r.options.gpu) r.keep(eqn);
    else r.inline(raggedAllToAllProgram(eqn.params, typesOf(eqn.ins)), eqn);
  },
  axisIndex: keep,
};

function rewriteEqn(r: Rewriter, eqn: Eqn): void {
  const isLocal = !("axes" in eqn.params) && !hasPrograms(eqn) && !hasEffects(eqn) && eqn.outs.length > 0;
  if (isLocal && eqn.outs.every(({ type }) => sizeOf(type.shape) === 0)) {
    for (const out of eqn.outs) r.splat(newLiteral(0, out.type.dtype), out);
  } else {
    rewrite(r, eqn);
  }
}

function rewrite<K extends OpName>(r: Rewriter, eqn: Eqn<K>): void {
  const { op }: { readonly op: K } = eqn;
  const rule: Rewrite<K> = rewrites[op];
  rule(r, eqn);
}

/** The type in which a value is summed and multiplied: 16-bit floats in float32, narrow integers in int32. */
const workType = ({ type: { dtype } }: Atom): DType => (isNarrowInteger(dtype) ? "int32" : sumType(dtype));

const isNarrow = (x: Atom): boolean => workType(x) !== x.type.dtype;

function reduce(r: Rewriter, { op, ins, outs, params }: Eqn<ReduceOp>): void {
  const [x, out] = [at(ins, 0), at(outs, 0)];
  const { dtype, shape } = x.type;
  if (sizeOf(shape) === 0) {
    r.splat(newLiteral(reductionIdentity(op, dtype), dtype), out);
  } else if (params.dims.every((d) => shape[d] === 1)) {
    if (shape.length === out.type.shape.length) r.replace(out, x);
    else r.emit("reshape", [x], [out], { shape: out.type.shape });
  } else if (isNarrow(x)) {
    const wide = r.convert(x, workType(x));
    const sum = newVar(tensorType(wide.type.dtype, out.type.shape));
    combine(r, op, wide, params.dims, sum);
    r.emit("convert", [sum], [out], { dtype });
  } else {
    combine(r, op, x, params.dims, out);
  }
}

function combine(r: Rewriter, op: ReduceOp, x: Atom, dims: readonly number[], out: Var): void {
  if (r.options.gpu && reduceInParts(r, op, x, dims, out)) return;
  if (op === "reduceSum") sumInParts(r, x, dims, out);
  else r.emit(op, [x], [out], { dims });
}

function cumsum(r: Rewriter, eqn: Eqn<"cumsum">): void {
  const [x, out] = [at(eqn.ins, 0), at(eqn.outs, 0)];
  const { dtype, shape } = x.type;
  if (!isNarrow(x)) {
    r.keep(eqn);
    return;
  }
  const wide = r.convert(x, workType(x));
  const sums = r.make("cumsum", [wide], tensorType(wide.type.dtype, shape), eqn.params);
  r.emit("convert", [sums], [out], { dtype });
}

function scatter(r: Rewriter, eqn: Eqn<"scatter">): void {
  const [x, indices, updates] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.ins, 2)];
  const out = at(eqn.outs, 0);
  const { dtype, shape } = x.type;
  if (eqn.params.combine === "set" || !isNarrow(x)) {
    r.keep(eqn);
    return;
  }
  const wide = workType(x);
  const ins = [r.convert(x, wide), indices, r.convert(updates, wide)];
  const sums = r.make("scatter", ins, tensorType(wide, shape), eqn.params);
  r.emit("convert", [sums], [out], { dtype });
}

/**
 * The type in which a product is formed, which holds it: 16-bit floats in float32, narrow integers in int32; and
 * whether its factors stay as they are.
 */
function productType(
  r: Rewriter,
  x: Atom,
  dtype: DType,
): { readonly wide: DType; readonly isTaken: boolean } {
  const work = workType(x);
  const wide = isFloat(work) && dtype === "float64" ? "float64" : work;
  const { bfloat16Products = false, float16Products = false } = r.options;
  const isTaken =
    wide === "float32" &&
    ((x.type.dtype === "bfloat16" && bfloat16Products) || (x.type.dtype === "float16" && float16Products));
  return { wide, isTaken };
}

function dot(r: Rewriter, { ins, outs, params }: Eqn<"dotGeneral">): void {
  const [x, y, out] = [at(ins, 0), at(ins, 1), at(outs, 0)];
  const { lhsContract, dtype } = params;
  if (lhsContract.some((d) => x.type.shape[d] === 0)) {
    r.splat(newLiteral(0, dtype), out);
    return;
  }
  const { wide, isTaken } = productType(r, x, dtype);
  const widened = (v: Atom) => (isTaken || v.type.dtype === wide ? v : r.convert(v, wide));
  const target = wide === dtype ? out : newVar(tensorType(wide, out.type.shape));
  const floats = (v: Atom) => (v.type.dtype === "float32" ? v : r.convert(v, "float32"));
  if (wide === "float32" && isRowProduct(x, y, params)) rowProduct(r, floats(x), floats(y), params, target);
  else if (isFloat(wide))
    r.emit("dotGeneral", [widened(x), widened(y)], [target], { ...params, dtype: wide });
  else integerDot(r, widened(x), widened(y), params, target);
  if (target !== out) r.emit("convert", [target], [out], { dtype });
}

function raggedDot(r: Rewriter, eqn: Eqn<"raggedDot">): void {
  const [x, y, sizes, out] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.ins, 2), at(eqn.outs, 0)];
  const { dtype } = eqn.params;
  const { wide, isTaken } = productType(r, x, dtype);
  if ([x, y, sizes].some(({ type }) => sizeOf(type.shape) === 0)) {
    r.splat(newLiteral(0, dtype), out);
  } else if (!isFloat(wide) || r.options.gpu) {
    r.inline(raggedDotProgram(eqn.params, typesOf(eqn.ins)), eqn);
  } else {
    const widened = (v: Atom) => (isTaken || v.type.dtype === wide ? v : r.convert(v, wide));
    const target = wide === dtype ? out : newVar(tensorType(wide, out.type.shape));
    r.emit("raggedDot", [widened(x), widened(y), sizes], [target], { ...eqn.params, dtype: wide });
    if (target !== out) r.emit("convert", [target], [out], { dtype });
  }
}

/** Splits to `[devices, …block]`, exchanges along dim 0, and puts what arrives along the other dim. */
function allToAll(r: Rewriter, { ins, outs, params }: Eqn<"allToAll">): void {
  const [x, out] = [at(ins, 0), at(outs, 0)];
  const { axes, splitDim, concatDim } = params;
  const devices = axesSize(axes);
  const { shape } = x.type;
  const rank = shape.length;
  const parts = r.reshape(x, shape.toSpliced(splitDim, 1, devices, at(shape, splitDim) / devices));
  const sent = r.transpose(parts, [splitDim, ...range(rank + 1).filter((d) => d !== splitDim)]);
  const arrived = r.make("allToAll", [sent], sent.type, { axes, splitDim: 0, concatDim: 0 });
  // The device dim goes right before the dim it is concatenated to.
  const order = range(rank).flatMap((d) => (d === concatDim ? [0, d + 1] : [d + 1]));
  r.emit("reshape", [r.transpose(arrived, order)], [out], { shape: out.type.shape });
}
