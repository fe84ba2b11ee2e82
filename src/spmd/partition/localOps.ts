import { type DimAxes, type MeshShape, type Spec, splitCount } from "../../ir/mesh.js";
import type { Eqn } from "../../ir/program.js";
import { at, range } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import type { FactorRule } from "./factors.js";
import { namedAxes } from "./reshard.js";

/** How an equation is split. */
export interface LocalContext {
  readonly mesh: MeshShape;
  readonly rule: FactorRule;
  readonly assigned: readonly DimAxes[];
  readonly operandSpecs: readonly Spec[];
  readonly resultSpecs: readonly Spec[];
}

/** Emits an equation on blocks: sizes in its parameters become those of the blocks, positions get offsets. */
export function emitLocal(eqn: Eqn, ins: readonly Tensor[], context: LocalContext): Tensor[] {
  const outShape = () => localShape(at(eqn.outs, 0).type.shape, at(context.resultSpecs, 0), context.mesh);
  switch (eqn.op) {
    case "broadcastInDim":
      return bind("broadcastInDim", ins, { ...eqn.params, shape: outShape() });
    case "reshape":
      return bind("reshape", ins, { shape: outShape() });
    case "slice": {
      const x = at(ins, 0);
      const limits = eqn.params.limits.map((limit, d) =>
        at(eqn.ins, 0).type.shape[d] === limit ? at(x.shape, d) : limit,
      );
      return bind("slice", ins, { ...eqn.params, limits });
    }
    case "dynamicSlice":
      return bind("dynamicSlice", ins, { sizes: outShape() });
    case "iota":
      return [iota(eqn, outShape(), context)];
    case "gather":
      return [gather(eqn, ins, context)];
    case "scatter":
      return [scatter(eqn, ins, context)];
    default:
      return bind(eqn.op, ins, eqn.params);
  }
}

function localShape(shape: readonly number[], spec: Spec, mesh: MeshShape): number[] {
  return shape.map((n, d) => n / splitCount(mesh, spec[d] ?? []));
}

/** The first index of this device's block of a dim. */
function offsetOf(axes: DimAxes, blockSize: number, mesh: MeshShape): Tensor {
  return ops.mul(ops.axisIndex(namedAxes(mesh, axes)), blockSize);
}

function spread(scalar: Tensor, like: Tensor): Tensor {
  return ops.broadcastInDim(scalar, like.shape, []);
}

function iota(eqn: Eqn<"iota">, shape: readonly number[], { mesh, resultSpecs }: LocalContext): Tensor {
  const { dtype, dim } = eqn.params;
  const own = ops.iota(dtype, shape, dim);
  const axes = at(at(resultSpecs, 0), dim);
  if (axes.length === 0) return own;
  return ops.add(own, spread(ops.convert(offsetOf(axes, at(shape, dim), mesh), dtype), own));
}

/** Looking up in a split table: every device answers for its rows and gives zeros for the others. */
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
 * Writing into a split table: every device drops what is outside of its rows. When the updates are split,
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
