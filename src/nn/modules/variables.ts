import type { DType } from "../../ir/dtype.js";
import { type Shape, sameNumbers } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { key as newKey } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { currentScope } from "./context.js";
import { ModuleError } from "./errors.js";
import { isBoxed, replaceBoxed, unbox } from "./metadata.js";
import { sowIn } from "./module.js";
import type { ParamInitializer } from "./partitioned.js";
import { plainValue } from "./quantize.js";
import { isTree, type Scope } from "./scope.js";

/**
 * A parameter of the running module: the one that was passed to `apply`, or while initialising a new
 * one. A value in a box, such as {@link Partitioned}, is kept in the box and returned without it.
 *
 * @param init makes the initial value from a key and the shape; without a shape it may make any tree
 *
 * @example
 * ```ts
 * const Scale = nn.module("Scale", () => (x: Tensor) => x.mul(nn.param("scale", random.initializers.ones, [1])));
 * Scale().init(random.key(0), np.array([2])); // { "params": { "scale": [1] } }
 * ```
 */
export function param(name: string, init: ParamInitializer, shape: Shape, dtype?: DType): Tensor;
export function param<T>(name: string, init: (key: Tensor) => T): T;
export function param(
  name: string,
  init: (key: Tensor, shape: Shape, dtype?: DType) => unknown,
  shape?: Shape,
  dtype?: DType,
): unknown {
  const scope = currentScope("nn.param");
  const make = (key: Tensor) => init(key, shape ?? [], dtype);
  scope.reserve(name, "params", "nn.param");
  if (scope.has("params", name)) {
    const value = plainValue(scope.get("params", name));
    const advice = "the variables were made with another configuration or other input sizes";
    checkShapes(scope, name, value, shape ? [shape] : expectedShapes(make), advice);
    return value;
  }
  if (!scope.isMutable("params")) throw notFound(scope, "params", name);
  const value = make(scope.makeRng("params"));
  if (shape)
    checkShapes(scope, name, unbox(value), [shape], "its initialiser must keep to the shape it is given");
  scope.put("params", name, value);
  return unbox(value);
}

/** Throws unless a parameter has the given shapes. */
function checkShapes(
  scope: Scope,
  name: string,
  value: unknown,
  wanted: readonly Shape[],
  advice: string,
): void {
  const given = tree.flattenWithPath(value);
  const wrong = given.flatMap(({ path, leaf }, i) => {
    const found = leaf instanceof Tensor ? leaf.shape : [];
    const want = wanted[i] ?? [];
    if (sameNumbers(found, want)) return [];
    return [`${path && `at "${path}" `}has shape [${found}] but the module needs [${want}]`];
  });
  if (given.length !== wanted.length) {
    wrong.push(`has ${given.length} leaves but the module needs ${wanted.length}`);
  }
  if (wrong.length === 0) return;
  throw new ModuleError(
    "param-shape",
    `[nn.param] the parameter "${name}" of ${scope} ${wrong.join("; ")}: ${advice}`,
  );
}

function expectedShapes(make: (key: Tensor) => unknown): Shape[] {
  const types: unknown = evalShape((key: Tensor) => unbox(make(key)))(newKey(0));
  return tree
    .leaves(types, (node) => isTree(node) && Array.isArray(node.shape))
    .map((type) => (isTree(type) && Array.isArray(type.shape) ? type.shape : []));
}

function notFound(scope: Scope, collection: string, name: string): ModuleError {
  if (scope.isCollectionEmpty(collection)) {
    return new ModuleError(
      "collection-not-found",
      `there is no collection "${collection}" among the variables, which ${scope} needs for "${name}": pass the variables that init made${
        collection === "params" ? "" : `, or make it mutable with module.with({ mutable: ["${collection}"] })`
      }`,
    );
  }
  const siblings = Object.keys(scope.collection(collection)).map((key) => `"${key}"`);
  const what = collection === "params" ? "parameter" : `variable of the collection "${collection}"`;
  return new ModuleError(
    collection === "params" ? "param-not-found" : "variable-not-found",
    `the ${what} "${name}" of ${scope} is missing; there are ${siblings.join(", ") || "none"}: the variables were made by another module, or with other names`,
  );
}

/** A variable of a module, which changes when `value` is set. */
export interface Variable<T> {
  /** The value without its box; a new value is put into the box of the old one. */
  value: T;
  /** Whether its collection may change. */
  readonly isMutable: boolean;
}

/**
 * A variable in a collection other than `params`, such as a cache or running statistics.
 *
 * @param init makes the initial value; without it the variable must already exist
 *
 * @example
 * ```ts
 * const Counter = nn.module("Counter", () => () => {
 *   const count = nn.variable("state", "count", () => np.array(0));
 *   if (!nn.isInitializing()) count.value = count.value.add(1);
 *   return count.value;
 * });
 * Counter().with({ mutable: ["state"] }).apply({ state: { count: np.array(4) } }); // [5, { "state": { "count": 5 } }]
 * ```
 */
