/**
 * Checks of arguments for callers that TypeScript does not check: one for each kind of argument, all with the same
 * message.
 */
import { describe } from "./describe.js";
import { ValueError } from "./errors.js";
import { nearest as nearestOf } from "./nearest.js";

/** What an argument or an option must be. */
export interface Kind<T> {
  /** Completes "x must be …". */
  readonly says: string;
  readonly is: (value: unknown) => boolean;
  /** The class of the error about other values; {@link ValueError} by default. */
  readonly error?: new (
    message: string,
  ) => Error;
  /** What to do about other values, at the end of the message. */
  readonly advice?: string;
  /** The accepted value that is most similar to another one, for messages. */
  readonly nearest?: (value: unknown) => T | undefined;
  /** Never set: it tells the type checker what passes the check. */
  readonly type?: T;
}

/** The kinds that have a name, and the types of their values; `integers`, `numbers` and `strings` are arrays. */
export interface Kinds {
  readonly any: unknown;
  readonly null: null;
  readonly function: (...args: never[]) => unknown;
  readonly list: readonly unknown[];
  readonly string: string;
  readonly path: string;
  readonly flag: boolean;
  readonly object: object;
  readonly number: number;
  readonly integer: number;
  readonly strings: readonly string[];
  readonly stringOrStrings: string | readonly string[];
  readonly integers: readonly number[];
  readonly integerOrIntegers: number | readonly number[];
  readonly numbers: ArrayLike<number>;
  readonly bytes: ArrayBufferView;
}

/** The name of a kind. */
export type ArgumentKind = keyof Kinds;

/** The type of the values of a kind. */
export type TypeOfKind<K> = K extends ArgumentKind ? Kinds[K] : K extends Kind<infer T> ? T : never;

const isSafeInteger = (value: unknown) => Number.isSafeInteger(value);
const isString = (value: unknown) => typeof value === "string";
const isNumber = (value: unknown) => typeof value === "number";
/** Typed arrays of numbers; BigInt arrays are excluded. */
const isNumberArray = (value: unknown) =>
  ArrayBuffer.isView(value) &&
  !(value instanceof DataView || value instanceof BigInt64Array || value instanceof BigUint64Array);

const kind = <T>(says: string, is: (value: unknown) => boolean): Kind<T> => ({ says, is });

/** Numbers of which `closest` returns the accepted ones unchanged, and for others the nearest accepted one. */
function numbers(says: string, closest: (n: number) => number): Kind<number> {
  const nearest = (value: unknown) => (Number.isFinite(value) ? closest(Number(value)) : undefined);
  return { says, is: (value) => Number.isFinite(value) && nearest(value) === value, nearest };
}

/** A number that is a value, not a setting: it may be NaN. */
export const anyNumber: Kind<number> = kind("a number", isNumber);

