import { type OptionsOf, optional, schema } from "../ir/schema.js";
import type { CollectionFilter } from "./filter.js";
import { liftScopes, liftTarget, methodsOption } from "./lift.js";
import type { AnyFunction, ModuleClass } from "./module.js";

/** The schema of {@link FoldRngsOptions}. */
export const foldRngsOptions = schema({
  ...methodsOption.fields,
  /** The collections that the module gets; all by default. */
  variables: optional<CollectionFilter>("any", true),
  /** The keys that the module gets; all by default. */
  rngs: optional<CollectionFilter>("any", true),
});

/** Options of {@link foldRngs}. */
export interface FoldRngsOptions extends OptionsOf<typeof foldRngsOptions> {}

/**
 * A module with its own sequences of keys: one key of each is drawn for it, and everything it draws depends only on
 * these.
 *
 * @param target a module class, or a function of the running module
 *
 * @example
 * ```ts
 * const layer = nn.foldRngs(nn.Dense)({ features: 3 });
 * const x = np.ones([2, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [2, 3]
 * ```
 */
export function foldRngs<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  options?: FoldRngsOptions,
): ModuleClass<C, F, M>;
export function foldRngs<A extends readonly unknown[], R>(
  target: (...args: A) => R,
  options?: FoldRngsOptions,
): (...args: A) => R;
export function foldRngs(target: unknown, options?: FoldRngsOptions): unknown {
  const { methods, variables, rngs } = foldRngsOptions.read(options, "nn.foldRngs");
  return liftTarget(target, {
    name: "Fold_rngs",
    caller: "nn.foldRngs",
    call: (scopes, fn, args) => {
      const lifted = liftScopes(scopes, {
        ins: [variables],
        outs: [variables],
        rngs: [rngs],
        forksKeys: true,
      });
      const [result, outs] = lifted.run(lifted.variables, lifted.keys, () => fn(...args));
      lifted.publish(outs);
      return result;
    },
    ...(methods ? { methods } : {}),
  });
}
