import { oneDeviceEngine } from "#engines/oneDevice";
import { readsOnce } from "../../ir/ambient.js";
import { ShardingError } from "../../ir/errors.js";
import { formatMesh, type Spec } from "../../ir/mesh.js";
import type { Program } from "../../ir/program.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, range } from "../../ir/shape.js";
import { commonTarget, type ExecutionTarget } from "../../trace/executionTarget.js";
import type { Prefix } from "../../trace/prefix.js";
import { onDevice } from "../../trace/storage.js";
import type { Tensor } from "../../trace/tensor.js";
import { argumentPositions, type FlatArgs, flattenArgs, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { simplify } from "../../transforms/rewrite/simplify.js";
import { type Mesh, meshAt, meshKind } from "../mesh/mesh.js";
import { PartitionSpec, resolveSpec } from "../mesh/partitionSpec.js";
import { NamedSharding } from "../mesh/sharding.js";
import type { RunnableProgram } from "../partition/partition.js";
import { partitionFor, specsOn, targetOf } from "./execute.js";

/** The schema of {@link AnyJitOptions}. */
export const jitOptions = schema({
  /** Arguments that are not tensors but part of the program, such as strings or sizes; −1 is the last one. */
  staticArgnums: optional("integerOrIntegers"),
  /** Arguments whose memory the results may reuse; they must not be used again. −1 is the last one. */
  donate: optional("integerOrIntegers"),
  /** The mesh to run on; by default the one that the function's shard maps or its arguments name. */
  mesh: optional(meshKind),
  /** How the arguments are split. */
  inShardings: optional("any"),
  /** How the results are split. */
  outShardings: optional("any"),
  /**
   * Mesh axes along which communication is hidden behind computation: what is gathered for a matrix product, or
   * scattered after it, then travels in the hops of a ring, each while the block before it is multiplied.
   */
  overlap: optional("strings"),
  /** A name for messages and traces; by default the function's. */
  name: optional("string"),
});

/** Options of `jit`, whatever the arguments and results of its function are. */
export interface AnyJitOptions extends OptionsOf<typeof jitOptions> {}

/**
 * Options of {@link jit} for a function with the arguments `A` and the result `R`, of which the arguments at the
 * positions `S` are static.
 */
export interface JitOptions<
  A = unknown,
  R = unknown,
  S extends number = number,
  // biome-ignore lint/suspicious/noExplicitAny: as in Mesh
  Axes extends string = any,
> extends AnyJitOptions {
  readonly mesh?: Mesh<Axes>;
  readonly staticArgnums?: S | readonly S[];
  /**
   * How the arguments are split: one spec or sharding for all, or a list with a prefix tree of them for each that is
   * not static; `null`, and by default, as they are.
   */
  readonly inShardings?: Prefix<TensorArgs<A, S>, ShardingLike<NoInfer<Axes>>>;
  /** How the results are split; `null`, and by default, as the partitioner finds best. */
  readonly outShardings?: Prefix<R, ShardingLike<NoInfer<Axes>>>;
  readonly overlap?: readonly NoInfer<Axes>[];
}

/** What says how a tensor is split, or that nothing is said. */
// biome-ignore lint/suspicious/noExplicitAny: as in Mesh
export type ShardingLike<Axes extends string = any> =
  | PartitionSpec<Axes>
  | NamedSharding<Axes>
  | null
  | undefined;

/** The arguments at positions not in `S`; `unknown` where the positions are not known to the compiler. */
export type TensorArgs<A, S extends number> = [S] extends [never]
  ? A
  : number extends S
    ? unknown
    : Without<A, S>;

type Without<
  A,
  S extends number,
  Passed extends readonly unknown[] = [],
  Kept extends readonly unknown[] = [],
> = A extends readonly []
  ? Kept
  : A extends readonly [infer First, ...infer Rest]
    ? Without<Rest, S, [...Passed, First], Passed["length"] extends S ? Kept : [...Kept, First]>
    : unknown;

/** The arguments of a call: which of them hold tensors, and those tensors. */
export interface CallArgs extends FlatArgs {
  /** The positions of the arguments that `staticArgnums` names. */
  readonly statics: readonly number[];
  /** The positions of the arguments that are not static. */
  readonly dynamic: readonly number[];
  /** For every tensor whether its argument is donated. */
  readonly donated: readonly boolean[];
}

/** A function traced for the types of its arguments; captures come before them. */
export interface TracedCall {
  readonly program: Program;
  readonly captures: readonly Tensor[];
  /** Where it must run, if the function named a mesh. */
  readonly target: ExecutionTarget | undefined;
  readonly outStructure: tree.Structure;
  /** Whether the trace serves later calls: it reads nothing that belongs to one call or to a surrounding trace. */
  readonly isKept: boolean;
}

/** Where the program of a call runs, and how the user splits its inputs and outputs; what is undefined is left to the partitioner. */
export interface CallPlacement {
  readonly target: ExecutionTarget;
  readonly inSpecs: readonly (Spec | undefined)[];
  readonly outSpecs: readonly (Spec | undefined)[];
  readonly overlap: readonly string[];
  /** Whether nothing said where to run, so that it is where the process's own engine is. */
  readonly isAnywhere: boolean;
}

/** The name of a function in messages. */
export function nameOf(fn: { readonly name: string }, { name }: AnyJitOptions): string {
  return name ?? (fn.name || "anonymous");
}

/** Flattens the arguments of a call. */
export function callArgs(args: readonly unknown[], options: AnyJitOptions, name: string): CallArgs {
  const statics = argumentPositions(options.staticArgnums, args.length, name, "staticArgnums");
  const donate = argumentPositions(options.donate, args.length, name, "donate");
  const dynamic = range(args.length).filter((i) => !statics.includes(i));
  const given = dynamic.map((i) => args[i]);
  const flat = flattenArgs(given, name);
  const donated = dynamic.flatMap((argument, i) =>
    range(tree.numLeaves(childOf(flat.structure, i))).map(() => donate.includes(argument)),
  );
  return { ...flat, statics, dynamic, donated };
}

/** Traces a function for arguments; static ones keep their values. */
export function traceCall<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  args: A,
  { dynamic, tensors, structure }: CallArgs,
  name: string,
): TracedCall {
  const call = (...values: unknown[]) => fn(...withDynamic(args, dynamic, values));
  const types = tensors.map(({ type }) => type);
  const { result: traced, readOnce } = readsOnce(() => traceTree(call, structure, types, name));
  const isKept = !readOnce && traced.captures.every(({ node }) => node.kind !== "traced");
  return { ...traced, program: simplify(traced.program), isKept };
}

