import { mayBlock } from "#platform/system";
import { Ambient, traceKey } from "../../ir/ambient.js";
import { need } from "../../ir/arguments.js";
import { varyingAxes } from "../../ir/infer/varying.js";
import { formatSpec, meshShape } from "../../ir/mesh.js";
import { type Program, someEqn } from "../../ir/program.js";
import { at, formatType, type TensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { boundAxes } from "../../trace/axes.js";
import { inline, isTracing } from "../../trace/builder.js";
import { targetKey } from "../../trace/executionTarget.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { refuseChecks } from "../../transforms/checks/checks.js";
import type { CompileResult } from "../mesh/compileJob.js";
import { type Mesh, meshAt } from "../mesh/mesh.js";
import type { RunnableProgram } from "../partition/partition.js";
import {
  type AnyJitOptions,
  type CallArgs,
  type CallPlacement,
  callArgs,
  inputPaths,
  type JitOptions,
  jitOptions,
  meshOfOptions,
  nameOf,
  placeCall,
  resolveAll,
  type TracedCall,
  traceCall,
  withDynamic,
} from "./call.js";
import { allStarted, defer, hasDeferred, isDeferred } from "./deferred.js";
import { type CompiledCall, checkInputs, compile, partitionFor, run, runStored } from "./execute.js";
import { KnownCalls } from "./knownCalls.js";

export type { JitOptions } from "./call.js";

interface Entry extends TracedCall {
  readonly compiled: Map<string, CompiledCall>;
  /** What was split over devices by another thread, or to be looked at; whoever compiles it takes the latter. */
  readonly lowered: Map<string, RunnableProgram>;
}

/** A call that was traced and split over devices, and not run. */
export interface Lowered {
  /** What every device runs. */
  readonly program: Program;
  /** The mesh, or `undefined` for one device. */
  readonly mesh: Mesh | undefined;
  /** For every input of the program whether its memory becomes that of results. */
  readonly donated: readonly boolean[];
  /** The program as text. */
  toString(): string;
}

/** A compiled function; `lower` tells what a call would run. */
export interface Jitted<A extends readonly unknown[], R> {
  (...args: A): R;
  /** The program of a call with such arguments, of which only the types matter: they may be `ShapeDtypeStruct`s. */
  lower(...args: A): Lowered;
  /**
   * Traces and compiles a call with such arguments without running it, so that the call itself starts at once. Only
   * tracing happens on the calling thread: a page, or a server, answers while a large program is compiled.
   */
  compile(...args: A): Promise<void>;
}

const disabled = new Ambient({
  name: "disabled jit",
  initial: false,
  setBy: "disableJit",
  // Without jit the shardings of functions inside are left out.
  dependence: { key: String },
});

/**
 * Runs `fn` with every `jit` left out: functions run op by op, with values to look at. Loops, choices and shard maps
 * are still programs.
 *
 * ```ts
 * disableJit(() => trainStep(params, batch));
 * ```
 *
 * @example
 * ```ts
 * disableJit(() => jit((x: Tensor) => x.mul(2))(np.array([1, 2]))); // [2, 4]
 * ```
 */
export function disableJit<T>(fn: () => T): T {
  need("function", fn, "fn", "disableJit");
  return disabled.within(true, fn);
}

/** Nothing for the results of functions that can be traced; what no function has where the result is a promise. */
export type Synchronous<R> =
  R extends PromiseLike<unknown>
    ? { readonly "an async function cannot be traced": "read values after the call, from what it returns" }
    : unknown;

/**
 * Compiles a function of tensors. It is traced and compiled once for every combination of tree structure,
 * types and static arguments; inside another traced function its equations are recorded there, and its
 * shardings become constraints.
 *
 * ```ts
 * const step = jit((params: Params, batch: Batch) => …, { donate: 0 });
 * ```
 *
 * @example
 * ```ts
 * jit((x: Tensor) => np.sum(x.mul(x)))(np.array([1, 2])); // 5
 * ```
 */
export function jit<
  A extends readonly unknown[],
  R,
  S extends number = never,
  // biome-ignore lint/suspicious/noExplicitAny: as in Mesh
  const Axes extends string = any,
>(fn: ((...args: A) => R) & Synchronous<R>, options: JitOptions<A, R, S, Axes> = {}): Jitted<A, R> {
  need("function", fn, "fn", "jit");
  jitOptions.read(options, "jit");
  const name = nameOf(fn, options);
  const entries = new Map<string, Entry>();
  const knownCalls = new KnownCalls();

  const traced = (args: A, flat: CallArgs): Entry => {
    const key = keyOf(args, flat);
    const known = entries.get(key);
    if (known) return known;
    const entry = { ...traceCall(fn, args, flat, name), compiled: new Map(), lowered: new Map() };
    if (entry.isKept) entries.set(key, entry);
    return entry;
  };
  const call = (...args: A): R => {
    const isDisabled = disabled.get();
    const again = isDisabled || isTracing() || hasDeferred() ? undefined : knownCalls.find(args);
    if (again) return tree.unflatten<R>(again.call.outStructure, run(again.call.compiled, again.inputs));
    const flat = callArgs(args, options, name);
    if (isDisabled)
      return fn(...withDynamic(args, flat.dynamic, tree.unflatten(flat.structure, flat.tensors)));
    const entry = traced(args, flat);
    const { program, captures, outStructure, target } = entry;
    if (isTracing()) {
      const ins = constrained(flat.tensors, options.inShardings, flat.structure, options, name);
      const outs = inline(program, [...captures, ...ins], target);
      return tree.unflatten<R>(
        outStructure,
        constrained(outs, options.outShardings, outStructure, options, name),
      );
    }
    return tree.unflatten<R>(outStructure, start(entry, args, flat, options, name, knownCalls));
  };
  const lower = (...args: A): Lowered => {
    const flat = callArgs(args, options, name);
    const entry = traced(args, flat);
    return lowerEntry(entry, flat, placed(entry, flat, options, name));
  };
  const compileLater = async (...args: A): Promise<void> => {
    const flat = callArgs(args, options, name);
    const entry = traced(args, flat);
    // Only then it is known where its inputs are.
    if (isDeferred([...entry.captures, ...flat.tensors])) await allStarted();
    await compileAside(entry, flat, placed(entry, flat, options, name), name);
  };
  return Object.assign(call, { lower, compile: compileLater });
}

/** What a function is traced anew for. */
function keyOf(args: readonly unknown[], { structure, tensors, statics }: CallArgs): string {
  return [
    tree.formatStructure(structure),
    tensors.map(({ type }) => typeKey(type)).join(),
    traceKey(),
    ...statics.map((i) => tree.formatStatic(args[i])),
  ].join(" | ");
}

function typeKey(type: TensorType): string {
  return `${formatType(type)}${type.weak ? "?" : ""}${varyingAxes(type).map((axis) => `~${axis.name}`)}`;
}

/** For every input of a traced program whether its memory becomes that of results; captured tensors are kept. */
const donatedInputs = ({ captures }: Entry, { donated }: CallArgs): boolean[] => [
  ...captures.map(() => false),
  ...donated,
];

/** Splits a traced function over the devices of a call, unless that has been done. */
function lowerEntry(entry: Entry, flat: CallArgs, { placement, where }: Placed): Lowered {
  const { target } = placement;
  const parts = entry.lowered.get(where) ?? partitionFor(entry.program, target, placement);
  if (!entry.compiled.has(where)) entry.lowered.set(where, parts);
  const { program } = parts;
  const donated = donatedInputs(entry, flat);
  return { program, mesh: meshAt(target), donated, toString: () => printProgram(program) };
}

/** Starts a call, or defers it; its results. */
function start(
  entry: Entry,
  args: readonly unknown[],
  flat: CallArgs,
  options: AnyJitOptions,
  name: string,
  knownCalls: KnownCalls,
): Tensor[] {
  const find = () => placed(entry, flat, options, name);
  if (isDeferred([...entry.captures, ...flat.tensors])) return deferred(entry, flat, find, name);
  const where = find();
  checkInputs(where.placement.target, where.inputs, name);
  if (isBetterDeferred(entry, where)) return deferred(entry, flat, () => where, name);
  const compiled = compiledAt(entry, flat, where, name);
  if (entry.isKept) knownCalls.add(args, flat, entry, where.placement, compiled);
  return run(compiled, where.inputs);
}

/** From this many equations on, compiling a program on the thread of a page would be noticed. */
const LONG_PROGRAM = 64;

/** Whether a call is started later: a thread that must not block leaves compiling its program to another one. */
function isBetterDeferred({ program, compiled }: Entry, { placement, where }: Placed): boolean {
  if (mayBlock() || compiled.has(where) || !meshAt(placement.target)) return false;
  let numEqns = 0;
  return someEqn(program, () => ++numEqns >= LONG_PROGRAM);
}

/** The results of a call that is started when its program is compiled and all calls before it are started. */
function deferred(entry: Entry, flat: CallArgs, find: () => Placed, name: string): Tensor[] {
  const { program, captures } = entry;
  return defer(
    [...captures, ...flat.tensors],
    program.outputs.map(({ type }) => type),
    () => compileAside(entry, flat, find(), name),
    () => {
      const where = find();
      checkInputs(where.placement.target, where.inputs, name);
      return runStored(compiledAt(entry, flat, where, name), where.inputs);
    },
  );
}

/** The program of a call for its target, compiled unless that has been done. */
const compiledAt = (entry: Entry, flat: CallArgs, { placement, where }: Placed, name: string): CompiledCall =>
  entry.compiled.get(where) ?? compileEntry(entry, flat, placement, where, name);

/** Compiles a traced function for the target of a call, and keeps it for others there. */
function compileEntry(
  entry: Entry,
  flat: CallArgs,
  placement: CallPlacement,
  where: string,
  name: string,
  ready?: CompileResult,
): CompiledCall {
  const { program, captures, lowered } = entry;
  refuseChecks(program, name);
  const numCaptures = captures.length;
  const { structure, dynamic } = flat;
  const compiled = compile(program, {
    ...placement,
    donated: donatedInputs(entry, flat),
    // Of the call only what it is like is kept, not its tensors.
    nameOfInput: (i) => at(inputPaths(numCaptures, structure, dynamic), i),
    name,
    parts: ready?.parts ?? lowered.get(where),
    prepared: ready?.prepared,
  });
  lowered.delete(where);
  entry.compiled.set(where, compiled);
  return compiled;
}

/** Compiles a traced function in another thread where that is possible. */
async function compileAside(
  entry: Entry,
  flat: CallArgs,
  { placement, where }: Placed,
  name: string,
): Promise<void> {
  if (entry.compiled.has(where)) return;
  const { target, ...request } = placement;
  const donated = donatedInputs(entry, flat);
  const ready = await meshAt(target)?.compileElsewhere(entry.program, { request, donated, name });
  // A call may have been faster.
  if (!entry.compiled.has(where)) compileEntry(entry, flat, placement, where, name, ready);
  // Whoever wants to look at it finds it split.
  if (ready) entry.lowered.set(where, ready.parts);
}

type Placed = ReturnType<typeof placed>;

/** Where a call runs, and a string that distinguishes such targets. */
function placed(entry: Entry, { tensors, structure }: CallArgs, options: AnyJitOptions, name: string) {
  const inputs = [...entry.captures, ...tensors];
  const placement = placeCall(entry, inputs, structure, options, name);
  const specs = placement.inSpecs.map((spec) => (spec ? formatSpec(spec) : "?")).join();
  return { inputs, placement, where: `${targetKey(placement.target)} ${specs}` };
}

/** Inside a surrounding trace the shardings of arguments and results become constraints. */
function constrained(
  tensors: readonly Tensor[],
  shardings: unknown,
  structure: tree.Structure,
  options: AnyJitOptions,
  name: string,
): readonly Tensor[] {
  const mesh = meshOfOptions(options);
  const manual = new Set(boundAxes().map((axis) => axis.name));
  if (!mesh || mesh.axisNames.some((axis) => manual.has(axis))) return tensors;
  const specs = resolveAll(shardings, structure, tensors, mesh, name, "leaf");
  return tensors.map((x, i) => {
    const spec = specs[i];
    return spec ? ops.shardingConstraint(x, { mesh: meshShape(mesh), spec }, mesh.target) : x;
  });
}
