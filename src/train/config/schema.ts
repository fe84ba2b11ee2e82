import { describe } from "../../ir/describe.js";
import { nearest } from "../../ir/nearest.js";
import { isObject } from "../files/json.js";

/** A field of a configuration: its default, and how a value is read and checked. */
export interface Field<T> {
  readonly kind: "field";
  readonly default: T;
  /** One line for help texts. */
  readonly help: string;
  /** What the field accepts, in a few words. */
  readonly accepts: string;
  /** Reads a value from a file (any JSON) or from a flag (a string); gives the value or what is wrong with it. */
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

/**
 * Makes a field from its parser.
 *
 * @param parse returns undefined for values that the field does not accept
 * @param hint appended to the message about a value that is not accepted
 */
function field<T>(
  value: T,
  help: string,
  accepts: string,
  parse: (given: unknown) => T | undefined,
  hint: (given: unknown) => string = () => "",
): Field<T> {
  const read = (given: unknown) => {
    const found = parse(given);
    if (found !== undefined) return { value: found };
    return { problem: `is ${show(given)}: use ${accepts}${hint(given)}` };
  };
  return { kind: "field", default: value, help, accepts, read };
}

/** A number field. @param nearest returns an accepted number unchanged, and for others the nearest accepted one */
function numeric(
  value: number,
  help: string,
  accepts: string,
  nearest: (n: number) => number,
): Field<number> {
  const finite = (given: unknown) => {
    const n = typeof given === "string" && given.trim() !== "" ? Number(given) : given;
    return typeof n === "number" && Number.isFinite(n) ? n : undefined;
  };
  const parse = (given: unknown) => {
    const n = finite(given);
    return n !== undefined && nearest(n) === n ? n : undefined;
  };
  return field(value, help, accepts, parse, (given) => {
    const n = finite(given);
    return n === undefined ? "" : `; the nearest is ${nearest(n)}`;
  });
}

/** An integer of at least `least`. */
export function integer(value: number, help: string, least = 1): Field<number> {
  return numeric(value, help, `an integer of at least ${least}`, (n) =>
    Math.min(Number.MAX_SAFE_INTEGER, Math.max(least, Math.round(n))),
  );
}

/** A number from `least` to `most`. */
export function decimal(value: number, help: string, least = 0, most?: number): Field<number> {
  const range = most === undefined ? `of at least ${least}` : `from ${least} to ${most}`;
  return numeric(value, help, `a number ${range}`, (n) =>
    Math.min(most ?? Number.POSITIVE_INFINITY, Math.max(least, n)),
  );
}

/** One of several words. */
export function choice<const T extends string>(value: T, help: string, options: readonly T[]): Field<T> {
  const parse = (given: unknown) => options.find((option) => option === given);
  return field(value, help, options.join(" | "), parse, (given) => {
    const near = typeof given === "string" ? nearest(given, options) : undefined;
    return near ? `; did you mean ${near}?` : "";
  });
}

/** Any string. */
export function text(value: string, help: string): Field<string> {
  return field(value, help, "a string", (given) => (typeof given === "string" ? given : undefined));
}

/** Yes or no. */
export function flag(value: boolean, help: string): Field<boolean> {
  return field(value, help, "true | false", (given) => {
    if (given === true || given === "true" || given === "") return true;
    return given === false || given === "false" ? false : undefined;
  });
}

/** `auto`, which leaves the choice to the user of the field, or a value parsed from a string or a number. */
export function automatic(
  help: string,
  accepts: string,
  parse: (text: string) => number | undefined,
): Field<"auto" | number> {
  return field<"auto" | number>("auto", help, `auto | ${accepts}`, (given) => {
    if (given === "auto") return given;
    return typeof given === "string" || typeof given === "number" ? parse(String(given)) : undefined;
  });
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

/** A configuration, and everything that is wrong with its sources. */
export interface ReadConfig<S extends Schema> {
  readonly config: Config<S>;
  readonly violations: readonly string[];
  /** The paths of fields whose values could not be read; they have their defaults. */
  readonly unread: readonly string[];
}

/** Reads a configuration from JSON and settings that override it; fields that are not given have their default. */
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

/** The value at a path of a configuration. */
export function valueAt(config: unknown, path: string): unknown {
  return path.split(".").reduce((node: unknown, name) => (isObject(node) ? node[name] : undefined), config);
}
