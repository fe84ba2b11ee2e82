/**
 * Readers of parsed JSON, whose content is untrusted: each checks one kind of value and returns it, or throws an error
 * that says where and what it must be.
 *
 * ```ts
 * const axis = object({ name: string, size: count });
 * arrayOf(axis)(JSON.parse(text), "mesh", (where, rule) => new Error(`${where} ${rule}`));
 * ```
 */

import { attempt } from "./errors.js";

/** Parses JSON. @param problem makes the error about a text that is not JSON, of the parser's reason */
export function parseJson(text: string, problem: (reason: string, cause: unknown) => Error): unknown {
  return attempt(() => JSON.parse(text), problem);
}

/** Makes the error about a value that breaks a rule, at a place such as `files[3].name`. */
export type MakeJsonError = (where: string, rule: string, got: unknown) => Error;

/** Returns a checked value, or throws. */
export type JsonReader<T> = (value: unknown, where: string, wrong: MakeJsonError) => T;

type Read<R> = R extends JsonReader<infer T> ? T : never;

/** The values of a kind. @param rule completes "files[3].name …" */
export function ofKind<T>(is: (value: unknown) => value is T, rule: string): JsonReader<T> {
  return (value, where, wrong) => {
    if (is(value)) return value;
    throw wrong(where, rule, value);
  };
}

const isString = (value: unknown) => typeof value === "string";
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;

/** A string. */
export const string = ofKind(isString, "must be a string");

/** A number. */
export const number = ofKind((value) => typeof value === "number", "must be a number");

/** An integer from 0. */
export const count = ofKind(isCount, "must be an integer of at least 0");

/** An array of anything. */
export const list = ofKind((value): value is readonly unknown[] => Array.isArray(value), "must be an array");

/** An object with any fields. */
export const fields = ofKind(
  (value): value is Readonly<Record<string, unknown>> =>
    typeof value === "object" && value !== null && !Array.isArray(value),
  "must be an object",
);

/** A string that matches a pattern. */
export function matching(pattern: RegExp, rule: string): JsonReader<string> {
  return ofKind((value): value is string => isString(value) && pattern.test(value), rule);
}

/** What another reader reads, or null. */
export function orNull<T>(read: JsonReader<T>): JsonReader<T | null> {
  return (value, where, wrong) => (value === null ? null : read(value, where, wrong));
}

/** What another reader reads, or nothing. */
export function ifGiven<T>(read: JsonReader<T>): JsonReader<T | undefined> {
  return (value, where, wrong) => (value === undefined ? undefined : read(value, where, wrong));
}

/** An array of what another reader reads. */
export function arrayOf<T>(read: JsonReader<T>): JsonReader<readonly T[]> {
  return (value, where, wrong) =>
    list(value, where, wrong).map((one, i) => read(one, `${where}[${i}]`, wrong));
}

type MayLack<F> = { [K in keyof F]: undefined extends Read<F[K]> ? K : never }[keyof F];
type Fields<F> = { readonly [K in Exclude<keyof F, MayLack<F>>]: Read<F[K]> } & {
  readonly [K in MayLack<F>]?: Exclude<Read<F[K]>, undefined>;
};

/** An object with these fields, of which those that are not given are left out; others are ignored. */
export function object<const F extends Readonly<Record<string, JsonReader<unknown>>>>(
  readers: F,
): JsonReader<Fields<F>> {
  return (value, where, wrong) => {
    const given = fields(value, where || "it", wrong);
    const read = Object.entries(readers).map(([name, reader]) => [
      name,
      reader(given[name], where === "" ? name : `${where}.${name}`, wrong),
    ]);
    return Object.fromEntries(read.filter(([, one]) => one !== undefined)) as Fields<F>;
  };
}
