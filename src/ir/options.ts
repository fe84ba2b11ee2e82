import { ValueError } from "./errors.js";

/** The names of all options of a type, each of which the compiler asks for. */
export type OptionNames<O> = { readonly [K in keyof Required<O>]: true };

/** Throws unless all options have names that a function knows: a misspelt one would be left out without a word. */
export function checkOptions<O>(options: unknown, names: OptionNames<O>, caller: string): void {
  if (options === undefined) return;
  const known = Object.keys(names);
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new ValueError(
      `[${caller}] the options must be an object of ${known.join(", ")}, got ${describe(options)}`,
    );
  }
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(names, name));
  if (unknown.length === 0) return;
  const list = unknown.map((name) => JSON.stringify(name)).join(", ");
  throw new ValueError(
    `[${caller}] there is no option ${list}: the options are ${known.join(", ") || "none"}`,
  );
}

/** What a value is, for messages that must not fail. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
