import { either, instanceOf, type Kind } from "../../ir/arguments.js";

/**
 * Chooses collections or keys by name: all (`true`), none (`false`), one, several, or all but those of a
 * {@link DenyList}.
 */
export type CollectionFilter = boolean | string | readonly string[] | DenyList;

/** Everything that `deny` does not choose. */
export class DenyList {
  readonly deny: CollectionFilter;

  constructor(deny: CollectionFilter) {
    this.deny = deny;
  }
}

/** The kind of options that are a {@link CollectionFilter}. */
export const filterKind: Kind<CollectionFilter> = either(
  "flag",
  "stringOrStrings",
  instanceOf(DenyList, "a DenyList"),
);

/** Whether a filter chooses a name. */
export function inFilter(filter: CollectionFilter, name: string): boolean {
  if (typeof filter === "boolean") return filter;
  if (typeof filter === "string") return filter === name;
  return filter instanceof DenyList ? !inFilter(filter.deny, name) : filter.includes(name);
}

/** Whether a filter chooses nothing. */
export function isEmptyFilter(filter: CollectionFilter): boolean {
  if (typeof filter === "boolean") return !filter;
  if (typeof filter === "string") return false;
  return filter instanceof DenyList ? isFullFilter(filter.deny) : filter.length === 0;
}

function isFullFilter(filter: CollectionFilter): boolean {
  if (typeof filter === "boolean") return filter;
  return filter instanceof DenyList && isEmptyFilter(filter.deny);
}

/** What either filter chooses. */
export function unionFilters(a: CollectionFilter, b: CollectionFilter): CollectionFilter {
  if (a === true || b === true) return true;
  if (a instanceof DenyList) return new DenyList(subtractFilters(a.deny, b));
  if (b instanceof DenyList) return new DenyList(subtractFilters(b.deny, a));
  return [...new Set([...namesOf(a), ...namesOf(b)])];
}

/** What both filters choose. */
export function intersectFilters(a: CollectionFilter, b: CollectionFilter): CollectionFilter {
  if (a === true) return b;
  if (b === true) return a;
  if (a instanceof DenyList) {
    return b instanceof DenyList ? new DenyList(unionFilters(a.deny, b.deny)) : subtractFilters(b, a.deny);
  }
  return namesOf(a).filter((name) => inFilter(b, name));
}

/** What the first filter chooses and the second does not. */
export function subtractFilters(a: CollectionFilter, b: CollectionFilter): CollectionFilter {
  if (b === true) return false;
  if (a === true) return new DenyList(b);
  if (a instanceof DenyList) {
    return b instanceof DenyList ? subtractFilters(b.deny, a.deny) : new DenyList(unionFilters(a.deny, b));
  }
  return namesOf(a).filter((name) => !inFilter(b, name));
}

function namesOf(filter: boolean | string | readonly string[]): readonly string[] {
  if (typeof filter === "boolean") return [];
  if (typeof filter === "string") return [filter];
  return filter;
}
