import { recordOf } from "../../ir/arguments.js";
import type { ControlRole } from "../../ir/ops.js";
import type { Atom, Program } from "../../ir/program.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { at, normalizeDim, withShape } from "../../ir/shape.js";
import { callProgram } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Prefix } from "../../trace/prefix.js";
import type { Tensor } from "../../trace/tensor.js";
import { flattenArgs, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { scanWithRole } from "../../transforms/control/scan.js";
import { sliceOf } from "../../transforms/rewrite/deadCode.js";
import { ModuleError } from "../modules/errors.js";
import { type CollectionFilter, filterKind, isEmptyFilter } from "../modules/filter.js";
import { addAxis, type MetadataParams, removeAxis } from "../modules/metadata.js";
import type { AnyFunction, ArgsOf, ModuleClass, ResultOf } from "../modules/module.js";
import {
  type KeyGroup,
  type Lifted,
  type LiftedCall,
  liftScopes,
  liftTarget,
  methodsOption,
  type NoModuleClass,
  type VariableGroup,
} from "./lift.js";
import {
  type AfterModules,
  leadingModules,
  mappedArguments,
  sharedSize,
  splitKeys,
} from "./liftArguments.js";

const moduleScanOptions = schema({
  ...methodsOption.fields,
  /** Collections of which every iteration has variables of its own, stacked along the given dim. */
  variableAxes: optional(recordOf("integer"), {}),
  /** Collections that all iterations share; they may not depend on what the loop computes. */
  variableBroadcast: optional(filterKind, false),
  /** Collections that are carried from one iteration to the next; their variables must already exist. */
  variableCarry: optional(filterKind, false),
  /** The keys that the module gets: with `true` every iteration has keys of its own. */
  splitRngs: optional(recordOf("flag"), {}),
  inAxes: optional<unknown>("any", 0),
  outAxes: optional<unknown>("any", 0),
  /** The number of iterations, needed only when no argument is scanned over. */
  length: optional("number"),
  /** Whether to go from the last slice to the first. */
  reverse: false,
  /** What boxes of variables are told about the stacked dim, such as its name. */
  metadataParams: optional<MetadataParams>("object", {}),
  /**
   * Whether the body is traced once before the loop, which finds shared variables and results; on by default.
   * Keys depend on it, as they do in Flax.
   */
  checkConstancyInvariants: true,
});

/** Options of {@link scan} for a module or function with the arguments `A` and the result `R`. */
export interface ModuleScanOptions<A = unknown, R = unknown> extends OptionsOf<typeof moduleScanOptions> {
  /**
   * The dim of each argument after the carry to scan over: one number for all, or a list with an entry for
   * each; `null` for one that every iteration gets as a whole.
   */
  readonly inAxes?: Prefix<Slices<AfterModules<A>>, number | null>;
  /** Where the results of the iterations are stacked; `null` for a result that does not depend on the iteration. */
  readonly outAxes?: Prefix<Stacked<R>, number | null>;
}

type LoopOptions = Omit<Values<typeof moduleScanOptions.fields>, "methods" | "variableAxes" | "splitRngs">;

/** The defaults of a loop. */
export const loopDefaults: LoopOptions = moduleScanOptions.read({}, "nn.scan");

/** The arguments of a step after its carry. */
type Slices<A> = A extends readonly [unknown, ...infer Rest] ? Rest : unknown;

/** The second of the two results of a step, which are the carry and what is stacked. */
type Stacked<R> = R extends readonly [unknown, infer Y] ? Y : unknown;

/**
 * A module that is called repeatedly, as a loop: `(carry, ...slices) => [carry, result]`. The last carry
 * and the stacked results are returned.
 *
 * @param target a module class, which gives a class named `ScanBlock`, or a function: it may use the modules
 * among its arguments, or else whatever belongs to the running module
 *
 * @example
 * ```ts
 * const Step = nn.module("Step", () => (carry: Tensor, x: Tensor) => [carry.add(x), carry.add(x)]);
 * nn.scan(Step, {})().apply({}, np.array(0), np.array([1, 2, 3])); // [6, [1, 3, 6]]
 * ```
 */
export function scan<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  options: ModuleScanOptions<ArgsOf<F>, ResultOf<F>>,
): ModuleClass<C, F, M>;
export function scan<A extends readonly unknown[], R>(
  target: ((...args: A) => R) & NoModuleClass,
  options: ModuleScanOptions<A, R>,
): (...args: A) => R;
export function scan(target: unknown, options: ModuleScanOptions): unknown {
  return liftScan(target, options);
}

/** {@link scan} of a function, with a role for those who read the compiled steps. */
export function scanFunctionWithRole<A extends readonly unknown[], R>(
  role: ControlRole,
  target: (...args: A) => R,
  options: ModuleScanOptions<A, R>,
): (...args: A) => R {
  // What is lifted from a function is one of the same type.
  return liftScan(target, options, role) as (...args: A) => R;
}

