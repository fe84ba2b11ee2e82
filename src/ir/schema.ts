/**
 * Options as data. A schema says each fact about an option once: its name, what it accepts, its default and, in a doc
 * comment, its meaning. The type of the options follows from the schema, and so do checks and messages.
 *
 * ```ts
 * const sgdOptions = schema({
 *   learningRate: required("number"),
 *   // The share of the last direction that is kept; none by default.
 *   momentum: optional("number"),
 *   // Whether momentum looks one step ahead.
 *   nesterov: false,
 * });
 * export interface SgdOptions extends OptionsOf<typeof sgdOptions> {}
 *
 * export function sgd(options: SgdOptions) {
 *   const { learningRate, momentum, nesterov } = sgdOptions.read(options, "sgd");
 * ```
 *
 * With doc comments in the place of the comments, editors show them wherever an option is written.
 */

import { type ArgumentKind, type Kind, type Kinds, kindOf, need } from "./arguments.js";
import { describe, isPlain } from "./describe.js";
import { ValueError } from "./errors.js";
import { nearest } from "./nearest.js";

/** Whether an option must be given, may be left out, or has a default. */
export type Presence = "required" | "optional" | "default";

/** One option of a function: what it accepts, and its default. */
export interface Option<T = unknown, P extends Presence = Presence> {
  readonly presence: P;
  readonly kind: Kind<unknown>;
  readonly default: T | undefined;
}

/** The options of a function by name; a flag, a number or a string stands for an option with that default. */
export type Fields = Readonly<Record<string, Option | boolean | number | string>>;

/** An option as the function sees it. */
export type ValueOf<F> =
  F extends Option<infer T, infer P>
    ? P extends "optional"
      ? T | undefined
      : T
    : F extends boolean
      ? boolean
      : F extends number
        ? number
        : string;

type RequiredNames<F> = { [K in keyof F]: F[K] extends Option<unknown, "required"> ? K : never }[keyof F];
type Given<F, K extends keyof F> = { readonly [P in K]: ValueOf<F[P]> };
type MayBeGiven<F, K extends keyof F> = { readonly [P in K]?: ValueOf<F[P]> | undefined };

/** One field for each option of an interface that cannot follow from a schema because it has type parameters. */
export type FieldsOf<O> = { readonly [K in keyof Required<O>]: Fields[string] };

/** The options that a caller gives to a function with these fields. */
export type OptionsOfFields<F> = Given<F, RequiredNames<F>> &
  MayBeGiven<F, Exclude<keyof F, RequiredNames<F>>>;

/** The options that a caller gives to a function with this schema. */
export type OptionsOf<S extends Schema> = S extends Schema<infer F> ? OptionsOfFields<F> : never;

/** The options as a function with these fields reads them: defaults stand in for what is not given. */
export type Values<F> = { readonly [K in keyof F]: ValueOf<F[K]> };

/**
 * An option that must be given.
 *
 * @example
 * ```ts
 * const options = nn.schema({ features: nn.required("number") });
 * options.read({ features: 3 }, "Layer"); // { "features": 3 }
 * ```
 */
export function required<K extends ArgumentKind>(kind: K): Option<Kinds[K], "required">;
export function required<T>(kind: ArgumentKind | Kind<T>): Option<T, "required">;
/* @__NO_SIDE_EFFECTS__ */
export function required(kind: ArgumentKind | Kind<unknown>): Option<unknown, "required"> {
  return { presence: "required", kind: kindOf(kind), default: undefined };
}

/**
 * An option that may be left out, with a default if it has one.
 *
 * @example
 * ```ts
 * const options = nn.schema({ scale: nn.optional("number", 2) });
 * options.read({}, "double"); // { "scale": 2 }
 * ```
 */
export function optional<K extends ArgumentKind>(kind: K): Option<Kinds[K], "optional">;
export function optional<K extends ArgumentKind>(kind: K, value: Kinds[K]): Option<Kinds[K], "default">;
export function optional<T>(kind: ArgumentKind | Kind<T>): Option<T, "optional">;
export function optional<T>(kind: ArgumentKind | Kind<T>, value: NoInfer<T>): Option<T, "default">;
/* @__NO_SIDE_EFFECTS__ */
export function optional(kind: ArgumentKind | Kind<unknown>, value?: unknown): Option {
  return { presence: value === undefined ? "optional" : "default", kind: kindOf(kind), default: value };
}

