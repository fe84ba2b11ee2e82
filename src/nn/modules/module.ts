import { Ambient } from "../../ir/ambient.js";
import { need, needIfGiven } from "../../ir/arguments.js";
import {
  type Fields,
  type OptionsOf,
  type OptionsOfFields,
  optional,
  type Schema,
  schema,
  type Values,
} from "../../ir/schema.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { adoptedScope, currentScope, inModuleScope, resolveScope, scopeOrNone } from "./context.js";
import { ModuleError } from "./errors.js";
import { type CollectionFilter, DenyList, unionFilters } from "./filter.js";
import { intercepted } from "./intercept.js";
import { type Rngs, toSequences } from "./rngs.js";
import { type CaptureFilter, isTree, Scope, type Variables } from "./scope.js";

/** Any function of tensors. */
export type AnyFunction = (...args: never[]) => unknown;

/** The schema of {@link ModuleOptions}. */
export const moduleOptions = schema({
  /** The name among the variables of the surrounding module; by default `Dense_0`, `Dense_1`, … */
  name: optional("string"),
  /**
   * `null` leaves a module that is created inside another one without a place, so that the module that gets it
   * in its configuration adopts it.
   */
  parent: optional("null"),
});

/** What every configuration can have besides the module's own fields. */
export interface ModuleOptions extends OptionsOf<typeof moduleOptions> {}

/** How to call a module: see `with` of {@link ModuleInstance}. */
export interface CallOptions {
  /** The keys that `nn.makeRng` draws from, for `apply`. */
  readonly rngs?: Rngs;
  /** The collections that may change; `apply` then returns `[result, variables]` with their new values. */
  readonly mutable?: CollectionFilter;
  /** The method to call instead of the module itself. */
  readonly method?: string;
  /** Whether results of modules are kept in the collection `intermediates`: of all calls, or of the chosen ones. */
  readonly captureIntermediates?: boolean | CaptureFilter;
}

/** The arguments of a function. */
export type ArgsOf<F> = F extends (...args: infer A extends readonly unknown[]) => unknown ? A : never;
/** The result of a function. */
export type ResultOf<F> = F extends (...args: never[]) => infer R ? R : never;

/** What `apply` returns: with mutable collections also their new values. */
export type ApplyResult<R, O extends CallOptions> = O extends { readonly mutable: false }
  ? R
  : O extends { readonly mutable: CollectionFilter } | { readonly captureIntermediates: true | CaptureFilter }
    ? [R, Variables]
    : R;

type MethodOf<F, M, O extends CallOptions> = O extends { readonly method: infer K }
  ? K extends keyof M
    ? M[K]
    : never
  : F;

/** A module with the options of its next calls. */
export interface Configured<F, O extends CallOptions> {
  /** The variables that the module makes when it is called with these arguments. */
  init(rngs: Rngs, ...args: ArgsOf<F>): Variables;
  /** Like {@link init}; also returns the result. */
  initWithOutput(rngs: Rngs, ...args: ArgsOf<F>): [ResultOf<F>, Variables];
  /** Calls the module with the given variables. */
  apply(variables: Variables, ...args: ArgsOf<F>): ApplyResult<ResultOf<F>, O>;
}

/**
 * A module with its configuration. Inside another module it is called like a function; outside of modules its
 * variables are made with `init` and passed to `apply`.
 */
export type ModuleInstance<F extends AnyFunction = AnyFunction, M = Record<never, AnyFunction>> = F &
  M &
  Configured<F, Record<never, never>> & {
    /**
     * The same module with options for its calls:
     *
     * ```ts
     * model.with({ rngs: { dropout: key } }).apply(variables, x)
     * const [y, updates] = model.with({ mutable: ["batch_stats"] }).apply(variables, x)
     * ```
     */
    with<const O extends CallOptions & { readonly method?: keyof M & string }>(
      options: O,
    ): Configured<MethodOf<F, M, O>, O>;
  };

/** The arguments of a module class: a configuration, which may be left out when every field of it may. */
type ConfigArgs<C extends object> =
  Partial<C> extends C ? [config?: C & ModuleOptions] : [config: C & ModuleOptions];

/** Makes modules from configurations. */
export interface ModuleClass<
  C extends object = object,
  F extends AnyFunction = AnyFunction,
  M = Record<never, AnyFunction>,
> {
  (...config: ConfigArgs<C>): ModuleInstance<F, M>;
  /** The name that automatic names start with. */
  readonly moduleName: string;
}

/** A function of the configuration that returns a method of the module. */
export type Method = (config: never) => AnyFunction;