function liftScan(target: unknown, options: ModuleScanOptions, role?: ControlRole): unknown {
  const { methods, variableAxes, splitRngs, ...loop } = moduleScanOptions.read(options, "nn.scan");
  const filters = { variableAxes: Object.entries(variableAxes), splitRngs: Object.entries(splitRngs) };
  const call = scanLoop(filters, loop, role);
  return liftTarget(target, { name: "Scan", caller: "nn.scan", call, methods });
}

/** What one iteration gets besides the carry: its variables, keys and slices of arguments. */
type Slice = readonly [
  variables: readonly VariableGroup[],
  keys: readonly KeyGroup[],
  args: readonly unknown[],
];

/** What is carried: variables, and the module's own carry. */
type Carry = readonly [variables: VariableGroup, carry: unknown];

/** What comes out of one iteration. */
interface Iteration {
  readonly shared: VariableGroup;
  readonly carry: Carry;
  readonly result: unknown;
  readonly stacked: readonly VariableGroup[];
}

/** What the filters of a scan choose: the variables of each iteration with their dims, and keys. */
export interface LoopFilters {
  readonly variableAxes: readonly (readonly [collections: CollectionFilter, axis: number])[];
  readonly splitRngs: readonly (readonly [rngs: CollectionFilter, isSplit: boolean])[];
}

/** A call that is a loop: its function takes the carry and slices, and returns the carry and results to stack. */
export function scanLoop(
  { variableAxes, splitRngs }: LoopFilters,
  options: LoopOptions,
  role?: ControlRole,
): LiftedCall {
  const { variableBroadcast, variableCarry, inAxes, outAxes, reverse, metadataParams } = options;
  const axes = variableAxes.map(([, axis]) => axis);
  const isSplit = splitRngs.map(([, split]) => split);
  const filters = [variableBroadcast, variableCarry, ...variableAxes.map(([collections]) => collections)];
  return (scopes, fn, args) => {
    const [modules, [init, ...rest]] = leadingModules(args);
    const lifted = liftScopes(scopes, { ins: filters, outs: filters, rngs: splitRngs.map(([rngs]) => rngs) });
    const mapped = mappedArguments(rest, inAxes, "nn.scan");
    const length = sharedSize(mapped, { name: "length", size: options.length }, "nn.scan");
    if (length === undefined) {
      throw new ModuleError(
        "lift",
        "[nn.scan] no argument is scanned over: give length, the number of iterations",
      );
    }
    const [given = [], carried = [], ...own] = lifted.variables;
    const keys = lifted.keys.map((group, i) => (isSplit[i] ? splitKeys(group, length) : group));
    const xs: Slice = [
      own.map((group, i) => toFront(removeAxis(group, at(axes, i), metadataParams), at(axes, i))),
      keys.filter((_, i) => isSplit[i]),
      mapped.leaves.map((leaf, i) => ops.moveDim(leaf, at(mapped.dims, i), 0)),
    ];
    const iterate = (shared: VariableGroup, [variables, carry]: Carry, [groups, split, slices]: Slice) => {
      const next = split.values();
      const ownKeys = keys.map((group, i) => (isSplit[i] ? (next.next().value ?? group) : group));
      const [returned, [sharedOut = [], carriedOut = [], ...stacked]] = lifted.run(
        [shared, variables, ...groups],
        ownKeys,
        () => fn(...modules, carry, ...mapped.rebuild(slices)),
      );
      const [nextCarry, result] = checkPair(returned);
      const kept = shared.map((values, i) => ({ ...values, ...sharedOut[i] }));
      return { shared: kept, carry: [carriedOut, nextCarry], result, stacked } satisfies Iteration;
    };
    const layout = new ResultLayout(outAxes);
    const constants = needsConstants(options, lifted)
      ? findConstants(layout, (carry, slice) => iterate(given, carry, slice), [carried, init], xs)
      : { shared: given, results: [] };
    const [[carriedOut, last], [results, stacked]] = scanWithRole(
      role,
      (carry: Carry, slice: Slice): [Carry, [readonly Tensor[], readonly VariableGroup[]]] => {
        const out = iterate(constants.shared, carry, slice);
        return [out.carry, [layout.leaves(out.result).stacked, out.stacked]];
      },
      [carried, init],
      xs,
      { length, reverse },
    );
    const published = stacked.map((group, i) =>
      addAxis(fromFront(group, at(axes, i)), at(axes, i), metadataParams),
    );
    lifted.publish([constants.shared, carriedOut, ...published]);
    return [last, layout.build(results, constants.results)];
  };
}

function checkPair(returned: unknown): readonly [carry: unknown, result: unknown] {
  if (Array.isArray(returned) && returned.length === 2) return [returned[0], returned[1]];
  throw new ModuleError("lift", "[nn.scan] the module must return [carry, result]");
}