/** Arguments of which those at some positions have other values. */
export function withDynamic<A extends readonly unknown[]>(
  args: A,
  dynamic: readonly number[],
  values: readonly unknown[],
): A {
  const given = new Map(dynamic.map((argument, i) => [argument, values[i]]));
  const all: readonly unknown[] = args.map((arg, i) => (given.has(i) ? given.get(i) : arg));
  return all as A;
}

/** Finds the mesh or device a program runs on, and the specs that options and arguments fix. */
export function placeCall(
  { program, captures, target: tracedTarget, outStructure }: TracedCall,
  inputs: readonly Tensor[],
  structure: tree.Structure,
  options: AnyJitOptions,
  name: string,
): CallPlacement {
  const chosen = commonTarget([meshOfOptions(options)?.target, tracedTarget]) ?? targetOf(inputs);
  const target = chosen ?? onDevice(oneDeviceEngine());
  const placed = specsOn(target, inputs);
  const mesh = meshAt(target);
  if (!mesh) {
    needNoAxes(options, name);
    const outSpecs = program.outputs.map(() => undefined);
    return { target, inSpecs: placed, outSpecs, overlap: [], isAnywhere: chosen === undefined };
  }
  const resolve = (shardings: unknown, of: tree.Structure, values: Program["outputs"], what: string) =>
    resolveAll(shardings, of, values, mesh, name, what);
  const args = program.inputs.slice(captures.length);
  const given = resolve(options.inShardings, structure, args, "argument");
  return {
    target,
    inSpecs: placed.map((spec, i) => given[i - captures.length] ?? spec),
    outSpecs: resolve(options.outShardings, outStructure, program.outputs, "result"),
    overlap: overlapAxes(options, mesh, name),
    isAnywhere: false,
  };
}

/** Throws for axes of a call without a mesh, which would be ignored. */
function needNoAxes({ inShardings, outShardings, overlap = [] }: AnyJitOptions, name: string): void {
  const specs = tree.leaves([inShardings, outShardings], isSharding);
  const isSplit = (leaf: unknown) =>
    leaf instanceof PartitionSpec && leaf.dims(0).some((axes) => axes.length > 0);
  const given = specs.find(isSplit) ?? (overlap.length > 0 ? `overlap "${overlap.join(", ")}"` : undefined);
  if (given === undefined) return;
  throw new ShardingError(
    `[${name}] ${given} names axes, but the call has no mesh: pass one as the option mesh`,
  );
}