export function variable<T>(collection: string, name: string, init?: () => T): Variable<T> {
  const scope = currentScope("nn.variable");
  scope.reserve(name, collection, "nn.variable");
  if (!scope.has(collection, name)) {
    if (!init || !scope.isMutable(collection)) throw notFound(scope, collection, name);
    scope.put(collection, name, init());
  }
  return {
    get value() {
      return unbox<T>(scope.get(collection, name));
    },
    set value(value: T) {
      const old = scope.get(collection, name);
      const hasBoxes = tree.leaves(old, isBoxed).some(isBoxed);
      scope.put(collection, name, hasBoxes ? replaceBoxed(old, value) : value);
    },
    get isMutable() {
      return scope.isMutable(collection);
    },
  };
}

/**
 * Whether the running module has a variable.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => () => nn.hasVariable("state", "count"));
 * Layer().apply({ state: { count: np.array(2) } }); // true
 * ```
 */
export function hasVariable(collection: string, name: string): boolean {
  return currentScope("nn.hasVariable").has(collection, name);
}

/**
 * A variable of the running module as it is stored, or `undefined`.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => () => nn.getVariable("state", "count"));
 * Layer().apply({ state: { count: np.array(2) } }); // 2
 * ```
 */
export function getVariable(collection: string, name: string): unknown {
  return currentScope("nn.getVariable").get(collection, name);
}

/**
 * Sets a variable of the running module.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => () => nn.putVariable("state", "count", np.array(3)));
 * const [, changed] = Layer().with({ mutable: ["state"] }).apply({});
 * changed; // { "state": { "count": 3 } }
 * ```
 */
export function putVariable(collection: string, name: string, value: unknown): void {
  currentScope("nn.putVariable").put(collection, name, value);
}

/**
 * Stores an intermediate value for inspection: appends it to a list in a collection, usually
 * `intermediates`. Does nothing, and returns false, when the collection is not mutable.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => (x: Tensor) => (nn.sow("intermediates", "x", x), x));
 * const [, changed] = Layer().with({ mutable: ["intermediates"] }).apply({}, np.array([1]));
 * changed; // { "intermediates": { "x": [[1]] } }
 * ```
 */
export function sow(collection: string, name: string, value: unknown): boolean {
  return sowIn(currentScope("nn.sow"), collection, name, value);
}

/**
 * Makes the gradient of a value inside a module available: adds a variable of zeros to it, so that the gradient with
 * respect to that variable is the one with respect to the value. Does nothing if the collection is not among the
 * variables.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => (x: Tensor) => np.sum(np.square(nn.perturb("hidden", x.mul(2)))));
 * const [layer, x] = [Layer(), np.array([3])];
 * const { perturbations } = layer.init(random.key(0), x);
 * grad((p: unknown) => layer.apply({ perturbations: p }, x))(perturbations); // { "hidden": [12] }
 * ```
 */
export function perturb<T>(name: string, value: T, collection = "perturbations"): T {
  const scope = currentScope("nn.perturb");
  if (scope.isMutable(collection) && !scope.has(collection, name)) {
    scope.reserve(name, collection, "nn.perturb");
    scope.put(
      collection,
      name,
      tree.map((x: Tensor) => np.zerosLike(x), value),
    );
  }
  if (scope.isCollectionEmpty(collection)) return value;
  if (!scope.has(collection, name)) throw notFound(scope, collection, name);
  return tree.map(
    (x: Tensor, ...added: Tensor[]) => added.reduce(ops.add, x),
    value,
    scope.get(collection, name),
  );
}

/**
 * A new random key of the running module. It depends on the key given to `init` or `apply`, on the
 * module's path and on how many keys were made there before; the keys of `params` stand in for names that were
 * not given.
 *
 * @example
 * ```ts
 * const Noise = nn.module("Noise", () => () => random.normal(nn.makeRng("noise"), [2]).shape);
 * Noise().with({ rngs: { noise: random.key(0) } }).apply({}); // [2]
 * ```
 */
export function makeRng(name = "params"): Tensor {
  return currentScope("nn.makeRng").makeRng(name);
}

/**
 * Whether keys of that name were given.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => () => nn.hasRng("dropout"));
 * Layer().apply({}); // false
 * ```
 */
export function hasRng(name: string): boolean {
  return currentScope("nn.hasRng").rngs.has(name);
}

/**
 * Replaces the keys that this call of the running module, and the modules it creates from now on, draw from:
 * for example to give each device of a mesh axis keys of its own.
 *
 * @example
 * ```ts
 * const Noise = nn.module("Noise", () => (place: number) => {
 *   nn.mapRngs((key) => random.foldIn(key, place));
 *   return random.normal(nn.makeRng("noise"), []);
 * });
 * const noise = Noise().with({ rngs: { noise: random.key(0) } });
 * np.equal(noise.apply({}, 0), noise.apply({}, 1)); // false
 * ```
 */
export function mapRngs(fn: (key: Tensor, name: string) => Tensor): void {
  currentScope("nn.mapRngs").replaceKeys(fn);
}

/**
 * Whether `init` runs the module, not `apply`.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => () => nn.isInitializing());
 * Layer().apply({}); // false
 * ```
 */
export function isInitializing(): boolean {
  return currentScope("nn.isInitializing").isInitializing;
}

/**
 * Whether variables of a collection may be set.
 *
 * @example
 * ```ts
 * const Layer = nn.module("Layer", () => () => nn.isMutableCollection("state"));
 * Layer().apply({}); // false
 * ```
 */
export function isMutableCollection(collection: string): boolean {
  return currentScope("nn.isMutableCollection").isMutable(collection);
}