/** What a module class consists of; the main method is called `__call__`. */
export interface Definition {
  readonly name: string;
  readonly methods: Readonly<Record<string, Method>>;
  /** What instances have besides methods: functions of the configuration alone, which need no place to be called. */
  readonly members?: Readonly<Record<string, (config: never) => unknown>>;
  /** The names that modules in fields of the configuration get, where they are not those of the fields. */
  readonly fieldNames?: Readonly<Record<string, string>>;
  /** The options of the configuration; without a schema, any object is one. */
  readonly options?: Schema | undefined;
}

/** The name of the main method, which is also that of its captured results. */
export const mainMethod = "__call__";

interface InstanceState {
  readonly definition: Definition;
  readonly config: object;
  /** Where the instance was created, or `undefined` outside of modules. */
  readonly scope: Scope | undefined;
}

const definitions = new WeakMap<object, Definition>();
const instances = new WeakMap<object, InstanceState>();

/**
 * Defines a module: a function of its configuration that returns a function of tensors. Inside, `nn.param`
 * makes parameters, and other modules are created and called; all of them get names in the module's place of
 * the variables. Names and random keys follow Flax linen, so that the same seed gives the same parameters.
 *
 * ```ts
 * const Mlp = nn.module("MLP", ({ hidden, out }: { hidden: number; out: number }) => (x: Tensor) => {
 *   const h = nn.gelu(nn.Dense({ features: hidden })(x));
 *   return nn.Dense({ features: out, name: "head" })(h);
 * });
 * const mlp = Mlp({ hidden: 16, out: 4 });
 * const variables = mlp.init(random.key(0), x);
 * const y = mlp.apply(variables, x);
 * ```
 *
 * With a schema, the configuration is checked and defaults are filled in:
 *
 * ```ts
 * const options = nn.schema({ hidden: nn.required("integer"), useBias: true });
 * const Mlp = nn.module({ name: "MLP", options }, ({ hidden, useBias }) => (x: Tensor) => …);
 * ```
 *
 * @param name the module's name, from which automatic names are made: `MLP_0`; or the name and the options
 * @param define the function of the configuration; it runs for every call
 * @param methods further functions of the configuration, which become methods of the module that share its
 * parameters: `{ attend: (config) => (query) => … }`
 *
 * @example
 * ```ts
 * const Double = nn.module("Double", () => (x: Tensor): Tensor => {
 *   const scale = nn.param("scale", random.initializers.ones, [1]);
 *   return x.mul(scale).mul(2);
 * });
 * const double = Double();
 * double.apply(double.init(random.key(0), np.ones([1])), np.array([3])); // [6]
 * ```
 */
export function module<
  S extends Fields,
  F extends AnyFunction,
  M extends Readonly<Record<string, (config: Values<S>) => AnyFunction>> = Record<never, never>,
>(
  name: { readonly name: string; readonly options: Schema<S> },
  define: (config: Values<S>) => F,
  methods?: M,
): ModuleClass<OptionsOfFields<S>, F, { readonly [K in keyof M]: ReturnType<M[K]> }>;
export function module<
  C extends object,
  F extends AnyFunction,
  M extends Readonly<Record<string, (config: C) => AnyFunction>> = Record<never, never>,
>(
  name: string,
  define: (config: C) => F,
  methods?: M,
): ModuleClass<C, F, { readonly [K in keyof M]: ReturnType<M[K]> }>;
export function module(
  name: string | { readonly name: string; readonly options: Schema },
  define: Method,
  methods?: Readonly<Record<string, Method>>,
): { readonly moduleName: string } {
  const head = typeof name === "string" ? { name } : name;
  need("object", head, "name", "nn.module");
  need("string", head.name, "name", "nn.module");
  need("function", define, "define", "nn.module");
  for (const [key, method] of Object.entries(methods ?? {})) {
    need("function", method, `the method ${key}`, "nn.module");
    if (key !== "length" && key !== "name") continue;
    throw new ModuleError(
      "argument",
      `[nn.module] a method cannot be called ${key}, which all functions have`,
    );
  }
  return moduleClass({ ...head, methods: { ...methods, [mainMethod]: define } });
}

/**
 * Makes the class of a definition. The caller states its type, which TypeScript cannot find: the methods of a
 * definition are known by name only, and a class with type parameters of its own, such as `Sequential`, is no
 * {@link ModuleClass}.
 */
export function moduleClass<K extends { readonly moduleName: string }>(definition: Definition): K {
  const { name, options } = definition;
  const caller = `nn.${name}`;
  const known = options && schema({ ...options.fields, ...moduleOptions.fields });
  const create = (config: object & ModuleOptions = {}) => {
    need("object", config, "the configuration", caller);
    needIfGiven("string", config.name, "name", caller);
    return newInstance(definition, known ? known.read(config, caller) : config);
  };
  const made: { readonly moduleName: string } = Object.assign(create, { moduleName: definition.name });
  definitions.set(made, definition);
  return made as K;
}

