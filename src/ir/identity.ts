/** A counter that returns each number once. */
export interface Counter {
  (): number;
  /** Leaves out the numbers below this one. */
  skipTo(least: number): void;
}

export function newCounter(first = 0): Counter {
  let next = first;
  const skipTo = (least: number) => {
    next = Math.max(next, least);
  };
  return Object.assign(() => next++, { skipTo });
}

const nextIdentity = newCounter();
const identities = new WeakMap<object, number>();

/** A number that identifies an object or function in string keys. */
export function identityOf(object: object): number {
  const known = identities.get(object);
  if (known !== undefined) return known;
  const identity = nextIdentity();
  identities.set(object, identity);
  return identity;
}

/** A lazy value: `make` runs on first use, and again only if it threw. */
export function lazily<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
