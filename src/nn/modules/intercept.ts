/** Interceptors of the methods of modules. */
import { Ambient } from "../../ir/ambient.js";
import { need } from "../../ir/arguments.js";
import type { ModuleInstance } from "./module.js";

/** The call that is intercepted. */
export interface InterceptedCall {
  readonly module: ModuleInstance;
  /** The name of the module's class. */
  readonly moduleName: string;
  /** The names from the top of the module tree to the module. */
  readonly path: readonly string[];
  /** The method that is called; `__call__` is the main one. */
  readonly method: string;
  /** The method itself, without other interceptors. */
  readonly original: (...args: readonly unknown[]) => unknown;
}

/** Called instead of a method; `next` calls the next interceptor, and finally the method. */
export type Interceptor = (
  next: (...args: readonly unknown[]) => unknown,
  args: readonly unknown[],
  call: InterceptedCall,
) => unknown;

const interceptors = new Ambient<readonly Interceptor[]>({
  name: "interceptors of module methods",
  initial: [],
  setBy: "nn.interceptMethods",
  dependence: { once: "an interceptor may do anything with a call" },
});

/**
 * Runs `fn` with an interceptor around every method of a module that is called in it, to inspect or change arguments
 * and results. If interceptors are nested, the outer one is called first.
 *
 * @example
 * ```ts
 * const layer = nn.Dense({ features: 1, kernelInit: random.initializers.ones });
 * const [x, half] = [np.array([[2, 4]]), (next, args) => np.multiply(next(...args), 0.5)];
 * const variables = layer.init(random.key(0), x);
 * nn.interceptMethods(half, () => layer.apply(variables, x)); // [[3]]
 * ```
 */
export function interceptMethods<T>(interceptor: Interceptor, fn: () => T): T {
  need("function", interceptor, "interceptor", "nn.interceptMethods");
  need("function", fn, "fn", "nn.interceptMethods");
  return interceptors.within([...interceptors.peek(), interceptor], fn);
}

/** A method wrapped in all interceptors. */
export function intercepted(call: InterceptedCall): InterceptedCall["original"] {
  return interceptors.get().reduceRight<InterceptedCall["original"]>(
    (next, interceptor) =>
      (...args) =>
        interceptor(next, args, call),
    call.original,
  );
}