/** The definition of a module class, or `undefined` for anything else. */
export function definitionOf(value: unknown): Definition | undefined {
  return typeof value === "function" ? definitions.get(value) : undefined;
}

/**
 * Whether a value is a module with its configuration.
 *
 * @example
 * ```ts
 * nn.isModule(nn.Dense({ features: 2 })); // true
 * ```
 */
export function isModule(value: unknown): value is ModuleInstance {
  return typeof value === "function" && instances.has(value);
}

/** The name of an instance's class, which messages call it by. */
export function nameOfModule(instance: object): string {
  return stateOf(instance).definition.name;
}

/** The scope that an instance has in the running code, or `undefined` when it has no place. */
export function scopeOf(instance: object): Scope | undefined {
  const scope = instances.get(instance)?.scope ?? adoptedScope(instance);
  return scope && resolveScope(scope);
}

function newInstance(definition: Definition, config: object & ModuleOptions): ModuleInstance {
  const parent = config.parent === null ? undefined : scopeOrNone();
  const scope = parent && placeIn(parent, config.name ?? parent.nextName(definition.name), definition.name);
  const call =
    (method: string) =>
    (...args: readonly unknown[]) =>
      callInPlace(instance, method, args);
  const methods = Object.keys(definition.methods).filter((name) => name !== mainMethod);
  const instance: ModuleInstance = Object.assign(
    call(mainMethod),
    Object.fromEntries(methods.map((name) => [name, call(name)])),
    membersOf(definition, config),
    configured(() => instance, {}),
    { with: <O extends CallOptions>(options: O) => configured(() => instance, options) },
  );
  instances.set(instance, { definition, config, scope });
  return instance;
}

function membersOf({ members = {} }: Definition, config: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(members).map(([name, make]) => [name, (make as (config: object) => unknown)(config)]),
  );
}

function placeIn(parent: Scope, name: string, moduleName: string): Scope {
  parent.reserve(name, null, moduleName);
  return parent.child(name);
}

function stateOf(instance: object): InstanceState {
  const state = isModule(instance) ? instances.get(instance) : undefined;
  if (!state) throw new ModuleError("argument", "expected a module");
  return state;
}

/** Calls a method of an instance inside another module. */
function callInPlace(instance: ModuleInstance, method: string, args: readonly unknown[]): unknown {
  const scope = scopeOf(instance);
  const { definition } = stateOf(instance);
  if (scope) return runAt(instance, scope.rewound(), method, args, false);
  const surrounding = scopeOrNone();
  throw new ModuleError(
    "unbound-module",
    surrounding
      ? `[${definition.name}] was created outside of ${surrounding}, which calls it: create it inside, or pass it in the module's configuration`
      : `[${definition.name}] is called outside of a module: make variables with init(key, …) and call apply(variables, …)`,
  );
}

/** One call of a module, for observers; it has results once the call has ended. */
export interface ModuleCall {
  readonly path: readonly string[];
  readonly moduleName: string;
  readonly method: string;
  readonly args: readonly unknown[];
  result: unknown;
}

const observed = new Ambient<ModuleCall[] | undefined>({
  name: "list of module calls",
  initial: undefined,
  setBy: "nn.tabulate",
  dependence: { unkeyed: "observing calls does not change what is traced" },
});

/** Runs `fn` and lists the calls of modules in the order in which they begin. */
export function observeCalls<T>(fn: () => T): [result: T, calls: readonly ModuleCall[]] {
  const calls: ModuleCall[] = [];
  return [observed.within(calls, fn), calls];
}

/** Runs a method of an instance in a scope. */
function runAt(
  instance: ModuleInstance,
  scope: Scope,
  method: string,
  args: readonly unknown[],
  isTop: boolean,
): unknown {
  const { definition, config } = stateOf(instance);
  const run = definition.methods[method] as ((config: object) => (...args: unknown[]) => unknown) | undefined;
  if (!run) {
    const known = Object.keys(definition.methods).map((name) => `"${name}"`);
    throw new ModuleError("argument", `[${definition.name}] has no method "${method}": it has ${known}`);
  }
  const adopted = adopt(config, scope, definition);
  const call = { path: scope.path, moduleName: definition.name, method, args, result: undefined as unknown };
  observed.get()?.push(call);
  return inModuleScope({ scope, adopted, isTop }, () => {
    const original = (...given: readonly unknown[]) => run(config)(...given);
    const { path, moduleName } = call;
    const result = intercepted({ module: instance, moduleName, path, method, original })(...args);
    call.result = result;
    if (result instanceof Promise) {
      result.catch(() => undefined);
      throw new ModuleError(
        "argument",
        `[${definition.name}] is async: a module must return its results at once`,
      );
    }
    if (scope.captures(definition.name, method)) sowIn(scope, "intermediates", method, result);
    return result;
  });
}

