import { InternalError, ValueError } from "./errors.js";

/**
 * What surrounds code without being passed to it: the mesh of `withMesh`, the rules of `nn.logicalAxisRules`, the axes
 * that a shard map binds. All of it is declared here, so that caches of traces learn in one place what a trace depends
 * on ({@link traceKey}) and cannot miss a value that is added later.
 *
 * A value holds for the synchronous extent of a function: the previous one is restored when the function returns or
 * throws, and other tasks never see it. A function that returns a promise is refused, because what follows its first
 * `await` would run without the value.
 */

/** How what is traced depends on a value. */
export type Dependence<T> =
  /**
   * A trace is cached for one value only; the key is equal only for values under which tracing gives the same program.
   */
  | { readonly key: (value: T) => string }
  /** No trace depends on it; the string says why. */
  | { readonly unkeyed: string }
  /** The value belongs to a single call and never recurs: a trace that reads one from outside is not cached at all. */
  | { readonly once: string };

/** The declaration of an ambient value. */
export interface Declaration<T> {
  /** What it is, in messages and keys; unique among the ambient values. */
  readonly name: string;
  readonly initial: T;
  /** The function that sets it, for messages. */
  readonly setBy: string;
  readonly dependence: Dependence<T>;
}

/** How many nested traces {@link readsOnce} is recording, and the outermost that must not be cached. */
let level = 0;
let outermostRead = Number.POSITIVE_INFINITY;

/** The combined key of all values, until one of them changes. */
let joined: string | undefined;

/** An ambient value: one that surrounds code. */
export class Ambient<T> {
  private value: T;
  private setAt = 0;
  private readonly isOnce: boolean;
  /** The value whose key was computed last, and that key: the same few values recur. */
  private keyed: { readonly value: T; readonly text: string } | undefined;

  constructor(readonly declaration: Declaration<T>) {
    const { name, initial, dependence } = declaration;
    if (declared.has(name)) throw new InternalError(`the ambient value "${name}" is declared twice`);
    this.value = initial;
    this.isOnce = "once" in dependence;
    declared.set(name, this);
  }

  /** The current value. */
  get(): T {
    if (this.isOnce && this.setAt < level && this.value !== this.declaration.initial) {
      outermostRead = Math.min(outermostRead, this.setAt + 1);
    }
    return this.value;
  }

  /** The value for callers that only add to it: reading it so does not make the current trace depend on it. */
  peek(): T {
    return this.value;
  }

  /** Runs `fn` with another value, which holds until `fn` returns or throws. */
  within<R>(value: T, fn: () => R): R {
    const { value: before, setAt } = this;
    this.change(value, level);
    try {
      const result = fn();
      if (isPromise(result)) throw this.refuse(result);
      return result;
    } finally {
      this.change(before, setAt);
    }
  }

  /** Sets the value for the whole process from now on; returns the previous one. */
  set(value: T): T {
    const before = this.value;
    this.change(value, this.setAt);
    return before;
  }

  /** @internal What this value contributes to the keys of traces; nothing when it is the initial one. */
  keyText(): string {
    const { name, initial, dependence } = this.declaration;
    const { value } = this;
    if (!("key" in dependence) || Object.is(value, initial)) return "";
    if (this.keyed === undefined || !Object.is(this.keyed.value, value)) {
      this.keyed = { value, text: `${name}=${JSON.stringify(dependence.key(value))};` };
    }
    return this.keyed.text;
  }

  private change(value: T, setAt: number): void {
    if ("key" in this.declaration.dependence) joined = undefined;
    this.value = value;
    this.setAt = setAt;
  }

  private refuse(result: PromiseLike<unknown>): ValueError {
    // The error below is the one to report; the promise may be rejected as a consequence.
    result.then(undefined, () => undefined);
    const { name, setBy } = this.declaration;
    return new ValueError(
      `[${setBy}] its function returned a promise, but the ${name} holds only until the function returns: let it return its tensors, and await them outside of ${setBy}`,
    );
  }
}

/** An ambient value of unknown type: what all of them have in common. */
export interface AnyAmbient {
  readonly declaration: { readonly name: string; readonly dependence: Dependence<never> };
  within<R>(value: never, fn: () => R): R;
  keyText(): string;
}

const declared = new Map<string, AnyAmbient>();

/** All declared values, for tests that go through them. */
export function ambientValues(): readonly AnyAmbient[] {
  return [...declared.values()];
}

/**
 * What a trace made here depends on besides the arguments of its function: every cache of traces puts it in its key.
 * The string stays the same until a value changes.
 */
export function traceKey(): string {
  if (joined === undefined) {
    joined = "";
    for (const ambient of declared.values()) joined += ambient.keyText();
  }
  return joined;
}

/**
 * Runs `fn` and says whether it read a value from outside that belongs to a single call: its result must then not be
 * cached.
 */
export function readsOnce<R>(fn: () => R): { readonly result: R; readonly readOnce: boolean } {
  const before = outermostRead;
  outermostRead = Number.POSITIVE_INFINITY;
  level++;
  try {
    const result = fn();
    return { result, readOnce: outermostRead <= level };
  } finally {
    level--;
    // A value from outside the surrounding traces has been read by them, too.
    outermostRead = Math.min(before, outermostRead <= level ? outermostRead : Number.POSITIVE_INFINITY);
  }
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
