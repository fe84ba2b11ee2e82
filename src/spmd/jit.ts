import { ShardingError } from "../ir/errors.js";
import { formatSpec, type Spec } from "../ir/mesh.js";
import type { Program } from "../ir/program.js";
import { at, formatType, range } from "../ir/shape.js";
import { boundAxes } from "../trace/axes.js";
import { inline, isTracing } from "../trace/builder.js";
import { onDevice } from "../trace/storage.js";
import type { Tensor } from "../trace/tensor.js";
import { flattenArgs, traceTree } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { simplify } from "../transforms/simplify.js";
import { type Compiled, compile, meshOf, run, specsOn, targetOf } from "./execute.js";
import { defaultEngine, Mesh } from "./mesh.js";
import { PartitionSpec, resolveSpec } from "./partitionSpec.js";
import { NamedSharding } from "./sharding.js";

/** Options of {@link jit}. */
export interface JitOptions {
  /** Arguments that are not tensors but part of the program, such as strings or sizes. */
  readonly staticArgnums?: number | readonly number[];
  /** Arguments whose memory the results may reuse; they must not be used again. */
  readonly donate?: number | readonly number[];
  /** The mesh to run on; by default the one that the function's shard maps or its arguments name. */
  readonly mesh?: Mesh;
  /** How the arguments are split: a prefix tree of specs or shardings; by default as they are. */
  readonly inShardings?: unknown;
  /** How the results are split; by default as the partitioner finds best. */
  readonly outShardings?: unknown;
  /** A name for messages and traces; by default the function's. */
  readonly name?: string;
}

interface Entry {
  readonly program: Program;
  readonly captures: readonly Tensor[];
  readonly outStructure: tree.Structure;
  readonly compiled: Map<string, Compiled>;
}

/**
 * Compiles a function of tensors. It is traced and compiled once for every combination of tree structure,
 * types and static arguments; inside another traced function its equations are recorded there.
 *
 * ```ts
 * const step = jit((params: Params, batch: Batch) => …, { donate: 0 });
 * ```
 */
export function jit<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options: JitOptions = {},
): (...args: A) => R {
  const name = options.name ?? (fn.name || "function");
  const statics = numbers(options.staticArgnums);
  const donated = numbers(options.donate);
  const entries = new Map<string, Entry>();

  const trace = (args: A, dynamic: readonly number[], flat: ReturnType<typeof flattenArgs>): Entry => {
    const call = (...values: unknown[]) => {
      const all: unknown[] = [...args];
      dynamic.forEach((argument, i) => {
        all[argument] = values[i];
      });
      return fn(...(all as unknown as A));
    };
    const types = flat.tensors.map(({ type }) => type);
    const traced = traceTree(call, flat.structure, types, name);
    return { ...traced, program: simplify(traced.program), compiled: new Map() };
  };

  return (...args: A): R => {
    const dynamic = range(args.length).filter((i) => !statics.includes(i));
    const flat = flattenArgs(
      dynamic.map((i) => args[i]),
      name,
    );
    const key = [
      tree.formatStructure(flat.structure),
      flat.tensors.map(({ type }) => formatType(type)).join(),
      boundAxes().map((axis) => `${axis.name}=${axis.size}`),
      ...statics.map((i) => staticKey(args[i])),
    ].join(" | ");
    let entry = entries.get(key);
    if (!entry) {
      entry = trace(args, dynamic, flat);
      if (entry.captures.every((tensor) => tensor.node.kind !== "traced")) entries.set(key, entry);
    }
    const inputs = [...entry.captures, ...flat.tensors];
    if (isTracing()) return tree.unflatten<R>(entry.outStructure, inline(entry.program, inputs));
    const donatedLeaves = dynamic.flatMap((argument, i) =>
      Array.from({ length: tree.numLeaves(childOf(flat.structure, i)) }, () => donated.includes(argument)),
    );
    const compiled = compileEntry(entry, inputs, {
      options,
      name,
      structure: flat.structure,
      donated: [...entry.captures.map(() => false), ...donatedLeaves],
    });
    return tree.unflatten<R>(entry.outStructure, run(compiled, inputs));
  };
}

interface Request {
  readonly options: JitOptions;
  readonly name: string;
  readonly structure: tree.Structure;
  readonly donated: readonly boolean[];
}

function compileEntry(entry: Entry, inputs: readonly Tensor[], request: Request): Compiled {
  const { options, name } = request;
  const { program } = entry;
  const target =
    options.mesh ??
    meshIn(options.inShardings) ??
    meshIn(options.outShardings) ??
    meshOf(program) ??
    targetOf(inputs) ??
    onDevice(defaultEngine(1));
  const numCaptures = entry.captures.length;
  let inSpecs = specsOn(target, inputs);
  let outSpecs: (Spec | undefined)[] = program.outputs.map(() => undefined);
  if (target instanceof Mesh) {
    const given = resolveAll(
      options.inShardings,
      request.structure,
      program.inputs.slice(numCaptures),
      target,
      name,
      "argument",
    );
    inSpecs = inSpecs.map((spec, i) => given[i - numCaptures] ?? spec);
    outSpecs = resolveAll(options.outShardings, entry.outStructure, program.outputs, target, name, "result");
  }
  const key = `${target} ${engineKey(target)} ${inSpecs.map((spec) => (spec ? formatSpec(spec) : "?")).join()}`;
  let compiled = entry.compiled.get(key);
  if (!compiled) {
    compiled = compile(program, { target, inSpecs, outSpecs, donated: request.donated, name });
    entry.compiled.set(key, compiled);
  }
  return compiled;
}

const isSharding = (node: unknown) => node instanceof PartitionSpec || node instanceof NamedSharding;

function meshIn(shardings: unknown): Mesh | undefined {
  const found = tree.leaves(shardings, isSharding).find((leaf) => leaf instanceof NamedSharding);
  return found instanceof NamedSharding ? found.mesh : undefined;
}

function resolveAll(
  shardings: unknown,
  structure: tree.Structure,
  values: readonly { readonly type: { readonly shape: readonly number[] } }[],
  mesh: Mesh,
  name: string,
  what: string,
): (Spec | undefined)[] {
  if (shardings === undefined || shardings === null) return values.map(() => undefined);
  const leaves = tree.broadcastPrefix(shardings, structure, name, isSharding);
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

const engineIds = new WeakMap<object, number>();
let nextEngineId = 0;

function engineKey(target: { readonly engine: object }): number {
  const id = engineIds.get(target.engine) ?? nextEngineId++;
  engineIds.set(target.engine, id);
  return id;
}

const staticIds = new WeakMap<object, number>();
let nextStaticId = 0;

/** Static arguments are told apart by value, objects and functions by identity. */
function staticKey(value: unknown): string {
  if (typeof value !== "object" && typeof value !== "function") return `${typeof value} ${String(value)}`;
  if (value === null) return "null";
  const id = staticIds.get(value) ?? nextStaticId++;
  staticIds.set(value, id);
  return `object ${id}`;
}

function numbers(list: number | readonly number[] | undefined): readonly number[] {
  return list === undefined ? [] : typeof list === "number" ? [list] : list;
}

function childOf(structure: tree.Structure, i: number): tree.Structure {
  return structure.kind === "array" ? at(structure.children, i) : structure;
}
