/** Values of templates, with the meaning that they have in Python. */
import { ValueError } from "../../../../ir/errors.js";

/** A value of a template; functions are macros and filters. */
export type Value = undefined | null | boolean | number | string | readonly Value[] | Dict | Callable;

/** A mapping, or the namespace of a template. */
export type Dict = Map<string, Value>;

/** A function that a template can call. */
export type Callable = (args: readonly Value[], named: Dict) => Value;

/** An error in a template or in its use. */
export const templateError = (rule: string) => new ValueError(`[chat template] ${rule}`);

/** A value of JSON as a value of templates. */
export function fromJson(value: unknown): Value {
  if (Array.isArray(value)) return value.map(fromJson);
  if (typeof value === "object" && value !== null) {
    return new Map(Object.entries(value).map(([key, own]) => [key, fromJson(own)]));
  }
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? value : null;
}

const toPlain = (value: Value): unknown =>
  value instanceof Map
    ? Object.fromEntries([...value].map(([key, own]) => [key, toPlain(own)]))
    : Array.isArray(value)
      ? value.map(toPlain)
      : (value ?? null);

/** JSON with the spaces that Python puts. */
export function toJson(value: Value, indent?: number): string {
  if (indent !== undefined) return JSON.stringify(toPlain(value), null, indent);
  if (value instanceof Map) {
    return `{${[...value].map(([key, own]) => `${JSON.stringify(key)}: ${toJson(own)}`).join(", ")}}`;
  }
  if (Array.isArray(value)) return `[${value.map((own) => toJson(own)).join(", ")}]`;
  return JSON.stringify(toPlain(value));
}

/** The text of a value in the output. */
export function toText(value: Value): string {
  if (value === undefined) return "";
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return value;
  return typeof value === "number" ? String(value) : represent(value);
}

function represent(value: Value): string {
  if (typeof value === "string")
    return value.includes("'") && !value.includes('"') ? `"${value}"` : `'${value.replaceAll("'", "\\'")}'`;
  if (Array.isArray(value)) return `[${value.map(represent).join(", ")}]`;
  if (value instanceof Map)
    return `{${[...value].map(([key, own]) => `${represent(key)}: ${represent(own)}`).join(", ")}}`;
  return toText(value);
}

export function isTrue(value: Value): boolean {
  if (Array.isArray(value)) return value.length > 0;
  return value instanceof Map ? value.size > 0 : Boolean(value);
}

export function isEqual(a: Value, b: Value): boolean {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((x, i) => isEqual(x, b[i]));
  if (a instanceof Map && b instanceof Map)
    return a.size === b.size && [...a].every(([k, v]) => b.has(k) && isEqual(v, b.get(k)));
  return (a ?? null) === (b ?? null) && (a === undefined) === (b === undefined);
}

/** The elements over which a value is iterated. */
export function elements(value: Value): readonly Value[] {
  if (Array.isArray(value)) return value;
  if (value instanceof Map) return [...value.keys()];
  if (typeof value === "string") return Array.from(value);
  if (value === undefined) return [];
  throw templateError(`${represent(value)} cannot be iterated over`);
}

export function contains(container: Value, item: Value): boolean {
  if (typeof container === "string") return typeof item === "string" && container.includes(item);
  if (container instanceof Map) return typeof item === "string" && container.has(item);
  return elements(container).some((one) => isEqual(one, item));
}

const text = (value: Value): string => (typeof value === "string" ? value : toText(value));

const trimmers =
  (side: "both" | "start" | "end") =>
  (value: string, [given]: readonly Value[]) => {
    const signs = given === undefined || given === null ? undefined : new Set(text(given));
    const isCut = (c: string | undefined) => c !== undefined && (signs ? signs.has(c) : /\s/.test(c));
    let [start, end] = [0, value.length];
    while (side !== "end" && start < end && isCut(value[start])) start++;
    while (side !== "start" && end > start && isCut(value[end - 1])) end--;
    return value.slice(start, end);
  };

/** The methods of strings. */
export const stringMethods: Readonly<Record<string, (value: string, args: readonly Value[]) => Value>> = {
  strip: trimmers("both"),
  lstrip: trimmers("start"),
  rstrip: trimmers("end"),
  upper: (value) => value.toUpperCase(),
  lower: (value) => value.toLowerCase(),
  title: (value) =>
    value.toLowerCase().replace(/\p{L}+/gu, (word) => word.charAt(0).toUpperCase() + word.slice(1)),
  capitalize: (value) => value.charAt(0).toUpperCase() + value.slice(1).toLowerCase(),
  startswith: (value, [start]) =>
    (Array.isArray(start) ? start : [start]).some((one) => value.startsWith(text(one))),
  endswith: (value, [end]) => (Array.isArray(end) ? end : [end]).some((one) => value.endsWith(text(one))),
  split: (value, [by, limit]) => {
    if (by === undefined || by === null) return value.split(/\s+/).filter((part) => part !== "");
    const parts = value.split(text(by));
    const most = typeof limit === "number" && limit >= 0 ? limit : parts.length;
    return parts.length <= most + 1 ? parts : [...parts.slice(0, most), parts.slice(most).join(text(by))];
  },
  replace: (value, [from, to]) => value.replaceAll(text(from), text(to)),
  join: (value, [parts]) => elements(parts).map(text).join(value),
  find: (value, [part]) => value.indexOf(text(part)),
  count: (value, [part]) => value.split(text(part)).length - 1,
};

