/** Derivatives of modules inside of modules, and compiled modules. */

import { need, needIfGiven } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import * as np from "../../numpy/index.js";
import { jit as jitFunction } from "../../spmd/run/jit.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { customVjp as customFunction } from "../../transforms/derivatives/customVjp.js";
import { vjp as vjpFunction } from "../../transforms/derivatives/grad.js";
import { jvp as jvpFunction } from "../../transforms/derivatives/jvp.js";
import { type CollectionFilter, filterKind } from "../modules/filter.js";
import type { Variables } from "../modules/scope.js";
import { foldRngsOptions } from "./foldRngs.js";
import { liftScopes, type ModuleTransform, moduleTransform, scopesOf, type VariableGroup } from "./lift.js";
import { callThrough } from "./liftArguments.js";

/** A function whose types the callers' overloads know. */
type Loose = (...args: readonly unknown[]) => unknown;

const moduleVjpOptions = schema({
  /** The collections whose cotangents the pullback also gives; `params` by default. */
  vjpVariables: optional(filterKind, "params"),
});

/** Options of {@link vjp}. */
export interface ModuleVjpOptions extends OptionsOf<typeof moduleVjpOptions> {}

/** From the cotangents of the results to those of the variables, and of the arguments after the modules. */
export type ModulePullback<A extends readonly unknown[], R> = (
  cotangents: R,
) => [variables: Variables, ...args: { -readonly [I in keyof A]: A[I] }];

/**
 * Evaluates a function of the running module, and returns how to pull cotangents of its results back to
 * the module's variables and to the arguments.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => (x: Tensor) => {
 *   const scaled = (z: Tensor) => z.mul(nn.param("scale", random.initializers.ones, [1]));
 *   const [y, pullback] = nn.vjp(scaled, [x]);
 *   return pullback(np.onesLike(y));
 * });
 * Layer().apply({ params: { scale: np.array([2]) } }, np.array([3])); // [{ "params": { "scale": [3] } }, [2]]
 * ```
 */
export function vjp<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  primals: readonly [...A],
  options?: ModuleVjpOptions,
): [R, ModulePullback<A, R>];
export function vjp(fn: Loose, primals: readonly unknown[], options?: ModuleVjpOptions): [unknown, Loose] {
  const { vjpVariables } = moduleVjpOptions.read(options, "nn.vjp");
  const lifted = liftScopes(scopesOf([], "nn.vjp"), {
    ins: [vjpVariables, true],
    outs: [true],
    rngs: [true],
  });
  const [active = [], rest = []] = lifted.variables;
  const run = (variables: VariableGroup, ...args: readonly unknown[]) =>
    lifted.run([variables, rest], lifted.keys, () => fn(...args));
  const [result, pullback, outs] = vjpFunction(run, [active, ...primals], { hasAux: true });
  lifted.publish(outs);
  const pull = (cotangents: unknown) => {
    const [groups, ...args] = pullback(cotangents);
    return [groups[0] ?? {}, ...args];
  };
  return [result, pull];
}

/**
 * The value of a function of the running module, and its gradients by the arguments.
 *
 * @example
 * ```ts
 * const Energy = nn.module("Energy", () => (x: Tensor) => nn.valueAndGrad((y: Tensor) => np.sum(np.square(y)), [x]));
 * Energy().apply({}, np.array([3])); // [9, [[6]]]
 * ```
 */
export function valueAndGrad<A extends readonly unknown[]>(
  fn: (...args: A) => Tensor,
  primals: readonly [...A],
): [Tensor, { -readonly [I in keyof A]: A[I] }] {
  const [value, pullback] = vjp(fn, primals, { vjpVariables: false });
  const [, ...grads] = pullback(np.onesLike(value));
  return [value, grads];
}

/**
 * The gradients of a function of the running module by its arguments.
 *
 * @example
 * ```ts
 * const Slope = nn.module("Slope", () => (x: Tensor) => nn.grad((y: Tensor) => np.sum(np.square(y)), [x]));
 * Slope().apply({}, np.array([3])); // [[6]]
 * ```
 */
export function grad<A extends readonly unknown[]>(
  fn: (...args: A) => Tensor,
  primals: readonly [...A],
): { -readonly [I in keyof A]: A[I] } {
  return valueAndGrad(fn, primals)[1];
}

/**
 * The result of a function of the running module, and how it changes when arguments and variables change.
 *
 * @param variableTangents how the variables change, by collection; those of other collections stay
 *
 * @example
 * ```ts
 * const Change = nn.module("Change", () => (x: Tensor) => nn.jvp((y: Tensor) => np.square(y), [x], [np.onesLike(x)]));
 * Change().apply({}, np.array([3])); // [[9], [6]]
 * ```
 */
