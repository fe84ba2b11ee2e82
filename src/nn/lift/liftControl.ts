/** Control flow for modules: like the functions of `lax`, with variables and keys passed along. */

import { need, recordOf } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { foldIn } from "../../random/index.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { cond as condFunction, switchCase as switchFunction } from "../../transforms/control/cond.js";
import { whileLoop as whileFunction } from "../../transforms/control/whileLoop.js";
import { filterKind } from "../modules/filter.js";
import { type KeyGroup, liftScopes, scopesOf, type VariableGroup } from "./lift.js";
import { tensorArguments } from "./liftArguments.js";

/** A function of modules and tensors whose types the callers' overloads know. */
type Branch = (...operands: readonly unknown[]) => unknown;

/** What every lifted branch gets. */
type Groups = readonly [
  variables: readonly VariableGroup[],
  keys: readonly KeyGroup[],
  tensors: readonly unknown[],
];

/** A branch as a function of variables, keys and tensors to its result and the variables that it changed. */
type LiftedBranch = (...groups: Groups) => [result: unknown, outs: VariableGroup[]];

const everything = { ins: [true], outs: [true], rngs: [true] } as const;

/**
 * One of two functions of the same operands, chosen by a bool scalar when the program runs. They may use the
 * modules among the operands, or else whatever belongs to the running module, and change its variables:
 * both must make the same ones.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => (x: Tensor) => {
 *   const block = nn.Dense({ features: 2 });
 *   return nn.cond(false, (block, x) => block(x), (_, x) => x, block, x);
 * });
 * const layer = Layer();
 * layer.apply(layer.init(random.key(0), np.ones([2])), np.array([1, 2])); // [1, 2]
 * ```
 */
export function cond<A extends readonly unknown[], R>(
  predicate: Tensor | boolean,
  onTrue: (...operands: A) => R,
  onFalse: (...operands: A) => R,
  ...operands: A
): R;
export function cond(
  predicate: Tensor | boolean,
  onTrue: Branch,
  onFalse: Branch,
  ...operands: readonly unknown[]
): unknown {
  const { lift, groups, publish } = liftBranches(operands, "nn.cond");
  return publish(condFunction(predicate, lift(onTrue), lift(onFalse), ...groups));
}

/**
 * One of several functions of the same operands, chosen by an int32 scalar; otherwise like {@link cond}.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => (x: Tensor) => {
 *   const block = nn.Dense({ features: 2 });
 *   return nn.switch(1, [(block, x) => block(x), (_, x) => x.mul(3)], block, x);
 * });
 * const layer = Layer();
 * layer.apply(layer.init(random.key(0), np.ones([2])), np.array([1, 2])); // [3, 6]
 * ```
 */
export function switchCase<A extends readonly unknown[], R>(
  index: Tensor | number,
  branches: readonly ((...operands: A) => R)[],
  ...operands: A
): R;
export function switchCase(
  index: Tensor | number,
  branches: readonly Branch[],
  ...operands: readonly unknown[]
): unknown {
  const { lift, groups, publish } = liftBranches(operands, "nn.switch");
  return publish(switchFunction(index, branches.map(lift), ...groups));
}

function liftBranches(operands: readonly unknown[], caller: string) {
  const scopes = scopesOf(operands, caller);
  const { leaves, rebuild } = tensorArguments(operands, []);
  const { variables, keys, publish } = liftScopes(scopes, everything);
  const lift =
    (branch: Branch): LiftedBranch =>
    (inner, innerKeys, tensors) =>
      // Every branch takes automatic names after those of the one before, as in Flax.
      liftScopes(scopes, everything).run(inner, innerKeys, () => branch(...rebuild(tensors)));
  const groups: Groups = [variables, keys, leaves];
  return {
    lift,
    groups,
    publish([result, outs]: ReturnType<LiftedBranch>): unknown {
      publish(outs);
      return result;
    },
  };
}

const moduleWhileOptions = schema({
  /** Collections that are carried from one iteration to the next; none by default. */
  carryVariables: optional(filterKind, false),
  /** Collections that all iterations read; all others by default. */
  broadcastVariables: optional(filterKind, true),
  /** The keys that the functions get: with `true` every iteration has keys of its own. */
  splitRngs: optional(recordOf("flag"), {}),
});

/** Options of {@link whileLoop}. */
export interface ModuleWhileOptions extends OptionsOf<typeof moduleWhileOptions> {}

/**
 * Repeats a function of a carried value while a condition on it holds; both use whatever belongs to the
 * running module. Variables must already exist: create them by calling the function once while initialising.
 *
 * @example
 * ```ts
 * const Double = nn.module("Double", () => (x: Tensor) => {
 *   const two = nn.param("two", random.initializers.constant(2), []);
 *   return nn.whileLoop((y: Tensor) => np.less(np.sum(y), 10), (y) => y.mul(two), x);
 * });
 * const double = Double();
 * double.apply(double.init(random.key(0), np.array([1])), np.array([3])); // [12]
 * ```
 */
export function whileLoop<C>(
  condition: (carry: C) => Tensor,
  body: (carry: C) => C,
  init: C,
  options?: ModuleWhileOptions,
): C {
  need("function", condition, "condition", "nn.whileLoop");
  need("function", body, "body", "nn.whileLoop");
  const { carryVariables, broadcastVariables, splitRngs } = moduleWhileOptions.read(options, "nn.whileLoop");
  const isSplit = Object.values(splitRngs);
  const lifted = liftScopes(scopesOf([], "nn.whileLoop"), {
    ins: [carryVariables, broadcastVariables],
    outs: [carryVariables],
    rngs: Object.keys(splitRngs),
  });
  const [carried = [], shared = []] = lifted.variables;
  const keysOf = (i: Tensor): KeyGroup[] =>
    lifted.keys.map((group, g) => (isSplit[g] ? tree.map((key: Tensor) => foldIn(key, i), group) : group));
  type Carry = readonly [count: Tensor, variables: VariableGroup, carry: C];
  const [, variables, last] = whileFunction<Carry>(
    ([count, inner, carry]) =>
      lifted.run([inner, shared], keysOf(count.neg()), () => condition(carry), false)[0],
    ([count, inner, carry]) => {
      const [next, [out = []]] = lifted.run([inner, shared], keysOf(count), () => body(carry));
      return [count.add(1), inner.map((values, i) => ({ ...values, ...out[i] })), next];
    },
    [Tensor.scalar(0, "int32"), carried, init],
  );
  lifted.publish([variables]);
  return last;
}
