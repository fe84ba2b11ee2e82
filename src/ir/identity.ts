/** Gives each number once, counting up. */
export function newCounter(first = 0): () => number {
  let next = first;
  return () => next++;
}

const nextIdentity = newCounter();
const identities = new WeakMap<object, number>();

/** A number by which an object or function is told from all others, in keys that are texts. */
export function identityOf(object: object): number {
  const known = identities.get(object);
  if (known !== undefined) return known;
  const identity = nextIdentity();
  identities.set(object, identity);
  return identity;
}

/** What `make` gives, made when it is first asked for and again only where that failed. */
export function lazily<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
