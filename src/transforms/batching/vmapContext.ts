import { roundTo } from "../../ir/dtype.js";
import { joinAxes, varyingAlong, varyingAxes } from "../../ir/infer/varying.js";
import type { DimAxes, MeshAxis } from "../../ir/mesh.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import { type Eqn, innerPrograms, type Program } from "../../ir/program.js";
import { at, range, type Shape, type TensorType, withShape } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";

/** A value of the batched program: either one for all elements of the batch, or one per element along dim 0. */
export interface Batched {
  readonly tensor: Tensor;
  readonly batched: boolean;
}

/** What the rules need to know about the batch. */
export interface BatchContext {
  /** The number of elements of the batch. */
  readonly size: number;
  /** The name by which collectives refer to the batch. */
  readonly axisName: string | undefined;
  /** The mesh axes that dim 0 is split over in shardings. */
  readonly spmdAxes: DimAxes;
  /** Mesh axes of a surrounding shard map that split the named axis; `size` is then one device's share. */
  readonly splitBy: readonly MeshAxis[];
  /** Those of them along which types track varying values: all batched values vary. */
  readonly varying: readonly MeshAxis[];
  /** Evaluates a program on values of the batch. */
  readonly evaluate: (program: Program, ins: readonly Batched[], context: BatchContext) => Batched[];
}

/** Applies one op to values of which at least one is batched, or that communicates over the mapped axis. */
export type VmapRule<K extends OpName> = (
  ins: readonly Batched[],
  params: OpParams[K],
  context: BatchContext,
  op: K,
) => Batched[];

/** A value that has the batch as dim 0. */
export const batched = (tensor: Tensor): Batched => ({ tensor, batched: true });

/** A value that is the same for the whole batch. */
export const unbatched = (tensor: Tensor): Batched => ({ tensor, batched: false });

/** Which of the values are batched. */
export const flagsOf = (values: readonly Batched[]): boolean[] => values.map((value) => value.batched);

/** The tensors of the values, unchanged. */
export const tensorsOf = (values: readonly Batched[]): Tensor[] => values.map(({ tensor }) => tensor);

/** The tensors as values, batched where the flags say so. */
export function withFlags(tensors: readonly Tensor[], flags: readonly boolean[]): Batched[] {
  return tensors.map((tensor, i) => ({ tensor, batched: at(flags, i) }));
}

/** The shape that one element of the batch sees. */
export function elementShape({ tensor, batched }: Batched): Shape {
  return batched ? tensor.shape.slice(1) : tensor.shape;
}

/** The type with the batch as dim 0. */
export function batchedType(type: TensorType, { size, varying }: BatchContext): TensorType {
  const whole = withShape(type, [size, ...type.shape]);
  return varyingAlong(whole, joinAxes([varyingAxes(type), varying]));
}

/** The value with the batch as dim 0, repeated if need be. */
export function materialize({ tensor, batched }: Batched, { size }: BatchContext): Tensor {
  const dims = range(tensor.ndim).map((d) => d + 1);
  return batched ? tensor : ops.broadcastInDim(tensor, [size, ...tensor.shape], dims);
}

/** The sum over the batch; a value shared by all elements counts once for each. */
export function sumOverBatch(value: Batched, context: BatchContext): Tensor {
  const { tensor } = value;
  const isExact = roundTo(tensor.dtype, context.size) === context.size;
  if (!value.batched && isExact) return ops.mul(tensor, context.size);
  return ops.reduceSum(materialize(value, context), [0]);
}

/** Takes each element of the batch from one of two batched tensors, chosen by a bool per element. */
export function selectElements(predicate: Tensor, onTrue: Tensor, onFalse: Tensor): Tensor {
  return ops.select(ops.broadcastInDim(predicate, onTrue.shape, [0]), onTrue, onFalse);
}

/** A program over the batch, and which of its outputs have the batch as dim 0. */
export interface BatchedProgram {
  readonly program: Program;
  readonly batchedOutputs: readonly boolean[];
}

/**
 * Rewrites a program so that the inputs with a flag have the batch as dim 0.
 *
 * @param wanted outputs that must be batched even when all elements share them
 */
export function batchProgram(
  program: Program,
  batchedInputs: readonly boolean[],
  context: BatchContext,
  wanted: readonly boolean[] = [],
): BatchedProgram {
  let batchedOutputs: boolean[] = [];
  const types = program.inputs.map(({ type }, i) => (batchedInputs[i] ? batchedType(type, context) : type));
  const traced = traceFlat(
    (ins) => {
      const values = context.evaluate(program, withFlags(ins, batchedInputs), context);
      batchedOutputs = values.map((value, i) => value.batched || wanted[i] === true);
      return values.map((value, i) => {
        if (!batchedOutputs[i]) return value.tensor;
        return ops.pvary(materialize(value, context), context.varying);
      });
    },
    types,
    "vmap",
  );
  return { program: traced.program, batchedOutputs };
}

/** Whether the equation, or a program inside it, communicates over the named axis. */
export function namesAxis(eqn: Eqn, name: string | undefined): boolean {
  return programNamesAxis({ eqns: [eqn] }, name);
}

/** Whether an equation of the program communicates over the named axis. */
export function programNamesAxis({ eqns }: Pick<Program, "eqns">, name: string | undefined): boolean {
  if (name === undefined) return false;
  return eqns.some((eqn) => {
    if ("axes" in eqn.params && eqn.params.axes.some((axis) => axis.name === name)) return true;
    // Inside a shard map over an axis of this name, that axis is meant.
    if (eqn.op === "shardMap" && eqn.params.manual.includes(name)) return false;
    return innerPrograms(eqn).some(([, inner]) => programNamesAxis(inner, name));
  });
}
