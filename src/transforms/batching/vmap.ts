import { integerFrom, need } from "../../ir/arguments.js";
import { DimError, ShapeError, TreeError, ValueError } from "../../ir/errors.js";
import type { DimAxes } from "../../ir/mesh.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Literal, Program } from "../../ir/program.js";
import { evaluateProgram } from "../../ir/program.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, type TensorType, typesOf, withShape } from "../../ir/shape.js";
import { withMappedAxis } from "../../trace/axes.js";
import { atSource, bind, callProgram, isTracing, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Prefix } from "../../trace/prefix.js";
import { Tensor } from "../../trace/tensor.js";
import { type FlatArgs, flattenCall, traceTree } from "../../trace/trace.js";
import { broadcastPrefix, leafPaths, type Structure, unflatten } from "../../trace/tree.js";
import {
  type BatchContext,
  type Batched,
  type BatchedProgram,
  batchProgram,
  materialize,
  namesAxis,
  tensorsOf,
  unbatched,
  type VmapRule,
} from "./vmapContext.js";
import { vmapRules } from "./vmapRules.js";

const vmapOptions = schema({
  inAxes: optional("any"),
  outAxes: optional("any"),
  /** The name by which collectives inside the function refer to the mapped dim. */
  axisName: optional("string"),
  /** The size of the mapped dim, needed only when no argument is mapped. */
  axisSize: optional(integerFrom(0)),
  /** The mesh axes that the mapped dim is split over in shard maps and sharding constraints inside. */
  spmdAxisName: optional("stringOrStrings"),
  /**
   * Arguments that are static: part of the function instead of tensors. Booleans and strings always are. −1 is the last
   * one.
   */
  staticArgnums: optional("integerOrIntegers"),
});

/** How {@link vmap} maps a function with the arguments `A` and the result `R`. */
export interface VmapOptions<A = unknown, R = unknown> extends OptionsOf<typeof vmapOptions> {
  /**
   * The dim of each argument to map over: one number for all, or a prefix of the tree of arguments with one entry per
   * argument. `null` leaves an argument unmapped; negative dims count from the end. Default 0.
   */
  readonly inAxes?: Prefix<A, number | null>;
  /**
   * The position of the mapped dim in the results: a prefix of the result's tree, `null` for results that are the same
   * for all. Default 0.
   */
  readonly outAxes?: Prefix<R, number | null>;
}

/** What {@link vmapProgram} needs to know about the batch. */
export interface VmapProgramOptions {
  /** The number of elements of the batch. */
  readonly size: number;
  /** Which inputs have the batch as dim 0. */
  readonly batchedInputs: readonly boolean[];
  readonly axisName?: string | undefined;
  readonly spmdAxisName?: string | readonly string[] | undefined;
}

/**
 * Turns a function of single elements into one of whole batches.
 *
 * ```ts
 * const distances = vmap((x: Tensor, y: Tensor) => np.abs(x.sub(y)).sum(), { inAxes: [0, null] });
 * distances(np.ones([8, 3]), np.zeros([3])); // 8 numbers
 * ```
 *
 * @example
 * ```ts
 * vmap((row: Tensor) => np.max(row))(np.array([[1, 5], [3, 2]])); // [5, 3]
 * ```
 */
export function vmap<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options: VmapOptions<A, R> = {},
): (...args: A) => R {
  need("function", fn, "fn", "vmap");
  vmapOptions.read(options, "vmap");
  const { inAxes = 0, outAxes = 0, axisName, axisSize, spmdAxisName, staticArgnums } = options;
  return (...args) => {
    const flat = flattenCall(args, staticArgnums, "vmap");
    const { tensors, structure } = flat;
    const mapped = mappedDims(inAxes, args.length, flat);
    const size = commonSize(mapped, axisSize);
    const types = mapped.map(({ tensor, dim }) => elementType(tensor.type, dim));
    const trace = (name?: string) => ({ name, ...traceTree(fn, structure, types, "vmap") });
    const traced = axisName === undefined ? trace() : withMappedAxis({ name: axisName, size }, trace);
    const { program, captures, outStructure, target } = traced;
    const context = newContext(size, traced.name, spmdAxisName);
    const apply = (ins: readonly Tensor[]): Tensor[] => {
      const values = ins.map((tensor, i): Batched => {
        const dim = mapped[i - captures.length]?.dim ?? null;
        return dim === null ? unbatched(tensor) : { tensor: ops.moveDim(tensor, dim, 0), batched: true };
      });
      return placeResults(evaluate(program, values, context), outAxes, outStructure, context);
    };
    const ins = [...captures, ...tensors];
    const whole = () => traceFlat(apply, typesOf(ins), "vmap").program;
    return unflatten<R>(outStructure, isTracing() ? apply(ins) : callProgram(whole(), ins, target));
  };
}

/** Rewrites a program of single elements into one of batches; flagged inputs have the batch as dim 0. */
export function vmapProgram(program: Program, options: VmapProgramOptions): BatchedProgram {
  const { size, batchedInputs, axisName, spmdAxisName } = options;
  return batchProgram(program, batchedInputs, newContext(size, axisName, spmdAxisName));
}