function overlapAxes({ overlap = [] }: AnyJitOptions, mesh: Mesh, name: string): readonly string[] {
  const unknown = overlap.find((axis) => !mesh.axisNames.includes(axis));
  if (unknown === undefined) return overlap;
  throw new ShardingError(
    `[${name}] overlap names the axis "${unknown}", which the mesh ${formatMesh(mesh)} does not have`,
  );
}

/** A call as every device runs it: its program per device, and where that came from. */
export interface PartitionedCall extends RunnableProgram {
  /** The mesh, or undefined for one device. */
  readonly mesh: Mesh | undefined;
  readonly target: ExecutionTarget;
  /** The tensors that the program is for: captured ones and arguments. */
  readonly inputs: readonly Tensor[];
  readonly inPaths: readonly string[];
  readonly outPaths: readonly string[];
  /** The types of whole inputs and outputs. */
  readonly whole: Program;
  readonly donated: readonly boolean[];
}

/** Traces and partitions a call without compiling or running anything. */
export function partitionCall<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  args: A,
  options: AnyJitOptions,
): PartitionedCall {
  const name = nameOf(fn, options);
  const flat = callArgs(args, options, name);
  const traced = traceCall(fn, args, flat, name);
  const inputs = [...traced.captures, ...flat.tensors];
  return partitionTraced(traced, flat, inputs, placeCall(traced, inputs, flat.structure, options, name));
}

/** What the inputs of a traced call are called in messages: captured tensors, then the leaves of its arguments. */
export function inputPaths(
  numCaptures: number,
  structure: tree.Structure,
  dynamic: readonly number[],
): string[] {
  const leaves = dynamic.flatMap((argument, i) =>
    tree
      .leafPaths(childOf(structure, i))
      .map((path) => `argument ${path === "" ? argument : `${argument}/${path}`}`),
  );
  return [...range(numCaptures).map((i) => `captured ${i}`), ...leaves];
}

/** A call that was traced as every device runs it on a target. @param inputs the captured tensors and the arguments */
export function partitionTraced(
  traced: TracedCall,
  flat: CallArgs,
  inputs: readonly Tensor[],
  placement: CallPlacement,
): PartitionedCall {
  const { program, captures } = traced;
  const { target } = placement;
  const mesh = meshAt(target);
  return {
    ...partitionFor(program, target, placement),
    mesh,
    target,
    inputs,
    whole: program,
    inPaths: inputPaths(captures.length, flat.structure, flat.dynamic),
    outPaths: tree.leafPaths(traced.outStructure).map((path) => (path === "" ? "result" : `result ${path}`)),
    donated: [...captures.map(() => false), ...flat.donated],
  };
}

const isSharding = (node: unknown) => node instanceof PartitionSpec || node instanceof NamedSharding;

/** The mesh that options name, themselves or in a sharding. */
export function meshOfOptions({ mesh, inShardings, outShardings }: AnyJitOptions): Mesh | undefined {
  const named = tree
    .leaves([inShardings, outShardings], isSharding)
    .flatMap((leaf) => (leaf instanceof NamedSharding ? [leaf.mesh] : []));
  const all = mesh ? [mesh, ...named] : named;
  commonTarget(all.map(({ target }) => target));
  return all[0];
}

/** The specs of a prefix tree of shardings, one a leaf; undefined where nothing is said. */
export function resolveAll(
  shardings: unknown,
  structure: tree.Structure,
  values: readonly { readonly type: { readonly shape: readonly number[] } }[],
  mesh: Mesh,
  name: string,
  what: string,
): (Spec | undefined)[] {
  if (shardings === undefined || shardings === null) return values.map(() => undefined);
  const option = what === "result" ? "outShardings" : "inShardings";
  const leaves = tree.broadcastPrefix(shardings, structure, `${name} ${option}`, isSharding);
  return values.map(({ type }, i) => {
    const leaf = leaves[i];
    if (leaf === null || leaf === undefined) return undefined;
    const spec = leaf instanceof NamedSharding ? leaf.spec : leaf;
    if (!(spec instanceof PartitionSpec)) {
      throw new ShardingError(
        `[${name}] the sharding of ${what} leaf ${i} must be a PartitionSpec or NamedSharding`,
      );
    }
    return resolveSpec(spec, mesh, type.shape, name, `${what} leaf ${i}`);
  });
}

function childOf(structure: tree.Structure, i: number): tree.Structure {
  return structure.kind === "array" ? at(structure.children, i) : structure;
}
