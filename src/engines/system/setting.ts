import { ShardwiseError } from "../../ir/errors.js";

/** What a variable of the environment stands for; one that it does not know is refused with those that it does. */
export function settingOf<T>(variable: string, given: string, known: { readonly [setting: string]: T }): T {
  const found = Object.hasOwn(known, given) ? known[given] : undefined;
  if (found !== undefined) return found;
  const settings = Object.keys(known).join(", ");
  throw new ShardwiseError("config", `${variable} is "${given}": use one of ${settings}, or leave it out`);
}
