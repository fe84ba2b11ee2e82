import { type Fields, type OptionsOf, optional, type Schema, schema, type Values } from "../../ir/schema.js";
import type { Tensor } from "../../trace/tensor.js";
import { currentScope, inModuleScope, scopeOrNone } from "../modules/context.js";
import { ModuleError } from "../modules/errors.js";
import {
  type CollectionFilter,
  inFilter,
  intersectFilters,
  isEmptyFilter,
  unionFilters,
} from "../modules/filter.js";
import {
  type AnyFunction,
  type Definition,
  definitionOf,
  isModule,
  type ModuleClass,
  mainMethod,
  moduleClass,
  modulesIn,
  scopeOf,
} from "../modules/module.js";
import type { RngSequences } from "../modules/rngs.js";
import type { Scope, Variables } from "../modules/scope.js";

/** The schema of {@link MethodsOption}. */
export const methodsOption = schema({
  /** The methods to transform; only the main one by default. */
  methods: optional("strings"),
});

/** Which methods of a module class a lifted transform applies to. */
export interface MethodsOption extends OptionsOf<typeof methodsOption> {}

/** What tells functions from module classes, which are functions of a configuration. */
export interface NoModuleClass {
  readonly moduleName?: never;
}

/** A function of arguments, with the scopes that it uses. */
export type LiftedCall = (
  scopes: readonly Scope[],
  fn: (...args: readonly unknown[]) => unknown,
  args: readonly unknown[],
) => unknown;

/** A transformation of modules, which makes a class from a class and a function from a function. */
export interface ModuleTransform<O> {
  <C extends object, F extends AnyFunction, M>(
    target: ModuleClass<C, F, M>,
    options?: O,
  ): ModuleClass<C, F, M>;
  <A extends readonly unknown[], R>(target: (...args: A) => R, options?: O): (...args: A) => R;
}

/** Makes a transformation from how it calls a module. @param name what the names of its classes begin with */
export function moduleTransform<F extends typeof methodsOption.fields & Fields>(
  name: string,
  caller: string,
  options: Schema<F>,
  callWith: (given: Values<F>) => LiftedCall,
): ModuleTransform<OptionsOf<Schema<F>>> {
  const transform = (target: unknown, given?: unknown): unknown => {
    const values = options.read(given, caller);
    const { methods }: MethodsOption = values;
    return liftTarget(target, { name, caller, call: callWith(values), methods });
  };
  return transform as ModuleTransform<OptionsOf<Schema<F>>>;
}

/** The module class, or function, that calls `transform` around the original. */
export function liftTarget(
  target: unknown,
  transform: { readonly name: string; readonly caller: string; readonly call: LiftedCall } & MethodsOption,
): unknown {
  const definition = definitionOf(target);
  if (definition) return liftClass(definition, transform);
  if (typeof target !== "function") {
    throw new ModuleError(
      "argument",
      `[${transform.caller}] expects a module class or a function, got ${typeof target}`,
    );
  }
  const fn = target as (...args: readonly unknown[]) => unknown;
  return (...args: readonly unknown[]) =>
    transform.call(scopesOf([target, ...args], transform.caller), fn, args);
}

/** The scopes of the modules among some values, or else that of the running module. */
export function scopesOf(values: readonly unknown[], caller: string): Scope[] {
  const scopes = values.filter(isModule).flatMap((instance) => scopeOf(instance) ?? []);
  return outermost(scopes.length > 0 ? scopes : [currentScope(caller)]);
}

type LooseMethod = (config: object) => (...args: readonly unknown[]) => unknown;

function liftClass(
  definition: Definition,
  { name, call, methods = [mainMethod] }: { name: string; call: LiftedCall } & MethodsOption,
): ModuleClass<object, AnyFunction, unknown> {
  const lift =
    (method: LooseMethod): LooseMethod =>
    (config) =>
    (...args) => {
      const given = modulesIn(config).flatMap(({ instance }) => scopeOf(instance) ?? []);
      const scopes = outermost([currentScope(name), ...given]);
      return call(scopes, (...inner) => method(config)(...inner), args);
    };
  const lifted = Object.entries(definition.methods).map(([key, method]) => [
    key,
    methods.includes(key) ? lift(method as LooseMethod) : method,
  ]);
  return moduleClass({
    ...definition,
    name: `${name}${definition.name}`,
    methods: Object.fromEntries(lifted),
  });
}

/** The scopes that are not below another one of the list. */
function outermost(scopes: readonly Scope[]): Scope[] {
  return scopes.filter(
    (scope, i) =>
      !scopes.some((other, j) => {
        const steps = i === j ? undefined : scope.stepsFrom(other);
        return steps !== undefined && (steps.length > 0 || j < i);
      }),
  );
}