/** The methods of mappings. */
export const dictMethods: Readonly<Record<string, (value: Dict, args: readonly Value[]) => Value>> = {
  items: (value) => [...value].map(([key, own]) => [key, own]),
  keys: (value) => [...value.keys()],
  values: (value) => [...value.values()],
  get: (value, [key, fallback]) => value.get(text(key)) ?? fallback ?? null,
};

type Filter = (value: Value, args: readonly Value[], named: Dict) => Value;

const attribute = (value: Value, name: Value): Value =>
  value instanceof Map ? value.get(text(name)) : undefined;

const select =
  (keeps: boolean, ofAttribute: boolean): Filter =>
  (value, args) => {
    const [name, ...rest] = ofAttribute ? args : [undefined, ...args];
    const [test, ...more] = rest;
    const passes = (one: Value) => {
      const own = ofAttribute ? attribute(one, name) : one;
      return test === undefined ? isTrue(own) : tests[text(test)]?.(own, more) === true;
    };
    return elements(value).filter((one) => passes(one) === keeps);
  };

/** The filters, `value | name(args)`. */
export const filters: Readonly<Record<string, Filter>> = {
  trim: (value, args) => stringMethods.strip?.(text(value), args),
  upper: (value) => text(value).toUpperCase(),
  lower: (value) => text(value).toLowerCase(),
  title: (value) => stringMethods.title?.(text(value), []),
  capitalize: (value) => stringMethods.capitalize?.(text(value), []),
  replace: (value, args) => stringMethods.replace?.(text(value), args),
  length: (value) => elements(value).length,
  count: (value) => elements(value).length,
  string: (value) => toText(value),
  safe: (value) => value,
  int: (value) => Math.trunc(Number(value)) || 0,
  float: (value) => Number(value) || 0,
  abs: (value) => Math.abs(Number(value)),
  list: (value) => elements(value),
  first: (value) => elements(value)[0],
  last: (value) => elements(value).at(-1),
  reverse: (value) => [...elements(value)].reverse(),
  unique: (value) =>
    elements(value).filter((one, i, all) => all.findIndex((other) => isEqual(one, other)) === i),
  join: (value, [by = ""]) => elements(value).map(text).join(text(by)),
  items: (value) => (value instanceof Map ? [...value].map(([key, own]) => [key, own]) : []),
  tojson: (value, _args, named) =>
    toJson(value, typeof named.get("indent") === "number" ? Number(named.get("indent")) : undefined),
  default: (value, [fallback = "", also]) =>
    value === undefined || (also === true && !isTrue(value)) ? fallback : value,
  indent: (value, [width = 4]) => text(value).replace(/\n(?=[^\n])/g, `\n${" ".repeat(Number(width))}`),
  map: (value, [name, ...args], named) => {
    const own = named.get("attribute");
    if (own !== undefined) return elements(value).map((one) => attribute(one, own));
    const filter = Object.hasOwn(filters, text(name)) ? filters[text(name)] : undefined;
    if (!filter) throw templateError(`unknown filter "${text(name)}"`);
    return elements(value).map((one) => filter(one, args, new Map()));
  },
  selectattr: select(true, true),
  rejectattr: select(false, true),
  select: select(true, false),
  reject: select(false, false),
};

/** The tests, `value is name`. */
export const tests: Readonly<Record<string, (value: Value, args: readonly Value[]) => boolean>> = {
  defined: (value) => value !== undefined,
  undefined: (value) => value === undefined,
  none: (value) => value === null,
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  mapping: (value) => value instanceof Map,
  iterable: (value) => typeof value === "string" || Array.isArray(value) || value instanceof Map,
  sequence: (value) => typeof value === "string" || Array.isArray(value),
  true: (value) => value === true,
  false: (value) => value === false,
  equalto: (value, [other]) => isEqual(value, other),
  eq: (value, [other]) => isEqual(value, other),
  "==": (value, [other]) => isEqual(value, other),
  in: (value, [container]) => contains(container, value),
  odd: (value) => Number(value) % 2 !== 0,
  even: (value) => Number(value) % 2 === 0,
};
