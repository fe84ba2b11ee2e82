import { ModuleError } from "./errors.js";
import { type AnyFunction, module } from "./module.js";

/** Configuration of {@link Sequential}. */
export interface SequentialConfig {
  /** Modules and functions; modules that are created outside of other modules are named `layers_0`, … */
  readonly layers: readonly AnyFunction[];
}

/** Calls one layer after the other, each with the result of the one before; a list becomes several arguments. */
export const Sequential = module("Sequential", ({ layers }: SequentialConfig) => {
  if (layers.length === 0) throw new ModuleError("argument", "[Sequential] has no layers");
  return <R = unknown>(...args: readonly unknown[]): R => {
    let next = args;
    let result: unknown;
    for (const layer of layers) {
      result = (layer as (...args: readonly unknown[]) => unknown)(...next);
      next = Array.isArray(result) ? result : [result];
    }
    return result as R;
  };
});
