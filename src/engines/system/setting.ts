import { ConfigError } from "../../ir/errors.js";

/** What the value of an environment variable stands for; throws for an unknown one with a list of those known. */
export function settingOf<T>(variable: string, given: string, known: { readonly [setting: string]: T }): T {
  const found = Object.hasOwn(known, given) ? known[given] : undefined;
  if (found !== undefined) return found;
  const settings = Object.keys(known).join(", ");
  throw new ConfigError(`${variable} is "${given}": use one of ${settings}, or leave it out`);
}