/** The variables of each lifted scope that one filter chooses. */
export type VariableGroup = readonly Variables[];
/** The keys of each lifted scope that one filter chooses. */
export type KeyGroup = readonly Readonly<Record<string, Tensor>>[];

/** How variables and keys enter and leave a lifted call. */
export interface LiftFilters {
  /** Variables that go in, a group for each; every collection goes with the first that chooses it. */
  readonly ins: readonly CollectionFilter[];
  /** Variables that come out. */
  readonly outs: readonly CollectionFilter[];
  readonly rngs: readonly CollectionFilter[];
  /** Whether the first scope draws new keys for the call, from which names and numbers inside start afresh. */
  readonly forksKeys?: boolean;
}

/** The parts of a lifted call: what goes in, how to run it, and how to store what comes out. */
export interface Lifted {
  readonly variables: readonly VariableGroup[];
  readonly keys: readonly KeyGroup[];
  /** Runs `fn` with other variables and keys; gives its result and the groups of variables that come out. */
  run<T>(
    variables: readonly VariableGroup[],
    keys: readonly KeyGroup[],
    fn: () => T,
    mutable?: CollectionFilter,
  ): [result: T, outs: VariableGroup[]];
  /** Whether anything may change inside. */
  readonly mayChange: boolean;
  /** Stores the groups of variables that came out in the scopes outside. */
  publish(outs: readonly VariableGroup[]): void;
}

/** Prepares to run code of the given scopes with variables and keys that are passed explicitly. */
export function liftScopes(scopes: readonly Scope[], filters: LiftFilters): Lifted {
  const names = scopes.map((scope) => scope.exportNames());
  const { forksKeys = false } = filters;
  const keyOf = (scope: Scope, name: string, key: Tensor) =>
    forksKeys && scope === scopes[0] ? scope.makeRng(name) : key;
  const mayChange = filters.outs.reduce(unionFilters, false);
  return {
    variables: group(
      scopes.map((scope) => scope.collections()),
      filters.ins,
    ),
    keys: group(
      scopes.map((scope) =>
        Object.fromEntries([...scope.rngs].map(([name, { key }]) => [name, keyOf(scope, name, key)])),
      ),
      filters.rngs,
    ),
    mayChange: scopes.some(({ mutable }) => !isEmptyFilter(intersectFilters(mutable, mayChange))),
    run(variables, keys, fn, mutable = true) {
      const inner = scopes.map((scope, i) => {
        const lifted = scope.lifted({
          variables: join(variables, i),
          rngs: withKeys(scope.rngs, join(keys, i), forksKeys),
          mutable: intersectFilters(intersectFilters(scope.mutable, mayChange), mutable),
        });
        const known = names[i];
        if (known) lifted.importNames(known);
        return lifted;
      });
      const pairs = scopes.map((outer, i) => [outer, inner[i] ?? outer] as const);
      const first = inner[0];
      if (!first) throw new ModuleError("lift", "a lifted call has no scope");
      const result = inModuleScope({ scope: placeOfCode(pairs) ?? first, lifted: pairs }, fn);
      const outs = group(
        inner.map((scope) => scope.mutableCollections()),
        filters.outs,
      );
      for (const [outer, scope] of pairs) {
        outer.importNames(scope.exportNames());
        scope.close();
      }
      return [result, outs];
    },
    publish(outs) {
      scopes.forEach((scope, i) => {
        for (const [collection, values] of Object.entries(join(outs, i))) {
          if (!scope.isMutable(collection)) continue;
          for (const [name, value] of Object.entries(values)) scope.put(collection, name, value);
        }
      });
    },
  };
}

/** Where new modules belong inside: in the lifted scope of the running module, if that one is lifted. */
function placeOfCode(pairs: readonly (readonly [Scope, Scope])[]): Scope | undefined {
  const running = scopeOrNone();
  return pairs.find(([outer]) => running?.stepsFrom(outer)?.length === 0)?.[1];
}

function group<T>(
  perScope: readonly Readonly<Record<string, T>>[],
  filters: readonly CollectionFilter[],
): Record<string, T>[][] {
  return filters.map((_, i) =>
    perScope.map((values) =>
      Object.fromEntries(
        Object.entries(values).filter(
          ([name]) => filters.findIndex((filter) => inFilter(filter, name)) === i,
        ),
      ),
    ),
  );
}

/** Everything that the groups hold for one scope. */
function join<T>(
  groups: readonly (readonly Readonly<Record<string, T>>[])[],
  scope: number,
): Record<string, T> {
  return Object.assign({}, ...groups.map((values) => values[scope] ?? {}));
}

function withKeys(
  sequences: RngSequences,
  keys: Readonly<Record<string, Tensor>>,
  afresh: boolean,
): RngSequences {
  return new Map(
    [...sequences].flatMap(([name, { suffix }]) => {
      const key = keys[name];
      return key ? [[name, { key, suffix: afresh ? [] : suffix }]] : [];
    }),
  );
}
