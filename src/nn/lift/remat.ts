import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { type RematOptions, remat as rematFunction } from "../../transforms/derivatives/remat.js";
import { foldRngsOptions } from "./foldRngs.js";
import { type LiftedCall, type ModuleTransform, moduleTransform } from "./lift.js";
import { callThrough } from "./liftArguments.js";

const moduleRematOptions = schema({
  ...foldRngsOptions.fields,
  /** What to keep for the backward pass; nothing by default. See `checkpointPolicies`. */
  policy: optional<NonNullable<RematOptions["policy"]>>("object"),
  /** Arguments that are passed unchanged. Leaves that are not tensors always are. */
  staticArgnums: optional("integerOrIntegers", []),
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
export const remat: ModuleTransform<ModuleRematOptions> = moduleTransform(
  "Checkpoint",
  "nn.remat",
  moduleRematOptions,
  rematCall,
);

/** A call whose intermediate values are computed again in the backward pass. */
export function rematCall(options: ModuleRematOptions): LiftedCall {
  const given = moduleRematOptions.read(options, "nn.remat");
  return callThrough(given, (run) => rematFunction(run, { policy: given.policy }));
}
