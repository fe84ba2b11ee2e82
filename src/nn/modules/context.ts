import { Ambient } from "../../ir/ambient.js";
import { inModule } from "../../trace/source.js";
import { ModuleError } from "./errors.js";
import type { Scope } from "./scope.js";

/** The context in which the code of a module runs. */
export interface ModuleScope {
  /** Where `nn.param` and new modules belong. */
  readonly scope: Scope;
  /** Scopes of modules that were created elsewhere and passed in the configuration. */
  readonly adopted: ReadonlyMap<object, Scope>;
  /** Scopes of a lifted call, with those that replace them inside. */
  readonly lifted: readonly (readonly [outer: Scope, inner: Scope])[];
  /** Whether an `init` or `apply` starts here, so that the scopes around it are ignored. */
  readonly isTop: boolean;
}

/** The modules around the running code, outermost first. */
const scopes = new Ambient<readonly ModuleScope[]>({
  name: "module",
  initial: [],
  setBy: "a module",
  dependence: { once: "its variables and random keys are those of one init or apply" },
});

/** Runs `fn` inside a module. */
export function inModuleScope<T>(entry: Partial<ModuleScope> & Pick<ModuleScope, "scope">, fn: () => T): T {
  const inner = [...scopes.peek(), { adopted: new Map(), lifted: [], isTop: false, ...entry }];
  return scopes.within(inner, () => inModule(entry.scope.path.join("/"), fn));
}

/** The scope of the running module, or `undefined` outside of modules. */
export function scopeOrNone(): Scope | undefined {
  return scopes.get().at(-1)?.scope;
}

/** The scope of the running module. */
export function currentScope(caller: string): Scope {
  const scope = scopeOrNone();
  if (scope) return scope;
  throw new ModuleError(
    "no-scope",
    `[${caller}] works only inside a module, while module.init(…) or module.apply(…) runs it`,
  );
}

/** The scope that a running module gave to a module passed in its configuration. */
export function adoptedScope(instance: object): Scope | undefined {
  for (const entry of scopes.get().toReversed()) {
    const scope = entry.adopted.get(instance);
    if (scope) return scope;
    if (entry.isTop) return undefined;
  }
  return undefined;
}

/** The scope that stands in for the given one inside the running lifted calls. */
export function resolveScope(scope: Scope): Scope {
  let resolved = scope;
  for (const { lifted } of scopes.get()) {
    for (const [outer, inner] of lifted) {
      const steps = resolved.stepsFrom(outer);
      if (!steps) continue;
      resolved = steps.reduce((place, name) => place.child(name), inner);
      break;
    }
  }
  return resolved;
}
