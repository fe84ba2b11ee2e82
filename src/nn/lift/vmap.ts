import { recordOf } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { normalizeDim } from "../../ir/shape.js";
import type { Prefix } from "../../trace/prefix.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { vmap as vmapFunction } from "../../transforms/batching/vmap.js";
import { ModuleError } from "../modules/errors.js";
import { addAxis, type MetadataParams, removeAxis } from "../modules/metadata.js";
import type { AnyFunction, ArgsOf, ModuleClass, ResultOf } from "../modules/module.js";
import {
  type KeyGroup,
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

const liftedVmapOptions = schema({
  ...methodsOption.fields,
  /**
   * The collections that the module gets: with a dim, every element of the batch has variables of its own,
   * which are stacked along it; with `null` all share them.
   */
  variableAxes: optional<Readonly<Record<string, number | null>>>("object", {}),
  /** The keys that the module gets: with `true` every element has keys of its own. */
  splitRngs: optional(recordOf("flag"), {}),
  inAxes: optional<unknown>("any", 0),
  outAxes: optional<unknown>("any", 0),
  /** The number of elements, needed only when neither arguments nor variables tell. */
  axisSize: optional("number"),
  /** The name under which collectives inside speak of the mapped dim. */
  axisName: optional("string"),
  /** The mesh axes that the mapped dim is split over in sharding constraints and shard maps inside. */
  spmdAxisName: optional("stringOrStrings"),
  /** What boxes of variables are told about the mapped dim, such as its name. */
  metadataParams: optional<MetadataParams>("object", {}),
});

/** How a module is mapped, whatever its arguments and results are. */
export interface LiftedVmapOptions extends OptionsOf<typeof liftedVmapOptions> {}

/** Options of {@link vmap} for a module or function with the arguments `A` and the result `R`. */
export interface ModuleVmapOptions<A = unknown, R = unknown> extends LiftedVmapOptions {
  /** The dim of each argument to map over: one number for all, or a list with an entry for each; `null` for none. */
  readonly inAxes?: Prefix<AfterModules<A>, number | null>;
  /** Where the mapped dim stands in the results; 0 by default. */
  readonly outAxes?: Prefix<R, number | null>;
}

/**
 * A module that is called for every element of a batch at once.
 *
 * @param target a module class, which gives a class named `VmapMLP`, or a function: it may use the modules
 * among its arguments, or else whatever belongs to the running module
 *
 * @example
 * ```ts
 * const layer = nn.vmap(nn.Dense, { variableAxes: { params: 0 }, splitRngs: { params: true } })({ features: 3 });
 * layer.init(random.key(0), np.ones([5, 4])).params.kernel.shape; // [5, 4, 3]
 * ```
 */
export function vmap<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  options: ModuleVmapOptions<ArgsOf<F>, ResultOf<F>>,
): ModuleClass<C, F, M>;
export function vmap<A extends readonly unknown[], R>(
  target: ((...args: A) => R) & NoModuleClass,
  options: ModuleVmapOptions<A, R>,
): (...args: A) => R;
export function vmap(target: unknown, options: LiftedVmapOptions): unknown {
  const { methods, ...given } = liftedVmapOptions.read(options, "nn.vmap");
  return liftTarget(target, { name: "Vmap", caller: "nn.vmap", call: vmapCall(given), methods });
}

function vmapCall(options: Omit<Values<typeof liftedVmapOptions.fields>, "methods">): LiftedCall {
  const { variableAxes, splitRngs, inAxes, outAxes, metadataParams } = options;
  const collections = Object.keys(variableAxes);
  const axes = Object.values(variableAxes);
  const isSplit = Object.values(splitRngs);
  const { axisName, spmdAxisName } = options;
  const extra = {
    ...(axisName === undefined ? {} : { axisName }),
    ...(spmdAxisName === undefined ? {} : { spmdAxisName }),
  };
  return (scopes, fn, args) => {
    const lifted = liftScopes(scopes, { ins: collections, outs: collections, rngs: Object.keys(splitRngs) });
    const [modules, rest] = leadingModules(args);
    const { leaves, dims, paths, rebuild } = mappedArguments(rest, inAxes, "nn.vmap");
    const stacked = lifted.variables.flatMap((group, i) => mappedVariables(group, axes[i] ?? null));
    const axisSize = sharedSize(
      {
        leaves: [...leaves, ...stacked.map(({ leaf }) => leaf)],
        paths: [...paths.map((path) => `argument ${path}`), ...stacked.map(({ path }) => `variable ${path}`)],
        dims: [...dims, ...stacked.map(({ dim }) => dim)],
      },
      { name: "axisSize", size: options.axisSize },
      "nn.vmap",
    );
    if (axisSize === undefined) {
      throw new ModuleError(
        "lift",
        "[nn.vmap] no argument and no variable is mapped, so the number of elements is unknown: give axisSize",
      );
    }
    const variables = lifted.variables.map((group, i) => {
      const axis = axes[i] ?? null;
      return axis === null ? group : removeAxis(group, axis, metadataParams);
    });
    const keys = lifted.keys.map((group, i) => (isSplit[i] ? splitKeys(group, axisSize) : group));
    const run = (groups: readonly VariableGroup[], own: readonly KeyGroup[], tensors: readonly unknown[]) =>
      lifted.run(groups, own, () => fn(...modules, ...rebuild(tensors)));
    const [result, outs] = vmapFunction(run, {
      inAxes: [axes, isSplit.map((flag) => (flag ? 0 : null)), dims],
      outAxes: [outAxes, axes],
      axisSize,
      ...extra,
    })(variables, keys, leaves);
    lifted.publish(
      outs.map((group, i) => {
        const axis = axes[i] ?? null;
        return axis === null ? group : addAxis(group, axis, metadataParams);
      }),
    );
    return result;
  };
}

/** The tensors of a group of variables, with the dim that is mapped. */
function mappedVariables(
  group: VariableGroup,
  axis: number | null,
): { readonly leaf: Tensor; readonly path: string; readonly dim: number }[] {
  if (axis === null) return [];
  return group.flatMap((values) =>
    tree.flattenWithPath(values).flatMap(({ path, leaf }) => {
      if (!(leaf instanceof Tensor)) return [];
      return [{ leaf, path, dim: normalizeDim(axis, leaf.ndim, `nn.vmap] [variable ${path}`) }];
    }),
  );
}