export function jvp<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  primals: readonly [...A],
  tangents: readonly [...A],
  variableTangents: Variables = {},
): [R, R] {
  need("function", fn, "fn", "nn.jvp");
  need("list", primals, "primals", "nn.jvp");
  need("list", tangents, "tangents", "nn.jvp");
  needIfGiven("object", variableTangents, "variableTangents", "nn.jvp");
  const moving = Object.entries(variableTangents).filter(([, values]) => tree.leaves(values).length > 0);
  const names = moving.map(([name]) => name);
  const lifted = liftScopes(scopesOf([], "nn.jvp"), { ins: [names, true], outs: [true], rngs: [true] });
  const [active = [], rest = []] = lifted.variables;
  const run = (variables: VariableGroup, ...args: A) =>
    lifted.run([variables, rest], lifted.keys, () => fn(...args));
  const [[result, outs], [tangent]] = jvpFunction(
    run,
    [active, ...primals],
    [[Object.fromEntries(moving)], ...tangents],
  );
  lifted.publish(outs);
  return [result, tangent];
}

/** The two halves of a derivative of {@link customVjp}. */
export interface ModuleCustomRule<A extends readonly unknown[], R, S> {
  /** The result, and whatever `backward` needs; it may use the running module, as the function does. */
  readonly forward: (...args: A) => readonly [R, S];
  /**
   * From the residuals and the result's cotangent to cotangents of the variables by collection (`null` for
   * zeros), and of every argument.
   */
  readonly backward: (
    residuals: S,
    cotangent: R,
  ) => readonly [variables: Variables | null, ...args: { readonly [I in keyof A]: A[I] | null }];
  /** The collections with cotangents; `params` by default. */
  readonly gradVars?: CollectionFilter;
}

/**
 * A function of the running module with a custom derivative.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => (x: Tensor) => {
 *   const forward = (y: Tensor): [Tensor, null] => [y.mul(3), null];
 *   const rule = { forward, backward: (_: null, ct: Tensor) => [{}, ct.mul(10)] };
 *   return nn.customVjp((y: Tensor) => y.mul(3), rule)(x);
 * });
 * grad((x: Tensor) => np.sum(Layer().apply({}, x)))(np.array([1])); // [10]
 * ```
 */
export function customVjp<A extends readonly unknown[], R, S>(
  fn: (...args: A) => R,
  options: ModuleCustomRule<A, R, S>,
): (...args: A) => R {
  need("function", fn, "fn", "nn.customVjp");
  need("object", options, "options", "nn.customVjp");
  const { forward, backward, gradVars = "params" } = options;
  return (...args) => {
    const scopes = scopesOf([], "nn.customVjp");
    // During initialisation nothing is differentiated, and the variables of the rule do not exist yet.
    if (scopes.some(({ isInitializing }) => isInitializing)) return fn(...args);
    const filters = { ins: [gradVars, true], outs: [gradVars, true], rngs: [true] };
    const lifted = liftScopes(scopes, filters);
    const [active = [], rest = []] = lifted.variables;
    const run = <T>(variables: VariableGroup, call: () => T) =>
      liftScopes(scopes, filters).run([variables, rest], lifted.keys, call);
    const withRule = customFunction(
      (variables: VariableGroup, ...inner: A) => run(variables, () => fn(...inner)),
      {
        forward: (variables: VariableGroup, ...inner: A) => {
          const [[result, residuals], outs] = run(variables, () => forward(...inner));
          return [[result, outs] as [R, VariableGroup[]], residuals] as const;
        },
        backward: (residuals: S, [cotangent]) => {
          const [variables, ...others] = backward(residuals, cotangent);
          return [variables && [variables], ...others];
        },
      },
    );
    const [result, outs] = withRule(active, ...args);
    lifted.publish(outs);
    return result;
  };
}

const moduleJitOptions = schema({
  ...foldRngsOptions.fields,
  /** Arguments that are passed as they are. Leaves that are not tensors always are. */
  staticArgnums: optional("integerOrIntegers", []),
});

/** Options of {@link jit}. */
export interface ModuleJitOptions extends OptionsOf<typeof moduleJitOptions> {}

/**
 * A module that is compiled separately when it runs outside of `jit`; inside, its equations become part of the
 * surrounding program. It is traced again at every call: wrap the whole `apply` in `jit` if that matters. As in Flax,
 * every call draws new keys, so the same seed gives different parameters than without `jit`.
 *
 * @param target a module class, which gives a class named `JitBlock`, or a function: it may use the modules
 * among its arguments, or else whatever belongs to the running module
 *
 * @example
 * ```ts
 * const layer = nn.jit(nn.Dense)({ features: 3 });
 * const x = np.ones([2, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [2, 3]
 * ```
 */
export const jit: ModuleTransform<ModuleJitOptions> = moduleTransform(
  "Jit",
  "nn.jit",
  moduleJitOptions,
  (given) => callThrough({ ...given, forksKeys: true }, (run) => jitFunction(run)),
);
