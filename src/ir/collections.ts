import { InternalError } from "./errors.js";
import { at } from "./shape.js";

/** Pairs of elements at the same places of two lists, which must have one length. */
export function zip<A, B>(a: readonly A[], b: readonly B[]): (readonly [A, B])[] {
  if (a.length !== b.length) throw new InternalError(`[zip] lists of ${a.length} and ${b.length} elements`);
  return a.map((one, i) => [one, at(b, i)] as const);
}

/** The value of a key that the map must have. */
export function getKnown<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key);
  if (value === undefined) throw new InternalError(`[getKnown] there is no value for ${String(key)}`);
  return value;
}

/** The value of a key, which is made and kept if there is none yet. */
export function getOrInsert<K, V>(
  map: { get(key: K): V | undefined; set(key: K, value: V): unknown },
  key: K,
  make: () => V,
): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
