import { attentionOperands } from "../../../ir/infer/inferAttention.js";
import { type DimAxes, type MeshAxis, type MeshShape, type Spec, splitCount } from "../../../ir/mesh.js";
import { elementwiseFamilies, rowsOf } from "../../../ir/opFacts.js";
import { type Attention, type AttentionExtra, attentionExtras, type OpName } from "../../../ir/ops.js";
import { type Eqn, hasPrograms } from "../../../ir/program.js";
import { at, range } from "../../../ir/shape.js";
import { bind, repeat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";
import { Tensor } from "../../../trace/tensor.js";
import type { FactoredOp, FactorRule } from "../placement/factors.js";
import { namedAxes } from "../placement/reshard.js";
import {
  extremeIndex,
  offsetOf,
  ownGroups,
  readWindow,
  reverseBlocks,
  runningSums,
  spread,
  writeWindow,
} from "./splitDims.js";

/** How an equation is split. */
export interface LocalContext {
  readonly mesh: MeshShape;
  readonly rule: FactorRule;
  readonly assigned: readonly DimAxes[];
  readonly operandSpecs: readonly Spec[];
  readonly resultSpecs: readonly Spec[];
  /** The axes that no surrounding shard map has taken: along them all devices run one program together. */
  readonly auto: readonly MeshAxis[];
}

/** An equation on blocks of its operands. */
type Rule<K extends OpName> = (
  eqn: Eqn<K>,
  ins: readonly Tensor[],
  context: LocalContext,
) => readonly Tensor[];

/** The ops that run on blocks; the partitioner handles ops with bodies itself. */
export type LocalOp = FactoredOp;

/** For ops whose parameters contain neither sizes nor positions of split dims. */
function same<K extends OpName>(eqn: Eqn<K>, ins: readonly Tensor[]): Tensor[] {
  return repeat(eqn, ins);
}

/** Sizes in the parameters become those of the blocks, positions get offsets; many ops have neither. */
const rules: { readonly [K in LocalOp]: Rule<K> } = {
  ...rowsOf([...elementwiseFamilies, "collective", "position"], same),
  optimizationBarrier: same,
  iota: (eqn, _ins, context) => [iota(eqn, outShape(eqn, context), context)],
  broadcastInDim: (eqn, ins, context) =>
    bind("broadcastInDim", ins, { ...eqn.params, shape: outShape(eqn, context) }),
  reshape: (eqn, ins, context) => bind("reshape", ins, { shape: outShape(eqn, context) }),
  transpose: same,
  reverse: (eqn, ins, context) => [reverseBlocks(eqn, at(ins, 0), context)],
  slice: (eqn, ins) => {
    const [whole, block] = [at(eqn.ins, 0).type.shape, at(ins, 0).shape];
    const limits = eqn.params.limits.map((limit, d) => (whole[d] === limit ? at(block, d) : limit));
    return bind("slice", ins, { ...eqn.params, limits });
  },
  pad: same,
  concatenate: same,
  dynamicSlice: (eqn, ins, context) => [readWindow(eqn, ins, context)],
  dynamicUpdateSlice: (eqn, ins, context) => [writeWindow(eqn, ins, context)],
  gather: (eqn, ins, context) => [gather(eqn, ins, context)],
  scatter: (eqn, ins, context) => [scatter(eqn, ins, context)],
  reduceSum: same,
  reduceMax: same,
  reduceMin: same,
  argmax: (eqn, ins, context) => [extremeIndex(eqn, at(ins, 0), context)],
  argmin: (eqn, ins, context) => [extremeIndex(eqn, at(ins, 0), context)],
  cumsum: (eqn, ins, context) => [runningSums(eqn, at(ins, 0), context)],
  sort: same,
  dotGeneral: same,
  raggedDot: (eqn, ins, context) => bind("raggedDot", ownGroups(ins, context), eqn.params),
  callback: (eqn, ins, { auto }) => callback(eqn, ins, auto),
  attention: (eqn, ins, context) => {
    const { operands, params } = attentionOn(eqn, ins, context);
    return bind("attention", operands, params);
  },
  attentionBackward: (eqn, ins, context) => {
    const { operands, params } = attentionOn(eqn, ins, context);
    return bind("attentionBackward", operands, { ...eqn.params, ...params });
  },
  shardingConstraint: same,
};

/** Whether an equation runs on blocks, unlike those that only control differentiation or sharding. */
export function isLocal(eqn: Eqn): eqn is Eqn<LocalOp> {
  return !hasPrograms(eqn) && eqn.op !== "pvary" && eqn.op !== "shardingConstraint";
}

/** Emits an equation on blocks. */
export function emitLocal<K extends LocalOp>(
  eqn: Eqn<K>,
  ins: readonly Tensor[],
  context: LocalContext,
): readonly Tensor[] {
  const { op }: { readonly op: K } = eqn;
  const rule: Rule<K> = rules[op];
  return rule(eqn, ins, context);
}

/** The shape of this device's block of the result. */
function outShape({ outs }: Eqn, { resultSpecs, mesh }: LocalContext): number[] {
  return localShape(at(outs, 0).type.shape, at(resultSpecs, 0), mesh);
}

function localShape(shape: readonly number[], spec: Spec, mesh: MeshShape): number[] {
  return shape.map((n, d) => n / splitCount(mesh, spec[d] ?? []));
}

function iota(eqn: Eqn<"iota">, shape: readonly number[], { mesh, resultSpecs }: LocalContext): Tensor {
  const { dtype, dim } = eqn.params;
  const own = ops.iota(dtype, shape, dim);
  const axes = at(at(resultSpecs, 0), dim);
  if (axes.length === 0) return own;
  return ops.add(own, spread(ops.convert(offsetOf(axes, at(shape, dim), mesh), dtype), own));
}

/** Where queries are split, their positions instead of indices say which keys they see. */
function attentionOn(
  { op, params }: Eqn<"attention" | "attentionBackward">,
  ins: readonly Tensor[],
  { mesh, operandSpecs }: LocalContext,
): { readonly operands: readonly Tensor[]; readonly params: Attention } {
  const { extras = [], causal, window, dropoutRate } = params;
  const axes = at(at(operandSpecs, 0), 1);
  const depends = causal || window !== undefined || dropoutRate !== undefined;
  if (axes.length === 0 || !depends || extras.includes("queryPositions")) return { operands: ins, params };
  const [batch = 0, length = 0] = at(ins, 0).shape;
  const indices = ops.iota("int32", [batch, length], 1);
  const first = attentionOperands[op];
  const named = new Map<AttentionExtra, Tensor>([
    ...extras.map((name, i) => [name, at(ins, first + i)] as const),
    ["queryPositions", ops.add(indices, spread(offsetOf(axes, length, mesh), indices))],
    ["keyPositions", ops.iota("int32", [batch, at(at(ins, 1).shape, 1)], 1)],
  ]);
  const all = attentionExtras.filter((name) => named.has(name));
  return {
    operands: [...ins.slice(0, first), ...all.flatMap((name) => named.get(name) ?? [])],
    params: { ...params, extras: all },
  };
}

/** Lookup in a split table: every device returns its own rows, and zeros for the others. */
function gather(eqn: Eqn<"gather">, ins: readonly Tensor[], { mesh, operandSpecs }: LocalContext): Tensor {
  const [x, indices] = [at(ins, 0), at(ins, 1)];
  const { dim, batchDims } = eqn.params;
  const axes = at(at(operandSpecs, 0), dim);
  if (axes.length === 0) return ops.gather(x, indices, eqn.params);
  const rows = at(x.shape, dim);
  const whole = rows * splitCount(mesh, axes);
  const clamped = ops.clamp(Tensor.scalar(0, "int32"), indices, Tensor.scalar(whole - 1, "int32"));
  const own = ops.sub(clamped, spread(offsetOf(axes, rows, mesh), indices));
  const inside = ops.and(ops.compare("ge", own, 0), ops.compare("lt", own, rows));
  const taken = ops.gather(x, own, eqn.params);
  const pre = dim - batchDims;
  const dims = [...range(batchDims), ...range(indices.ndim - batchDims).map((i) => batchDims + pre + i)];
  return ops.select(ops.broadcastInDim(inside, taken.shape, dims), taken, ops.zeros(taken.type));
}

/**
 * Writing into a split table: every device drops updates outside of its rows. When the updates are split,
 * only the first device keeps the old values, because the results are summed.
 */
function scatter(eqn: Eqn<"scatter">, ins: readonly Tensor[], context: LocalContext): Tensor {
  const { mesh, operandSpecs, rule, assigned } = context;
  const [x, indices, updates] = [at(ins, 0), at(ins, 1), at(ins, 2)];
  const axes = at(at(operandSpecs, 0), eqn.params.dim);
  const rows = at(x.shape, eqn.params.dim);
  const own = axes.length === 0 ? indices : ops.sub(indices, spread(offsetOf(axes, rows, mesh), indices));
  const summed = assigned.flatMap((list, f) => (at(rule.factors, f).kind === "sum" ? list : []));
  if (summed.length === 0) return ops.scatter(x, own, updates, eqn.params);
  const first = ops.compare("eq", ops.axisIndex(namedAxes(mesh, summed)), 0);
  return ops.scatter(ops.select(spread(first, x), x, ops.zeros(x.type)), own, updates, eqn.params);
}

/**
 * All devices have the whole operands. They all call pure functions; others are called by the first device, which sends
 * its results to the rest.
 */
function callback(
  { params }: Eqn<"callback">,
  ins: readonly Tensor[],
  auto: readonly MeshAxis[],
): readonly Tensor[] {
  if (params.kind === "pure" || auto.length === 0) return bind("callback", ins, params);
  const results = bind("callback", ins, { ...params, once: [...params.once, ...auto] });
  return results.map((x) => {
    const all = ops.allGather(ops.reshape(x, [1, ...x.shape]), auto, 0);
    return ops.reshape(ops.sliceDim(all, 0, 0, 1), x.shape);
  });
}
