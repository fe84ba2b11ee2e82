/**
 * Checks of arguments for callers that TypeScript does not check: one for each kind of argument, all with the same
 * message.
 */
import { describe } from "./describe.js";
import { ValueError } from "./errors.js";

/** A kind of argument or option that can be checked; `integers`, `numbers` and `strings` are arrays. */
export type ArgumentKind =
  | "function"
  | "list"
  | "string"
  | "path"
  | "flag"
  | "object"
  | "number"
  | "integer"
  | "strings"
  | "integers"
  | "numbers"
  | "bytes";

/** The type that the check of each kind gives its value. */
interface Kinds extends Readonly<Record<ArgumentKind, unknown>> {
  readonly function: (...args: never[]) => unknown;
  readonly list: readonly unknown[];
  readonly string: string;
  readonly path: string;
  readonly flag: boolean;
  readonly object: object;
  readonly number: number;
  readonly integer: number;
  readonly strings: readonly string[];
  readonly integers: readonly number[];
  readonly numbers: ArrayLike<number>;
  readonly bytes: ArrayBufferView;
}

const isSafeInteger = (value: unknown) => Number.isSafeInteger(value);
const isNumber = (value: unknown) => typeof value === "number";
/** Typed arrays of numbers; BigInt arrays are excluded. */
const isNumberArray = (value: unknown) =>
  ArrayBuffer.isView(value) &&
  !(value instanceof DataView || value instanceof BigInt64Array || value instanceof BigUint64Array);

const kinds: { readonly [K in keyof Kinds]: readonly [says: string, is: (value: unknown) => boolean] } = {
  function: ["a function", (value) => typeof value === "function"],
  list: ["an array", Array.isArray],
  string: ["a string", (value) => typeof value === "string"],
  path: ["a path", (value) => typeof value === "string" && !value.includes("\0")],
  flag: ["true or false", (value) => typeof value === "boolean"],
  object: [
    "an object",
    (value) =>
      (typeof value === "object" || typeof value === "function") && value !== null && !Array.isArray(value),
  ],
  number: ["a number", (value) => typeof value === "number" && !Number.isNaN(value)],
  integer: ["an integer", isSafeInteger],
  strings: [
    "an array of strings",
    (value) => Array.isArray(value) && value.every((one) => typeof one === "string"),
  ],
  integers: ["an array of integers", (value) => Array.isArray(value) && [...value].every(isSafeInteger)],
  numbers: [
    "an array of numbers",
    (value) => isNumberArray(value) || (Array.isArray(value) && [...value].every(isNumber)),
  ],
  bytes: ["a typed array", ArrayBuffer.isView],
};

/** Throws unless an argument is of a kind: `need("function", fn, "fn", "vmap")`. */
export function need<K extends keyof Kinds>(
  kind: K,
  value: unknown,
  what: string,
  caller: string,
): asserts value is Kinds[K] {
  const [says, is] = kinds[kind];
  if (!is(value)) throw new ValueError(`[${caller}] ${what} must be ${says}, got ${describe(value)}`);
}

/** Like {@link need} for an argument that may be left out. */
export function needIfGiven<K extends keyof Kinds>(
  kind: K,
  value: unknown,
  what: string,
  caller: string,
): asserts value is Kinds[K] | undefined {
  if (value !== undefined) need(kind, value, what, caller);
}
