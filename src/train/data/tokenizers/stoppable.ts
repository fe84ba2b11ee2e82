/** Work with a time limit, such as a regular expression that may backtrack exponentially. */
import { createContext, Script } from "node:vm";
import { lazily } from "../../../ir/identity.js";

const prepared = lazily(() => ({ script: new Script("work()"), context: createContext({}) }));

/** Whether a pattern may take exponential time where nothing can stop it; here {@link within} does. */
export const canRunAway = (_pattern: RegExp): boolean => false;

/** What `work` returns, or undefined when it took longer than the given milliseconds. */
export function within<T>(limitMs: number, work: () => T): { readonly result: T } | undefined {
  // V8 checks the timeout inside of regular expressions, too.
  const { script, context } = prepared();
  const before: unknown = context.work;
  let result: { readonly result: T } | undefined;
  context.work = () => {
    result = { result: work() };
  };
  try {
    script.runInContext(context, { timeout: limitMs });
  } catch (error) {
    // The error comes from the other context, so `instanceof Error` is false.
    const code = typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
    if (code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
  } finally {
    context.work = before;
  }
  return result;
}
