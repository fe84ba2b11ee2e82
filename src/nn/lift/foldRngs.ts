import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { filterKind } from "../modules/filter.js";
import { type ModuleTransform, methodsOption, moduleTransform } from "./lift.js";
import { callThrough } from "./liftArguments.js";

/** The schema of {@link FoldRngsOptions}. */
export const foldRngsOptions = schema({
  ...methodsOption.fields,
  /** The collections that the module gets; all by default. */
  variables: optional(filterKind, true),
  /** The keys that the module gets; all by default. */
  rngs: optional(filterKind, true),
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
export const foldRngs: ModuleTransform<FoldRngsOptions> = moduleTransform(
  "Fold_rngs",
  "nn.foldRngs",
  foldRngsOptions,
  (given) => callThrough({ ...given, forksKeys: true }, (run) => run),
);
