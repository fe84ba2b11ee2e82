/** Work that can be stopped from outside, such as a regular expression that backtracks without end. */
import { createContext, Script } from "node:vm";
import { lazily } from "../../ir/identity.js";

const prepared = lazily(() => ({ script: new Script("work()"), context: createContext({}) }));

/** What `work` returns, or undefined when it took longer than the given milliseconds. */
export function within<T>(limitMs: number, work: () => T): { readonly result: T } | undefined {
  // V8 looks for the end of the time also inside of regular expressions.
  const { script, context } = prepared();
  const before: unknown = context.work;
  let result: { readonly result: T } | undefined;
  context.work = () => {
    result = { result: work() };
  };
  try {
    script.runInContext(context, { timeout: limitMs });
  } catch (error) {
    // The error comes from the other context, whose class of errors is another one.
    const code = typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
    if (code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
  } finally {
    context.work = before;
  }
  return result;
}
