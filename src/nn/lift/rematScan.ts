import { recordOf } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../ir/schema.js";
import type { RematOptions } from "../../transforms/derivatives/remat.js";
import { resolveScope } from "../modules/context.js";
import { filterKind } from "../modules/filter.js";
import type { AnyFunction, ModuleClass } from "../modules/module.js";
import { type LiftedCall, liftTarget, methodsOption } from "./lift.js";
import { rematCall } from "./remat.js";
import { loopDefaults, scanLoop } from "./scan.js";

const rematScanOptions = schema({
  ...methodsOption.fields,
  /**
   * The number of iterations of each of the nested loops, the outermost first: the module is repeated as often as their
   * product says.
   */
  lengths: required("integers"),
  /** What to keep for the backward pass; nothing by default. See `checkpointPolicies`. */
  policy: optional<NonNullable<RematOptions["policy"]>>("object"),
  /** Collections that all iterations share. */
  variableBroadcast: optional(filterKind, false),
  /** Collections that are carried from one iteration to the next. */
  variableCarry: optional(filterKind, false),
  /** The dim along which each collection is stacked; all along dim 0 by default. */
  variableAxes: optional(recordOf("integer")),
  /** Whether every iteration has keys of its own; all have by default. */
  splitRngs: optional(recordOf("flag")),
});

/** Options of {@link rematScan}. */
export interface RematScanOptions extends OptionsOf<typeof rematScanOptions> {}

/**
 * A module repeated many times by nested loops, each of which is recomputed in the backward pass: the program does not
 * grow with the depth, and the memory only with a root of it.
 *
 * @param target a module class, or a function of the running module: of one argument, which is like its result
 *
 * @example
 * ```ts
 * const deep = nn.rematScan(nn.Dense, { lengths: [2, 3] })({ features: 4 });
 * deep.init(random.key(0), np.ones([4])).params.kernel.shape; // [2, 3, 4, 4]
 * ```
 */
export function rematScan<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  options: RematScanOptions,
): ModuleClass<C, F, M>;
export function rematScan<T>(target: (carry: T) => T, options: RematScanOptions): (carry: T) => T;
export function rematScan(target: unknown, options: RematScanOptions): unknown {
  const { methods, lengths, ...given } = rematScanOptions.read(options, "nn.rematScan");
  if (lengths.length === 0 || lengths.some((length) => length < 1)) {
    throw new ValueError(
      `[nn.rematScan] lengths must be one or more integers of at least 1, got [${lengths}]`,
    );
  }
  return liftTarget(target, {
    name: "Remat_scan",
    caller: "nn.rematScan",
    call: loopsOf(lengths, given),
    methods,
  });
}

/** The loop of the first length around those of the others. */
function loopsOf(
  lengths: readonly number[],
  options: Omit<Values<typeof rematScanOptions.fields>, "methods" | "lengths">,
): LiftedCall {
  const { policy, variableBroadcast, variableCarry, variableAxes, splitRngs } = options;
  const [length = 1, ...inner] = lengths;
  const loop = scanLoop(
    {
      variableAxes: variableAxes ? Object.entries(variableAxes) : [[true, 0]],
      splitRngs: splitRngs ? Object.entries(splitRngs) : [[true, true]],
    },
    { ...loopDefaults, variableBroadcast, variableCarry, length },
  );
  return (scopes, fn, args) => {
    // Inside a loop, its scopes replace these.
    const here = () => scopes.map(resolveScope);
    const repeat = (carry: unknown) => loopsOf(inner, options)(here(), fn, [carry]);
    const step =
      inner.length === 0
        ? (carry: unknown) => [fn(carry), null]
        : (carry: unknown) => [rematCall({ policy })(here(), repeat, [carry]), null];
    const [carry, ...rest] = args;
    if (rest.length > 0) {
      throw new ValueError(
        `[nn.rematScan] the module is called with ${args.length} arguments: pass one, which the loop carries`,
      );
    }
    const result = loop(scopes, step, [carry]);
    return Array.isArray(result) ? result[0] : result;
  };
}
