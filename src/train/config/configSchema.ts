import { integerFrom, numberFrom, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { nearest } from "../../ir/nearest.js";
import { type Option, optional, type Presence } from "../../ir/schema.js";
import { isObject } from "../files/disk/json.js";

/** A field of a configuration, or an option of a command: an {@link Option} that files and flags can set. */
export interface Field<T> extends Option<T, Presence> {
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
  return typeof node.read === "function";
}

/**
 * Makes a field of an option.
 *
 * @param fromText the value that a string stands for
 * @param accepts what the field accepts, where its kind does not say it as a command line would
 */
function field<T, P extends Presence>(
  option: Option<T, P>,
  help: string,
  fromText: (text: string) => unknown = (text) => text,
  accepts = option.kind.says,
): Field<T> {
  const { kind } = option;
  const read = (given: unknown) => {
    const value = typeof given === "string" ? fromText(given) : given;
    if (kind.is(value)) return { value: value as T };
    const near = kind.nearest?.(value);
    const hint = typeof near === "number" ? `; the nearest is ${near}` : near && `; did you mean ${near}?`;
    return { problem: `is ${show(given)}: use ${accepts}${hint ?? ""}` };
  };
  return { ...option, help, accepts, read };
}

const toNumber = (text: string): unknown => (text.trim() === "" ? text : Number(text));

/** An integer of at least `least`. */
export const integer = (value: number, help: string, least = 1, most?: number): Field<number> =>
  field(optional(integerFrom(least, most), value), help, toNumber);

/** A number from `least` to `most`. */
export const decimal = (value: number, help: string, least = 0, most?: number): Field<number> =>
  field(optional(numberFrom(least, most), value), help, toNumber);

/** One of several words. */
export const choice = <const T extends string>(value: T, help: string, words: readonly T[]): Field<T> =>
  field(optional<T>(oneOf(...words), value), help, undefined, words.join(" | "));

/** One of several words, which need not be given. */
export const optionalChoice = <const T extends string>(
  help: string,
  words: readonly T[],
): Field<T | undefined> => field(optional<T>(oneOf(...words)), help, undefined, words.join(" | "));

/** Any string. */
export const text = (value: string, help: string): Field<string> => field(optional("string", value), help);

/** Yes or no. */
export function flag(value: boolean, help: string): Field<boolean> {
  const words: Readonly<Record<string, boolean>> = { true: true, "": true, false: false };
  return field(optional("flag", value), help, (text) => words[text] ?? text, "true | false");
}

/** An integer of at least `least` that need not be given. */
export const optionalInteger = (help: string, least = 1, most?: number): Field<number | undefined> =>
  field(optional(integerFrom(least, most)), help, toNumber);

/** The largest port. */
export const maxPort = 65_535;

/** A string that need not be given. */
export const optionalText = (help: string): Field<string | undefined> => field(optional("string"), help);

/** A number that need not be given, read from a string with a unit. */
export function measure(
  help: string,
  accepts: string,
  parse: (text: string) => number | undefined,
): Field<number | undefined> {
  return field(optional({ says: accepts, is: (value) => typeof value === "number" }), help, parse);
}

/** `auto`, which leaves the choice to the user of the field, or a value parsed from a string or a number. */
export function automatic(
  help: string,
  accepts: string,
  parse: (text: string) => number | undefined,
): Field<"auto" | number> {
  const says = `auto | ${accepts}`;
  const is = (value: unknown) =>
    value === "auto" || (typeof value === "number" && parse(String(value)) === value);
  return field(optional<"auto" | number>({ says, is }, "auto"), help, (text) =>
    text === "auto" ? text : parse(text),
  );
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