function toFront(group: VariableGroup, axis: number): VariableGroup {
  return tree.map((x: Tensor) => ops.moveDim(x, normalizeDim(axis, x.ndim, "nn.scan"), 0), group);
}

function fromFront(group: VariableGroup, axis: number): VariableGroup {
  return tree.map((x: Tensor) => ops.moveDim(x, 0, normalizeDim(axis, x.ndim, "nn.scan")), group);
}

/** How the results of iterations are split into stacked and constant leaves, and put together again. */
class ResultLayout {
  private readonly outAxes: unknown;
  private structure: tree.Structure = tree.structure(null);
  private axes: readonly unknown[] = [];

  constructor(outAxes: unknown) {
    this.outAxes = outAxes;
  }

  leaves(result: unknown): { readonly stacked: Tensor[]; readonly constant: Tensor[] } {
    const { tensors, structure } = flattenArgs(result, "nn.scan");
    this.structure = structure;
    this.axes = tree.broadcastPrefix(this.outAxes, structure, "nn.scan outAxes");
    return {
      stacked: tensors.filter((_, i) => typeof this.axes[i] === "number"),
      constant: tensors.filter((_, i) => typeof this.axes[i] !== "number"),
    };
  }

  build(stacked: readonly Tensor[], constant: readonly Tensor[]): unknown {
    const [nextStacked, nextConstant] = [stacked.values(), constant.values()];
    const leaves = this.axes.map((axis) => {
      if (typeof axis !== "number") return nextConstant.next().value;
      const value = nextStacked.next().value;
      return value && ops.moveDim(value, 0, normalizeDim(axis, value.ndim, "nn.scan outAxes"));
    });
    return tree.unflatten(this.structure, leaves);
  }
}

/** Whether the body has to be run once before the loop: it can make shared variables or draw keys. */
function needsConstants(options: LoopOptions, lifted: Lifted): boolean {
  const { variableBroadcast, outAxes, checkConstancyInvariants } = options;
  const hasConstantResults = tree.leaves(outAxes, (node) => node === null).includes(null);
  if (checkConstancyInvariants) {
    const hasKeys = lifted.keys.some((group) => group.some((keys) => Object.keys(keys).length > 0));
    const makesShared = lifted.mayChange && !isEmptyFilter(variableBroadcast);
    return hasKeys || makesShared || hasConstantResults;
  }
  if (hasConstantResults) {
    throw new ModuleError(
      "lift",
      "[nn.scan] outAxes null, for results that are the same in every iteration, needs checkConstancyInvariants",
    );
  }
  return false;
}

interface Constants {
  readonly shared: VariableGroup;
  readonly results: readonly Tensor[];
}

/** Traces one iteration and computes the results that do not depend on the iteration. */
function findConstants(
  layout: ResultLayout,
  iterate: (carry: Carry, slice: Slice) => Iteration,
  carry: Carry,
  xs: Slice,
): Constants {
  const flatCarry = flattenArgs(carry, "nn.scan");
  const flatXs = flattenArgs(xs, "nn.scan");
  const traced = traceTree(
    (...[first, slice]: readonly [Carry, Slice]) => {
      const { shared, result } = iterate(first, slice);
      return { shared, results: layout.leaves(result).constant } satisfies Constants;
    },
    { kind: "array", children: [flatCarry.structure, flatXs.structure] },
    [
      ...flatCarry.tensors.map(({ type }) => type),
      ...flatXs.tensors.map(({ type }) => withShape(type, type.shape.slice(1))),
    ],
    "nn.scan",
  );
  const numCaptures = traced.captures.length;
  const inputs = traced.program.inputs.slice(0, numCaptures);
  const varying = new Set(traced.program.inputs.slice(numCaptures).map(({ id }) => id));
  const dependent = traced.program.outputs.map((output) =>
    readsAny({ ...traced.program, outputs: [output] }, varying),
  );
  if (dependent.includes(true)) {
    const wrong = tree
      .leafPaths(traced.outStructure)
      .filter((_, i) => dependent[i])
      .map((path) => `"${path.replace(/^shared\/\d+\//, "")}"`);
    throw new ModuleError(
      "lift",
      `[nn.scan] ${wrong.join(", ")} must be the same in every iteration but depends on the carry or on what is scanned over: use variableAxes or variableCarry for such variables, and a dim in outAxes for such results`,
    );
  }
  const constants = sliceOf({ ...traced.program, inputs });
  const values = callProgram(constants, traced.captures, traced.target);
  return tree.unflatten<Constants>(traced.outStructure, values);
}

/** Whether the outputs of a program depend on any of the values. */
function readsAny(program: Program, values: ReadonlySet<number>): boolean {
  const { eqns, outputs } = sliceOf(program);
  const reads = (atoms: readonly Atom[]) => atoms.some((atom) => atom.kind === "var" && values.has(atom.id));
  return reads(outputs) || eqns.some(({ ins }) => reads(ins));
}