/** Appends a value to the list of a mutable collection; does nothing when it cannot change. */
export function sowIn(scope: Scope, collection: string, name: string, value: unknown): boolean {
  if (!scope.isMutable(collection)) return false;
  const known = scope.get(collection, name);
  scope.put(collection, name, [...(Array.isArray(known) ? known : []), value]);
  return true;
}

/** Adopts the modules of a configuration that have no scope as submodules: `layers_0`, … */
function adopt(config: object, scope: Scope, { name, fieldNames = {} }: Definition): Map<object, Scope> {
  const adopted = new Map<object, Scope>();
  for (const { name: field, instance } of modulesIn(config)) {
    if (adopted.has(instance) || scopeOf(instance)) continue;
    adopted.set(instance, placeIn(scope, fieldNames[field] ?? field, name));
  }
  return adopted;
}

/** The modules in the fields of a configuration, with the names of the fields. */
export function modulesIn(config: unknown, prefix = ""): { name: string; instance: ModuleInstance }[] {
  if (isModule(config)) return [{ name: prefix, instance: config }];
  if (!Array.isArray(config) && !isTree(config)) return [];
  return Object.entries(config).flatMap(([key, value]) =>
    modulesIn(value, prefix === "" ? key : `${prefix}_${key}`),
  );
}

function configured<F, O extends CallOptions>(instance: () => ModuleInstance, options: O): Configured<F, O> {
  const { rngs, mutable = false, method = mainMethod, captureIntermediates = false } = options;
  const keepsAll = captureIntermediates === true;
  const capture: CaptureFilter | undefined = keepsAll
    ? (_module, called) => called === mainMethod
    : captureIntermediates || undefined;
  const initWithOutput = (keys: Rngs, ...args: readonly unknown[]): [unknown, Variables] => {
    const changing = options.mutable ?? new DenyList("intermediates");
    const top = Scope.top({
      variables: {},
      rngs: toSequences(keys, "init"),
      mutable: capture ? unionFilters(changing, "intermediates") : changing,
      initializing: true,
      capture,
    });
    const result = runTop(instance(), top, method, args);
    return [result, finish(top, instance())];
  };
  const apply = (variables: Variables, ...args: readonly unknown[]): unknown => {
    checkVariables(variables, instance());
    const changing = capture ? unionFilters(mutable, "intermediates") : mutable;
    const top = Scope.top({
      variables,
      rngs: toSequences(rngs, "apply"),
      mutable: changing,
      initializing: false,
      capture,
    });
    const result = runTop(instance(), top, method, args);
    return changing === false ? result : [result, finish(top, instance())];
  };
  const init = (keys: Rngs, ...args: readonly unknown[]) => initWithOutput(keys, ...args)[1];
  return { init, initWithOutput, apply } as Configured<F, O>;
}

function runTop(instance: ModuleInstance, top: Scope, method: string, args: readonly unknown[]): unknown {
  try {
    return runAt(instance, top, method, args, true);
  } finally {
    top.close();
  }
}

/** The variables at the end of a call; none may come from a trace that has ended. */
function finish(top: Scope, instance: object): Variables {
  const variables = top.mutableCollections();
  for (const { path, leaf } of tree.flattenWithPath(variables)) {
    if (leaf instanceof Tensor && leaf.node.kind === "traced" && !leaf.node.builder.open) {
      throw new ModuleError(
        "leaked-variable",
        `[${stateOf(instance).definition.name}] the variable "${path}" was set inside a transformed function (scan, vmap, remat, grad, …), where it has no value for the module outside: use nn.scan, nn.vmap or nn.remat there`,
      );
    }
  }
  return variables;
}

function checkVariables(variables: unknown, instance: object): void {
  const { name } = stateOf(instance).definition;
  const isValid = isTree(variables) && Object.values(variables).every(isTree);
  if (!isValid) {
    throw new ModuleError(
      "variables",
      `[${name}.apply] the first argument must be variables by collection, such as { params: { … } } from init`,
    );
  }
  if (isTree(variables.params) && isTree(variables.params.params)) {
    throw new ModuleError(
      "variables",
      `[${name}.apply] the variables hold params within params: pass what init returned, or { params }`,
    );
  }
}

/**
 * The names from the top of the module tree to the running module.
 *
 * @example
 * ```ts
 * const Inner = nn.module("Inner", () => () => nn.modulePath());
 * const Outer = nn.module("Outer", () => () => Inner()());
 * Outer().apply({}); // ["Inner_0"]
 * ```
 */
export function modulePath(): readonly string[] {
  return currentScope("nn.modulePath").path;
}
