import { need } from "../../ir/arguments.js";
import { type FieldsOf, required, schema } from "../../ir/schema.js";
import { ModuleError } from "../modules/errors.js";
import {
  type AnyFunction,
  type ArgsOf,
  type ModuleInstance,
  type ModuleOptions,
  mainMethod,
  moduleClass,
  type ResultOf,
} from "../modules/module.js";

/** Configuration of {@link Sequential}. */
export interface SequentialConfig<L extends readonly AnyFunction[] = readonly AnyFunction[]> {
  /** Modules and functions; modules that are created outside of other modules are named `layers_0`, … */
  readonly layers: L;
}

/** From the arguments of the first layer to the result of the last. */
export type SequentialFunction<L extends readonly AnyFunction[]> = L extends readonly [
  infer First,
  ...unknown[],
]
  ? L extends readonly [...unknown[], infer Last]
    ? (...args: ArgsOf<First>) => ResultOf<Last>
    : never
  : (...args: readonly unknown[]) => unknown;

/** The class of {@link Sequential}, which takes its types from the layers. */
export interface SequentialClass {
  <const L extends readonly AnyFunction[]>(
    config: SequentialConfig<L> & ModuleOptions,
  ): ModuleInstance<SequentialFunction<L>>;
  readonly moduleName: string;
}

/**
 * Calls one layer after the other, each with the result of the one before; a list becomes several arguments.
 *
 * ```ts
 * const model = nn.Sequential({ layers: [nn.Dense({ features: 8 }), nn.relu, nn.Dense({ features: 2 })] });
 * ```
 *
 * @example
 * ```ts
 * const net = nn.Sequential({ layers: [nn.Dense({ features: 4 }), nn.relu, nn.Dense({ features: 1 })] });
 * const x = np.ones([2, 3]);
 * net.apply(net.init(random.key(0), x), x).shape; // [2, 1]
 * ```
 */
export const Sequential = moduleClass<SequentialClass>({
  name: "Sequential",
  methods: { [mainMethod]: callInOrder },
  options: schema<FieldsOf<SequentialConfig>>({ layers: required("list") }),
});

function callInOrder({ layers }: SequentialConfig): (...args: readonly unknown[]) => unknown {
  for (const layer of layers) need("function", layer, "a layer", "nn.Sequential");
  if (layers.length === 0) throw new ModuleError("argument", "[Sequential] has no layers");
  return (...args) => {
    let next = args;
    let result: unknown;
    for (const layer of layers) {
      result = (layer as (...args: readonly unknown[]) => unknown)(...next);
      next = Array.isArray(result) ? result : [result];
    }
    return result;
  };
}