function newContext(
  size: number,
  axisName: string | undefined,
  spmdAxisName: string | readonly string[] | undefined,
): BatchContext {
  const spmdAxes: DimAxes = typeof spmdAxisName === "string" ? [spmdAxisName] : (spmdAxisName ?? []);
  return { size, axisName, spmdAxes, splitBy: [], varying: [], evaluate };
}

/** Evaluates a program on a batch in the current trace; values shared by all elements are computed once. */
function evaluate(program: Program, ins: readonly Batched[], context: BatchContext): Batched[] {
  const literal = (atom: Literal) => unbatched(Tensor.literal(atom));
  return evaluateProgram(program, ins, literal, (eqn, operands) => {
    const isMapped = operands.some((value) => value.batched) || namesAxis(eqn, context.axisName);
    return atSource(eqn.source, () =>
      isMapped
        ? applyRule(eqn.op, operands, eqn.params, context)
        : bind(eqn.op, tensorsOf(operands), eqn.params).map(unbatched),
    );
  });
}

function applyRule<K extends OpName>(
  op: K,
  ins: readonly Batched[],
  params: OpParams[K],
  context: BatchContext,
): Batched[] {
  const rule: VmapRule<K> = vmapRules[op];
  return rule(ins, params, context, op);
}

/** An argument with the dim it is mapped over, or `null`. */
interface MappedArg {
  readonly tensor: Tensor;
  readonly path: string;
  readonly dim: number | null;
}

function elementType(type: TensorType, dim: number | null): TensorType {
  return dim === null ? type : withShape(type, type.shape.toSpliced(dim, 1));
}

/** One entry of an axes tree as a dim of a tensor with `rank` dims. */
function resolveDim(axis: unknown, rank: number, option: string, where: string): number | null {
  if (axis === null || axis === undefined) return null;
  if (typeof axis !== "number" || !Number.isInteger(axis)) {
    throw new ValueError(
      `[vmap] ${option} has ${String(axis)} for ${where}: use an integer, or null for what is not mapped`,
    );
  }
  if (axis < -rank || axis >= rank) {
    const range = rank === 0 ? "use null for it" : `use a number from ${-rank} to ${rank - 1}, or null`;
    throw new DimError(`[vmap] ${option} ${axis} is out of range for ${where} (${rank} dims): ${range}`);
  }
  return axis < 0 ? axis + rank : axis;
}

function mappedDims(inAxes: unknown, numArgs: number, { tensors, paths, structure }: FlatArgs): MappedArg[] {
  if (Array.isArray(inAxes) && inAxes.length !== numArgs) {
    throw new TreeError(
      `[vmap] inAxes has ${inAxes.length} entries for ${numArgs} arguments: give one per argument, or one number for all`,
    );
  }
  const axes = broadcastPrefix(inAxes, structure, "vmap inAxes");
  return tensors.map((tensor, i) => {
    const path = at(paths, i);
    const where = `argument ${path} ${formatType(tensor.type)}`;
    return { tensor, path, dim: resolveDim(axes[i], tensor.ndim, "inAxes", where) };
  });
}

/** The size of the mapped dim, which all mapped arguments must share. */
function commonSize(args: readonly MappedArg[], axisSize: number | undefined): number {
  const sizes = args.flatMap(({ tensor, path, dim }) => {
    if (dim === null) return [];
    const size = at(tensor.shape, dim);
    return [{ size, text: `argument ${path} ${formatType(tensor.type)} has ${size} along dim ${dim}` }];
  });
  if (axisSize !== undefined) sizes.push({ size: axisSize, text: `axisSize is ${axisSize}` });
  const [first] = sizes;
  if (!first) {
    throw new ValueError(
      "[vmap] no argument is mapped (inAxes is null for all of them), so the size of the mapped dim is unknown: map an argument, or give axisSize",
    );
  }
  if (sizes.some(({ size }) => size !== first.size)) {
    throw new ShapeError(
      `[vmap] the mapped dims must have the same size:\n${sizes.map(({ text }) => `  ${text}`).join("\n")}\nmap other dims with inAxes, or leave an argument whole with null`,
    );
  }
  return first.size;
}

/** Moves the batch of every result to the dim that `outAxes` gives it. */
function placeResults(
  results: readonly Batched[],
  outAxes: unknown,
  structure: Structure,
  context: BatchContext,
): Tensor[] {
  const axes = broadcastPrefix(outAxes, structure, "vmap outAxes");
  const paths = leafPaths(structure);
  return results.map((result, i) => {
    const path = at(paths, i);
    const where = path === "" ? "the result" : `result ${path}`;
    const rank = result.tensor.ndim + (result.batched ? 0 : 1);
    const dim = resolveDim(axes[i], rank, "outAxes", where);
    if (dim !== null) return ops.moveDim(materialize(result, context), 0, dim);
    if (result.batched) {
      throw new ValueError(
        `[vmap] outAxes is null for ${where}, but its value differs within the batch: give the dim to put the batch at, or reduce it first (lax.psum over an axisName)`,
      );
    }
    return result.tensor;
  });
}
