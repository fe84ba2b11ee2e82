import { type ArgumentKind, needIfGiven } from "./arguments.js";
import { describe, isPlain } from "./describe.js";
import { ValueError } from "./errors.js";
import { nearest } from "./nearest.js";

/** The names of all options of a type, which the type checker keeps complete, and for some the kind that is checked. */
export type OptionNames<O> = { readonly [K in keyof Required<O>]: true | ArgumentKind };

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const hasOnly = (options: object, names: object): boolean => {
  for (const name of Object.keys(options)) if (!Object.hasOwn(names, name)) return false;
  return true;
};

/** Throws if an option is given and not of its kind. */
function checkKinds(
  options: object,
  names: Readonly<Record<string, true | ArgumentKind>>,
  caller: string,
): void {
  for (const [name, kind] of Object.entries(names)) {
    if (kind !== true) needIfGiven(kind, Reflect.get(options, name), name, caller);
  }
}

/**
 * Throws unless all options have names that a function knows, since a misspelt one would be ignored silently, and are
 * of their kinds.
 */
export function checkOptions<O>(options: unknown, names: OptionNames<O>, caller: string): void {
  if (options === undefined) return;
  if (isObject(options) && hasOnly(options, names)) {
    checkKinds(options, names, caller);
    return;
  }
  const known = Object.keys(names);
  // A tensor, say, passed instead of the options has properties, but they are not meant as options.
  if (!isObject(options) || !isPlain(options)) {
    throw new ValueError(
      `[${caller}] the options must be an object of ${known.join(", ")}, got ${describe(options)}`,
    );
  }
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(names, name));
  const list = unknown.map((name) => JSON.stringify(name)).join(", ");
  const meant = unknown.map((name) => nearest(name, known)).find((name) => name !== undefined);
  throw new ValueError(
    `[${caller}] unknown option ${list}: the options are ${known.join(", ") || "none"}${meant === undefined ? "" : `; did you mean ${meant}?`}`,
  );
}

/** Like {@link checkOptions} for options that must be given. */
export function needOptions<O>(options: unknown, names: OptionNames<O>, caller: string): void {
  // An omitted argument is not an object either.
  checkOptions(options ?? null, names, caller);
}
