import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { type CollectionFilter, DenyList, filterKind, subtractFilters } from "../modules/filter.js";
import type { AnyFunction, ModuleClass } from "../modules/module.js";
import type { Variables } from "../modules/scope.js";
import { type LiftedCall, liftScopes, liftTarget, methodsOption, type VariableGroup } from "./lift.js";

const same = (variables: Variables) => variables;

const mapVariablesOptions = schema({
  ...methodsOption.fields,
  /** Makes the variables that the module sees from those that are stored, both by collection. */
  transInFn: optional<typeof same>("function", same),
  /** Makes the variables to store from those of the module; used with `init` or `mutable`. */
  transOutFn: optional<typeof same>("function", same),
  /** Whether missing variables are made before they are mapped; the module then runs twice in `init`. */
  init: false,
  /** Whether the module can change the mapped collections. */
  mutable: false,
  /** The keys that the module gets; all by default. */
  rngs: optional(filterKind, true),
  /** The other collections that the module gets; all by default. */
  variables: optional(filterKind, true),
});

/** Options of {@link mapVariables}. */
export interface MapVariablesOptions extends OptionsOf<typeof mapVariablesOptions> {}

/**
 * A module that sees transformed variables: `transInFn` maps the stored variables to those it sees, `transOutFn` maps
 * them back. Fully sharded parameters, for instance, are gathered by the first and split by the second.
 *
 * @param target a module class, which gives a class named `Map_variablesBlock`, or a function: it may use the
 * modules among its arguments, or else whatever belongs to the running module
 * @param collections the collections to map
 *
 * @example
 * ```ts
 * const doubled = (params) => tree.map((x: Tensor) => x.mul(2), params);
 * const layer = nn.mapVariables(nn.Dense, "params", { transInFn: doubled })({ features: 1, useBias: false });
 * layer.apply({ params: { kernel: np.array([[3]]) } }, np.array([[1]])); // [[6]]
 * ```
 */
export function mapVariables<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  collections: CollectionFilter,
  options?: MapVariablesOptions,
): ModuleClass<C, F, M>;
export function mapVariables<A extends readonly unknown[], R>(
  target: (...args: A) => R,
  collections: CollectionFilter,
  options?: MapVariablesOptions,
): (...args: A) => R;
export function mapVariables(
  target: unknown,
  collections: CollectionFilter,
  options?: MapVariablesOptions,
): unknown {
  const { methods, ...given } = mapVariablesOptions.read(options, "nn.mapVariables");
  return liftTarget(target, {
    name: "Map_variables",
    caller: "nn.mapVariables",
    call: mappedCall(collections, given),
    methods,
  });
}

function mappedCall(
  collections: CollectionFilter,
  options: Omit<Values<typeof mapVariablesOptions.fields>, "methods">,
): LiftedCall {
  const { transInFn, transOutFn, init, mutable, rngs, variables } = options;
  const changes = mutable || init;
  const ins = [collections, variables];
  const outs = changes ? ins : [false, subtractFilters(variables, collections)];
  return (scopes, fn, args) => {
    const lifted = liftScopes(scopes, { ins, outs, rngs: [rngs] });
    const [stored = [], rest = []] = lifted.variables;
    const mapGroup = (map: typeof same, values: VariableGroup): VariableGroup => values.map(map);
    let mapped = stored;
    if (init && lifted.mayChange) {
      const [, made] = lifted.run([stored, rest], lifted.keys, () => fn(...args));
      mapped = mapGroup(transOutFn, made[0] ?? []);
    }
    const seen = mapGroup(transInFn, mapped);
    const allowed = changes ? true : new DenyList(collections);
    const [result, [outMapped = [], outRest = []]] = lifted.run(
      [seen, rest],
      lifted.keys,
      () => fn(...args),
      allowed,
    );
    lifted.publish([changes ? mapGroup(transOutFn, outMapped) : outMapped, outRest]);
    return result;
  };
}
