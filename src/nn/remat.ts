import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { type RematOptions, remat as rematFunction } from "../transforms/derivatives/remat.js";
import type { CollectionFilter } from "./filter.js";
import {
  type KeyGroup,
  type LiftedCall,
  liftScopes,
  liftTarget,
  methodsOption,
  type VariableGroup,
} from "./lift.js";
import { tensorArguments } from "./liftArguments.js";
import type { AnyFunction, ModuleClass } from "./module.js";

const moduleRematOptions = schema({
  ...methodsOption.fields,
  /** What to keep for the backward pass; nothing by default. See `checkpointPolicies`. */
  policy: optional<NonNullable<RematOptions["policy"]>>("any"),
  /** Arguments that are passed unchanged. Leaves that are not tensors always are. */
  staticArgnums: optional<number | readonly number[]>("any", []),
  /** The collections that the module gets; all by default. */
  variables: optional<CollectionFilter>("any", true),
  /** The keys that the module gets; all by default. */
  rngs: optional<CollectionFilter>("any", true),
});

/** Options of {@link remat}. */
export interface ModuleRematOptions extends OptionsOf<typeof moduleRematOptions> {}

/**
 * A module whose intermediate values are computed again in the backward pass instead of being kept.
 *
 * @param target a module class, which gives a class named `CheckpointBlock`, or a function: it may use the
 * modules among its arguments, or else whatever belongs to the running module
 *
 * @example
 * ```ts
 * const layer = nn.remat(nn.Dense)({ features: 3 });
 * const x = np.ones([2, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [2, 3]
 * ```
 */
export function remat<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  options?: ModuleRematOptions,
): ModuleClass<C, F, M>;
export function remat<A extends readonly unknown[], R>(
  target: (...args: A) => R,
  options?: ModuleRematOptions,
): (...args: A) => R;
export function remat(target: unknown, options?: ModuleRematOptions): unknown {
  const { methods, ...given } = moduleRematOptions.read(options, "nn.remat");
  return liftTarget(target, { name: "Checkpoint", caller: "nn.remat", call: rematCall(given), methods });
}

/** A call whose intermediate values are computed again in the backward pass. */
export function rematCall(options: ModuleRematOptions): LiftedCall {
  const { policy, staticArgnums, variables, rngs } = moduleRematOptions.read(options, "nn.remat");
  const statics = typeof staticArgnums === "number" ? [staticArgnums] : staticArgnums;
  return (scopes, fn, args) => {
    const lifted = liftScopes(scopes, { ins: [variables], outs: [variables], rngs: [rngs] });
    const { leaves, rebuild } = tensorArguments(args, statics);
    const run = (groups: readonly VariableGroup[], keys: readonly KeyGroup[], tensors: readonly unknown[]) =>
      lifted.run(groups, keys, () => fn(...rebuild(tensors)));
    const [result, outs] = rematFunction(run, { policy })(lifted.variables, lifted.keys, leaves);
    lifted.publish(outs);
    return result;
  };
}