function toOption(field: Option | boolean | number | string): Option {
  if (typeof field === "boolean") return optional("flag", field);
  if (typeof field === "number") return optional("number", field);
  return typeof field === "string" ? optional("string", field) : field;
}

/** Some of the fields of a schema. */
/* @__NO_SIDE_EFFECTS__ */
export function pick<F extends Fields, K extends keyof F>(fields: F, ...names: readonly K[]): Pick<F, K> {
  return Object.fromEntries(names.map((name) => [name, fields[name]])) as Pick<F, K>;
}

/** The fields of a schema without some of them. */
/* @__NO_SIDE_EFFECTS__ */
export function omit<F extends Fields, K extends keyof F>(fields: F, ...names: readonly K[]): Omit<F, K> {
  const left = Object.entries(fields).filter(([name]) => !names.some((one) => one === name));
  return Object.fromEntries(left) as Omit<F, K>;
}

/** The options of a function. */
export class Schema<F extends Fields = Fields> {
  /** The options as they were written, for schemas that have more. */
  readonly fields: F;
  readonly #options: readonly (readonly [name: string, option: Option])[];
  readonly #defaults: Values<F>;
  readonly #isRequired: boolean;

  constructor(fields: F) {
    this.fields = fields;
    this.#options = Object.entries(fields).map(([name, field]) => [name, toOption(field)]);
    this.#defaults = Object.freeze(
      Object.fromEntries(this.#options.map(([name, option]) => [name, option.default])),
    ) as Values<F>;
    this.#isRequired = this.#options.some(([, { presence }]) => presence === "required");
  }

  /**
   * The given options and the defaults of the others. Throws if one has an unknown name, since it would be ignored
   * silently, if one is not of its kind, or if a required one is missing.
   */
  read(given: unknown, caller: string): Values<F> {
    // Most calls have no options: they get the same object every time.
    if (given === undefined && !this.#isRequired) return this.#defaults;
    if (!isObject(given)) throw this.#notOptions(given, caller);
    for (const name of Object.keys(given)) {
      if (!Object.hasOwn(this.#defaults, name)) throw this.#unknown(given, caller);
    }
    const values: Record<string, unknown> = { ...this.#defaults };
    for (const [name, { kind, presence }] of this.#options) {
      const value: unknown = Reflect.get(given, name);
      if (value === undefined && presence !== "required") continue;
      if (!kind.is(value)) need(kind, value, name, caller);
      values[name] = value;
    }
    return values as Values<F>;
  }

  #notOptions(given: unknown, caller: string): Error {
    const names = Object.keys(this.fields).join(", ");
    return new ValueError(`[${caller}] the options must be an object of ${names}, got ${describe(given)}`);
  }

  #unknown(given: object, caller: string): Error {
    // A tensor, say, passed instead of the options has properties, but they are not meant as options.
    if (!isPlain(given)) return this.#notOptions(given, caller);
    const known = Object.keys(this.fields);
    const unknown = Object.keys(given).filter((name) => !Object.hasOwn(this.fields, name));
    const list = unknown.map((name) => JSON.stringify(name)).join(", ");
    const meant = unknown.map((name) => nearest(name, known)).find((name) => name !== undefined);
    return new ValueError(
      `[${caller}] unknown option ${list}: the options are ${known.join(", ") || "none"}${meant === undefined ? "" : `; did you mean ${meant}?`}`,
    );
  }
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Declares the options of a function.
 *
 * @example
 * ```ts
 * const options = nn.schema({ features: nn.required("number"), useBias: true });
 * options.read({ features: 3 }, "Layer"); // { "features": 3, "useBias": true }
 * ```
 */
/* @__NO_SIDE_EFFECTS__ */
export function schema<const F extends Fields>(fields: F): Schema<F> {
  return new Schema(fields);
}