/** An integer of at least `least`. */
export const integerFrom = (least: number, most = Number.MAX_SAFE_INTEGER): Kind<number> =>
  numbers(
    `an integer ${most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`}`,
    (n) => Math.min(most, Math.max(least, Math.round(n))),
  );

/** A number from `least` to `most`. */
export const numberFrom = (least: number, most = Number.POSITIVE_INFINITY): Kind<number> =>
  numbers(
    `a number ${most === Number.POSITIVE_INFINITY ? `of at least ${least}` : `from ${least} to ${most}`}`,
    (n) => Math.min(most, Math.max(least, n)),
  );

/** One of several words. */
export const oneOf = <const T extends string>(...words: readonly T[]): Kind<T> => {
  const quoted = words.map((word) => JSON.stringify(word));
  const says = [quoted.slice(0, -1).join(", "), ...quoted.slice(-1)]
    .filter((part) => part !== "")
    .join(" or ");
  return {
    says,
    is: (value) => words.some((word) => word === value),
    nearest: (value) => (typeof value === "string" ? nearestOf(value, words) : undefined),
  };
};

/** The name of an entry of a table. */
/* @__NO_SIDE_EFFECTS__ */
export const keyOf = <T extends object>(table: T): Kind<keyof T & string> =>
  oneOf(...(Object.keys(table) as (keyof T & string)[]));

/** What is of one of several kinds. */
/* @__NO_SIDE_EFFECTS__ */
export function either<const K extends readonly (ArgumentKind | Kind<unknown>)[]>(
  ...named: K
): Kind<TypeOfKind<K[number]>> {
  return kind(named.map((one) => kindOf(one).says).join(" or "), (value) =>
    named.some((one) => kindOf(one).is(value)),
  );
}

/** An instance of a class. */
/* @__NO_SIDE_EFFECTS__ */
export function instanceOf<T>(
  type: { readonly prototype: T; [Symbol.hasInstance](value: unknown): boolean },
  says: string,
  advice?: string,
): Kind<T> {
  return { ...kind(says, (value) => value instanceof type), ...(advice && { advice }) };
}

/** An object whose values are all of one kind. */
/* @__NO_SIDE_EFFECTS__ */
export function recordOf<K extends ArgumentKind>(named: K): Kind<Readonly<Record<string, Kinds[K]>>> {
  return kind(
    `an object in which each value is ${kinds[named].says}`,
    (value) => kinds.object.is(value) && Object.values(Object(value)).every(kinds[named].is),
  );
}

/** An array whose elements are all of one kind; `elements` says in the plural of which. */
/* @__NO_SIDE_EFFECTS__ */
export function arrayOf<K extends ArgumentKind | Kind<unknown>>(
  named: K,
  elements: string,
): Kind<readonly TypeOfKind<K>[]> {
  return kind(`an array of ${elements}`, (value) => isArrayOf(kindOf(named).is)(value));
}

const isArrayOf = (is: (value: unknown) => boolean) => (value: unknown) =>
  Array.isArray(value) && [...value].every(is);
const areStrings = isArrayOf(isString);
const areIntegers = isArrayOf(isSafeInteger);

const kinds: { readonly [K in ArgumentKind]: Kind<Kinds[K]> } = {
  any: kind("given", (value) => value !== undefined),
  null: kind("null", (value) => value === null),
  function: kind("a function", (value) => typeof value === "function"),
  list: kind("an array", Array.isArray),
  string: kind("a string", isString),
  path: kind("a path", (value) => typeof value === "string" && !value.includes("\0")),
  flag: kind("true or false", (value) => typeof value === "boolean"),
  object: kind(
    "an object",
    (value) =>
      (typeof value === "object" || typeof value === "function") && value !== null && !Array.isArray(value),
  ),
  number: kind("a number", (value) => typeof value === "number" && !Number.isNaN(value)),
  integer: kind("an integer", isSafeInteger),
  strings: kind("an array of strings", areStrings),
  stringOrStrings: kind("a string or an array of strings", (value) => isString(value) || areStrings(value)),
  integers: kind("an array of integers", areIntegers),
  integerOrIntegers: kind(
    "an integer or an array of integers",
    (value) => isSafeInteger(value) || areIntegers(value),
  ),
  numbers: kind("an array of numbers", (value) => isNumberArray(value) || isArrayOf(isNumber)(value)),
  bytes: kind("a typed array", ArrayBuffer.isView),
};

/** The kind of a name. */
export const kindOf = (named: ArgumentKind | Kind<unknown>): Kind<unknown> =>
  typeof named === "string" ? kinds[named] : named;

/** Throws unless an argument is of a kind: `need("function", fn, "fn", "vmap")`. */
export function need<K extends ArgumentKind | Kind<unknown>>(
  named: K,
  value: unknown,
  what: string,
  caller: string,
): asserts value is TypeOfKind<K> {
  const { says, is, error = ValueError, advice } = kindOf(named);
  if (is(value)) return;
  throw new error(
    `[${caller}] ${what} must be ${says}, got ${describe(value)}${advice === undefined ? "" : `: ${advice}`}`,
  );
}

/** Like {@link need} for an argument that may be left out. */
export function needIfGiven<K extends ArgumentKind | Kind<unknown>>(
  named: K,
  value: unknown,
  what: string,
  caller: string,
): asserts value is TypeOfKind<K> | undefined {
  if (value !== undefined) need(named, value, what, caller);
}
