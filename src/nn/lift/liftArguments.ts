import { ShapeError } from "../../ir/errors.js";
import { at, normalizeDim } from "../../ir/shape.js";
import { split } from "../../random/index.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { ModuleError } from "../modules/errors.js";
import type { CollectionFilter } from "../modules/filter.js";
import { isModule } from "../modules/module.js";
import { type KeyGroup, type LiftedCall, liftScopes, type VariableGroup } from "./lift.js";

/** The modules in front of the arguments, which are not part of what a transform maps, and the others. */
export function leadingModules(args: readonly unknown[]): [modules: unknown[], rest: unknown[]] {
  const first = args.findIndex((arg) => !isModule(arg));
  const count = first < 0 ? args.length : first;
  return [args.slice(0, count), args.slice(count)];
}

/** The arguments after the modules in front, which are not part of what a transform maps. */
export type AfterModules<A> = A extends readonly [
  Readonly<Record<"init" | "apply" | "with", unknown>>,
  ...infer Rest,
]
  ? AfterModules<Rest>
  : A;

/** The arguments of a lifted call, of which only some leaves take part in the transform. */
export interface LiftedArguments {
  /** The leaves that take part. */
  readonly leaves: readonly Tensor[];
  /** Their paths, for messages. */
  readonly paths: readonly string[];
  /** The dim of each, where the transform goes along dims. */
  readonly dims: readonly number[];
  /** The arguments with other values for those leaves; all else stays as it is, whatever it is. */
  rebuild(leaves: readonly unknown[]): unknown[];
}

/**
 * Separates the leaves of arguments that are mapped from everything else.
 *
 * @param axes a prefix tree of dims: one number for all, or a list with an entry for each argument; `null`
 * for what is not mapped
 */
export function mappedArguments(args: readonly unknown[], axes: unknown, caller: string): LiftedArguments {
  if (Array.isArray(axes) && axes.length !== args.length) {
    throw new ModuleError(
      "argument",
      `[${caller}] inAxes has ${axes.length} entries for ${args.length} arguments: give one for each, or one number for all`,
    );
  }
  const perArgument = args.map((arg, i) =>
    tree.broadcastPrefix(Array.isArray(axes) ? axes[i] : axes, tree.structure(arg), `${caller} inAxes`),
  );
  return separate(args, (leaf, place) => {
    const axis = perArgument[place.argument]?.[place.leaf];
    if (axis === null || axis === undefined) return undefined;
    if (!(leaf instanceof Tensor) || typeof axis !== "number") {
      const what = leaf instanceof Tensor ? `with ${String(axis)}` : `but is a ${typeof leaf}`;
      throw new ModuleError(
        "argument",
        `[${caller}] argument ${place.path} is mapped ${what}: inAxes needs a dim of a tensor, or null for what is not mapped`,
      );
    }
    return normalizeDim(axis, leaf.ndim, `${caller}] [argument ${place.path}`);
  });
}

/** Separates the tensors of arguments from everything else; arguments at `statics` are left whole. */
export function tensorArguments(args: readonly unknown[], statics: readonly number[]): LiftedArguments {
  return separate(args, (leaf, { argument }) =>
    leaf instanceof Tensor && !statics.includes(argument) ? 0 : undefined,
  );
}

interface LeafPlace {
  readonly argument: number;
  readonly leaf: number;
  readonly path: string;
}

/** @param choose the dim of a leaf that takes part, or `undefined` for one that does not */
function separate(
  args: readonly unknown[],
  choose: (leaf: unknown, place: LeafPlace) => number | undefined,
): LiftedArguments {
  const leaves: Tensor[] = [];
  const paths: string[] = [];
  const dims: number[] = [];
  const parts = args.map((arg, argument) => {
    const { structure } = tree.flatten(arg);
    const entries = tree.flattenWithPath(arg).map(({ path, leaf }, i) => {
      const where = path === "" ? String(argument) : `${argument}/${path}`;
      const dim = choose(leaf, { argument, leaf: i, path: where });
      if (dim === undefined || !(leaf instanceof Tensor)) return { leaf, index: undefined };
      leaves.push(leaf);
      paths.push(where);
      dims.push(dim);
      return { leaf, index: leaves.length - 1 };
    });
    return { arg, structure, entries };
  });
  const rebuild = (values: readonly unknown[]) =>
    parts.map(({ arg, structure, entries }) =>
      entries.some(({ index }) => index !== undefined)
        ? tree.unflatten(
            structure,
            entries.map(({ leaf, index }) => (index === undefined ? leaf : values[index])),
          )
        : arg,
    );
  return { leaves, paths, dims, rebuild };
}

/** The size along the mapped dims, which all leaves must share; `undefined` when nothing is mapped. */
export function sharedSize(
  { leaves, paths, dims }: Pick<LiftedArguments, "leaves" | "paths" | "dims">,
  given: { readonly name: string; readonly size: number | undefined },
  caller: string,
): number | undefined {
  const sizes = leaves.map((leaf, i) => {
    const dim = at(dims, i);
    const size = at(leaf.shape, dim);
    return { size, text: `${at(paths, i)} has ${size} along dim ${dim}` };
  });
  if (given.size !== undefined) sizes.push({ size: given.size, text: `${given.name} is ${given.size}` });
  const [first] = sizes;
  if (first && sizes.some(({ size }) => size !== first.size)) {
    throw new ShapeError(
      `[${caller}] the mapped dims must have the same size:\n${sizes.map(({ text }) => `  ${text}`).join("\n")}`,
    );
  }
  return first?.size;
}

/** The keys of a group, each split into `size` ones. */
export function splitKeys(group: KeyGroup, size: number): KeyGroup {
  return group.map((keys) =>
    Object.fromEntries(Object.entries(keys).map(([name, key]) => [name, split(key, size)])),
  );
}

/** A call as a function of all that a module reads: variables, keys and the tensors among its arguments. */
type WholeCall = (
  variables: readonly VariableGroup[],
  keys: readonly KeyGroup[],
  tensors: readonly unknown[],
) => [result: unknown, outs: VariableGroup[]];

/** What a module gets from outside of a transformation. */
interface PassedOn {
  readonly variables: CollectionFilter;
  readonly rngs: CollectionFilter;
  readonly staticArgnums?: number | readonly number[];
  readonly forksKeys?: boolean;
}

/** A call that runs through a transformation of functions. */
export function callThrough(
  { variables, rngs, staticArgnums = [], forksKeys = false }: PassedOn,
  transform: (run: WholeCall) => WholeCall,
): LiftedCall {
  const statics = typeof staticArgnums === "number" ? [staticArgnums] : staticArgnums;
  return (scopes, fn, args) => {
    const lifted = liftScopes(scopes, { ins: [variables], outs: [variables], rngs: [rngs], forksKeys });
    const [modules, rest] = leadingModules(args);
    const { leaves, rebuild } = tensorArguments(
      rest,
      statics.map((i) => i - modules.length),
    );
    const run: WholeCall = (groups, keys, tensors) =>
      lifted.run(groups, keys, () => fn(...modules, ...rebuild(tensors)));
    const [result, outs] = transform(run)(lifted.variables, lifted.keys, leaves);
    lifted.publish(outs);
    return result;
  };
}
