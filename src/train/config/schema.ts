import { describe } from "../../ir/describe.js";
import { nearest } from "../../ir/nearest.js";
import { isObject } from "../files/json.js";

/** What a field of a configuration accepts; gives the value, or a sentence about what is wrong with it. */
export interface Field<T> {
  readonly kind: "field";
  readonly default: T;
  /** One line for help texts. */
  readonly help: string;
  /** What the field accepts, in a few words. */
  readonly accepts: string;
  /** Reads a value from a file (any JSON) or from a flag (text). */
  readonly read: (value: unknown) => { readonly value: T } | { readonly problem: string };
}

/** A configuration as a tree of fields. */
export interface Schema {
  readonly [name: string]: Field<unknown> | Schema;
}

/** The configuration that a schema describes. */
export type Config<S extends Schema> = {
  readonly [K in keyof S]: S[K] extends Field<infer T> ? T : S[K] extends Schema ? Config<S[K]> : never;
};

function isField(node: Field<unknown> | Schema): node is Field<unknown> {
  return node.kind === "field";
}

/** An integer of at least `least`. */
export function integer(value: number, help: string, least = 1): Field<number> {
  const accepts = `an integer of at least ${least}`;
  return {
    kind: "field",
    default: value,
    help,
    accepts,
    read: (given) => {
      const n = typeof given === "string" && given.trim() !== "" ? Number(given) : given;
      if (typeof n === "number" && Number.isSafeInteger(n) && n >= least) return { value: n };
      const nearest =
        typeof n === "number" && Number.isFinite(n)
          ? `; the nearest is ${Math.min(Number.MAX_SAFE_INTEGER, Math.max(least, Math.round(n)))}`
          : "";
      return { problem: `is ${show(given)}: use ${accepts}${nearest}` };
    },
  };
}

/** A number from `least` to `most`. */
export function decimal(
  value: number,
  help: string,
  least = 0,
  most = Number.POSITIVE_INFINITY,
): Field<number> {
  const accepts =
    most === Number.POSITIVE_INFINITY ? `a number of at least ${least}` : `a number from ${least} to ${most}`;
  return {
    kind: "field",
    default: value,
    help,
    accepts,
    read: (given) => {
      const n = typeof given === "string" && given.trim() !== "" ? Number(given) : given;
      if (typeof n === "number" && Number.isFinite(n) && n >= least && n <= most) return { value: n };
      const nearest =
        typeof n === "number" && Number.isFinite(n)
          ? `; the nearest is ${Math.min(most, Math.max(least, n))}`
          : "";
      return { problem: `is ${show(given)}: use ${accepts}${nearest}` };
    },
  };
}

/** One of several words. */
export function choice<const T extends string>(value: T, help: string, options: readonly T[]): Field<T> {
  const accepts = options.join(" | ");
  return {
    kind: "field",
    default: value,
    help,
    accepts,
    read: (given) => {
      const found = options.find((option) => option === given);
      if (found !== undefined) return { value: found };
      const near = typeof given === "string" ? nearest(given, options) : undefined;
      return { problem: `is ${show(given)}: use ${accepts}${near ? `; did you mean ${near}?` : ""}` };
    },
  };
}

/** Any text. */
export function text(value: string, help: string): Field<string> {
  const read = (given: unknown) =>
    typeof given === "string" ? { value: given } : { problem: `is ${show(given)}: use text` };
  return { kind: "field", default: value, help, accepts: "text", read };
}

/** Yes or no. */
export function flag(value: boolean, help: string): Field<boolean> {
  const read = (given: unknown) => {
    if (given === true || given === "true" || given === "") return { value: true };
    if (given === false || given === "false") return { value: false };
    return { problem: `is ${show(given)}: use true or false` };
  };
  return { kind: "field", default: value, help, accepts: "true | false", read };
}

/** Something that `auto` leaves to whoever uses it, or a value that is read from text or a number. */
export function automatic(
  help: string,
  accepts: string,
  parse: (text: string) => number | undefined,
): Field<"auto" | number> {
  return {
    kind: "field",
    default: "auto",
    help,
    accepts: `auto | ${accepts}`,
    read: (given) => {
      if (given === "auto") return { value: given };
      const isText = typeof given === "string" || typeof given === "number";
      const value = isText ? parse(String(given)) : undefined;
      return value === undefined ? { problem: `is ${show(given)}: use auto or ${accepts}` } : { value };
    },
  };
}

function show(value: unknown): string {
  if (value === undefined) return "missing";
  try {
    return JSON.stringify(value) ?? describe(value);
  } catch {
    // A bigint, or an object that holds itself.
    return describe(value);
  }
}

/** A value at a path such as `model.width`. */
export interface Setting {
  readonly path: string;
  readonly value: unknown;
}

/** A configuration, and everything that is wrong with what it was made from. */
export interface ReadConfig<S extends Schema> {
  readonly config: Config<S>;
  readonly violations: readonly string[];
  /** The paths of fields whose values could not be read; they have their defaults. */
  readonly unread: readonly string[];
}

/** Reads a configuration from JSON and settings that override it; what is not given has its default. */
export function readConfig<S extends Schema>(
  schema: S,
  json: unknown,
  settings: readonly Setting[] = [],
): ReadConfig<S> {
  const violations: string[] = [];
  const unread: string[] = [];
  const paths = [...fieldsOf(schema).keys()];
  const known = new Set(paths);
  const given = new Map<string, unknown>();
  const groups = paths.flatMap((path) => (path.includes(".") ? [path.slice(0, path.lastIndexOf("."))] : []));
  const suggest = (path: string) => {
    const near = nearest(path, [...new Set([...paths, ...groups])]);
    return near ? `; did you mean ${near}?` : "";
  };
  const walk = (node: unknown, prefix: string) => {
    if (!isObject(node)) {
      violations.push(`${prefix || "the configuration"} must be an object, got ${show(node)}`);
      return;
    }
    for (const [name, value] of Object.entries(node)) {
      const path = prefix ? `${prefix}.${name}` : name;
      if (known.has(path)) given.set(path, value);
      else if (paths.some((candidate) => candidate.startsWith(`${path}.`))) walk(value, path);
      else violations.push(`unknown field ${path}${suggest(path)}`);
    }
  };
  walk(json, "");
  for (const { path, value } of settings) {
    if (known.has(path)) given.set(path, value);
    else violations.push(`unknown option --${path}${suggest(path)}`);
  }
  const build = (node: Schema, prefix: string): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(node).map(([name, part]) => {
        const path = prefix ? `${prefix}.${name}` : name;
        if (!isField(part)) return [name, build(part, path)];
        if (!given.has(path)) return [name, part.default];
        const result = part.read(given.get(path));
        if ("value" in result) return [name, result.value];
        violations.push(`${path} ${result.problem}`);
        unread.push(path);
        return [name, part.default];
      }),
    );
  return { config: build(schema, "") as Config<S>, violations, unread };
}

/** All fields of a schema by path. */
export function fieldsOf(schema: Schema, prefix = ""): Map<string, Field<unknown>> {
  const fields = new Map<string, Field<unknown>>();
  for (const [name, part] of Object.entries(schema)) {
    const path = prefix ? `${prefix}.${name}` : name;
    if (isField(part)) fields.set(path, part);
    else for (const [inner, field] of fieldsOf(part, path)) fields.set(inner, field);
  }
  return fields;
}
