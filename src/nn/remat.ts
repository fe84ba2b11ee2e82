import { checkOptions, type OptionNames } from "../ir/options.js";
import { type RematOptions, remat as rematFunction } from "../transforms/derivatives/remat.js";
import type { CollectionFilter } from "./filter.js";
import {
  type KeyGroup,
  type LiftedCall,
  liftScopes,
  liftTarget,
  type MethodsOption,
  type VariableGroup,
} from "./lift.js";
import { tensorArguments } from "./liftArguments.js";
import type { AnyFunction, ModuleClass } from "./module.js";

/** Options of {@link remat}. */
export interface ModuleRematOptions extends MethodsOption {
  /** What to keep for the backward pass; nothing by default. See `checkpointPolicies`. */
  readonly policy?: RematOptions["policy"];
  /** Arguments that are passed as they are. Whatever is no tensor is, anyway. */
  readonly staticArgnums?: number | readonly number[];
  /** The collections that the module gets; all by default. */
  readonly variables?: CollectionFilter;
  /** The keys that the module gets; all by default. */
  readonly rngs?: CollectionFilter;
}

const rematNames: OptionNames<ModuleRematOptions> = {
  policy: true,
  staticArgnums: true,
  variables: true,
  rngs: true,
  methods: true,
};

/**
 * A module whose intermediate values are computed again in the backward pass instead of being kept.
 *
 * ```ts
 * const Block = nn.remat(TransformerBlock, { policy: checkpointPolicies.dotsSaveable });
 * ```
 *
 * @param target a module class, which gives a class named `CheckpointBlock`, or a function: it may use the
 * modules among its arguments, or else whatever belongs to the module that runs now
 */
export function remat<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  options?: ModuleRematOptions,
): ModuleClass<C, F, M>;
export function remat<A extends readonly unknown[], R>(
  target: (...args: A) => R,
  options?: ModuleRematOptions,
): (...args: A) => R;
export function remat(target: unknown, options: ModuleRematOptions = {}): unknown {
  checkOptions<ModuleRematOptions>(options, rematNames, "nn.remat");
  const { methods } = options;
  const call = rematCall(options);
  return liftTarget(target, {
    name: "Checkpoint",
    caller: "nn.remat",
    call,
    ...(methods ? { methods } : {}),
  });
}

/** A call whose intermediate values are computed again in the backward pass. */
export function rematCall({
  policy,
  staticArgnums = [],
  variables = true,
  rngs = true,
}: ModuleRematOptions): LiftedCall {
  const statics = typeof staticArgnums === "number" ? [staticArgnums] : staticArgnums;
  return (scopes, fn, args) => {
    const lifted = liftScopes(scopes, { ins: [variables], outs: [variables], rngs: [rngs] });
    const { leaves, rebuild } = tensorArguments(args, statics);
    const run = (groups: readonly VariableGroup[], keys: readonly KeyGroup[], tensors: readonly unknown[]) =>
      lifted.run(groups, keys, () => fn(...rebuild(tensors)));
    const [result, outs] = rematFunction(run, policy ? { policy } : {})(
      lifted.variables,
      lifted.keys,
      leaves,
    );
    lifted.publish(outs);
    return result;
  };
}
