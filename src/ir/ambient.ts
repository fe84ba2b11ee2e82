import { InternalError, ValueError } from "./errors.js";

/**
 * What surrounds code without being passed to it: the mesh of `withMesh`, the rules of `nn.logicalAxisRules`, the axes
 * that a shard map binds. All of it is declared here, so that whoever keeps what was traced asks one place what a trace
 * depends on ({@link traceKey}), and cannot miss a value that is added later.
 *
 * A value holds for the synchronous extent of a function: it is put back when the function returns or throws, and
 * other tasks never see it. A function that returns a promise is refused, because what follows its first `await` would
 * run without the value.
 */

/** How what is traced depends on a value. */
export type Dependence<T> =
  /** A trace is kept for one value only: a text that is equal only for values under which the same is traced. */
  | { readonly key: (value: T) => string }
  /** Nothing that is traced depends on it; says why. */
  | { readonly unkeyed: string }
  /** The value belongs to one call and never comes again: a trace that reads one from outside is not kept at all. */
  | { readonly once: string };

/** What is said of a value when it is declared. */
export interface Declaration<T> {
  /** What it is, in messages and keys; every value has a name of its own. */
  readonly name: string;
  readonly initial: T;
  /** The function that sets it, for messages. */
  readonly setBy: string;
  readonly dependence: Dependence<T>;
}

/** How many traces are being recorded inside of each other by {@link readsOnce}, and the outermost that is not kept. */
let level = 0;
let outermostRead = Number.POSITIVE_INFINITY;

/** The text of all values, until one of them changes. */
let joined: string | undefined;

/** A value that surrounds code. */
export class Ambient<T> {
  private value: T;
  private setAt = 0;
  private readonly isOnce: boolean;
  /** The value that was last made a text of, and that text: they come again and again. */
  private keyed: { readonly value: T; readonly text: string } | undefined;

  constructor(readonly declaration: Declaration<T>) {
    const { name, initial, dependence } = declaration;
    if (declared.has(name)) throw new InternalError(`the ambient value "${name}" is declared twice`);
    this.value = initial;
    this.isOnce = "once" in dependence;
    declared.set(name, this);
  }

  /** The value here and now. */
  get(): T {
    if (this.isOnce && this.setAt < level && this.value !== this.declaration.initial) {
      outermostRead = Math.min(outermostRead, this.setAt + 1);
    }
    return this.value;
  }

  /** The value for who only adds to it: what is traced here does not depend on it by that. */
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

  /** Another value from now on, for the whole process; returns the one before. */
  set(value: T): T {
    const before = this.value;
    this.change(value, this.setAt);
    return before;
  }

  /** @internal What traces under this value have in their key; nothing under the initial one. */
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
    // The error below is what went wrong; the promise may be rejected because of it.
    result.then(undefined, () => undefined);
    const { name, setBy } = this.declaration;
    return new ValueError(
      `[${setBy}] its function returned a promise, but the ${name} holds only until the function returns: let it return its tensors, and await them outside of ${setBy}`,
    );
  }
}

/** A value whose type is not known: what all of them have. */
export interface AnyAmbient {
  readonly declaration: { readonly name: string; readonly dependence: Dependence<never> };
  within<R>(value: never, fn: () => R): R;
  keyText(): string;
}

const declared = new Map<string, AnyAmbient>();

/** All values that are declared, for tests that look at each of them. */
export function ambientValues(): readonly AnyAmbient[] {
  return [...declared.values()];
}

/**
 * What a trace made here depends on besides the arguments of its function: all that keeps traces puts it in the key.
 * It is the same text as long as nothing changes.
 */
export function traceKey(): string {
  if (joined === undefined) {
    joined = "";
    for (const ambient of declared.values()) joined += ambient.keyText();
  }
  return joined;
}

/** Runs `fn`, and says whether it read a value from outside that belongs to one call: then what it made is not kept. */
export function readsOnce<R>(fn: () => R): { readonly result: R; readonly readOnce: boolean } {
  const before = outermostRead;
  outermostRead = Number.POSITIVE_INFINITY;
  level++;
  try {
    const result = fn();
    return { result, readOnce: outermostRead <= level };
  } finally {
    level--;
    // What is from outside of the surrounding traces too, they have read by this one.
    outermostRead = Math.min(before, outermostRead <= level ? outermostRead : Number.POSITIVE_INFINITY);
  }
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
