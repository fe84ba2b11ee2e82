/** Looking into programs while they run. */
import { need } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { onPass as listenToPasses, type PassListener } from "../../ir/passes.js";
import { Recent } from "../../ir/recent.js";
import type { OnHost } from "../../trace/hostArray.js";
import { isFields, parseTemplate } from "../../trace/placeholders.js";
import { callFromProgram } from "./callback.js";

/**
 * Calls a function with the values that its arguments have when the program gets there: in `jit`, loops, branches and
 * shard maps, on each device in its order. Under `vmap` it is called for one element after the other, under `grad`
 * once, in the forward pass. It does not affect what is computed.
 *
 * @example
 * ```ts
 * const seen: number[] = [];
 * jit((x: Tensor) => {
 *   debug.callback((value) => seen.push(value.item()), x);
 *   return x.mul(2);
 * })(np.array(3));
 * ```
 */
export function callback<const A extends readonly unknown[]>(
  fn: (...args: OnHost<A>) => void,
  ...args: A
): void {
  callFromProgram({ fn, caller: "debug.callback", kind: "debug", batching: "sequential" }, [], args);
}

/** Maximum number of format strings to cache, so that a loop with the same one calls the same function. */
const maxTexts = 256;

const printers = new Recent<ReturnType<typeof newPrinter>>(maxTexts, () => {});

function newPrinter(format: string) {
  const template = parseTemplate(format, "debug.print");
  const print = (...values: unknown[]): void => {
    const last = values.at(-1);
    const named = template.names.length > 0 && isFields(last) ? last : {};
    console.log(template.fill(values, named));
  };
  return { template, print };
}

/**
 * Prints values when the program gets there, as {@link callback} calls a function. `{}` is the next value, `{0}` the
 * first, `{name}` a field of the last one, which is then an object; `{loss:8.3f}` says width, digits and style.
 *
 * @example
 * ```ts
 * jit((x: Tensor) => {
 *   debug.print("loss {loss:.2f}", { loss: x });
 *   return x;
 * })(np.array(1.5));
 * ```
 */
export function print(format: string, ...values: unknown[]): void {
  need("string", format, "format", "debug.print");
  const { template, print: printer } = printers.get(format, () => newPrinter(format));
  const last = values.at(-1);
  const { names, numPositions } = template;
  const fields = names.length > 0 && isFields(last) ? last : undefined;
  const missing = names.find((name) => !Object.hasOwn(fields ?? {}, name));
  if (missing !== undefined) {
    throw new ValueError(
      `[debug.print] ${JSON.stringify(format)} names "${missing}": give { ${missing}: … } as the last value`,
    );
  }
  const given = values.length - (fields ? 1 : 0);
  if (given !== numPositions) {
    throw new ValueError(
      `[debug.print] ${JSON.stringify(format)} has places for ${numPositions} values, ${given} were given: write {} for each`,
    );
  }
  callFromProgram({ fn: printer, caller: "debug.print", kind: "debug", batching: "sequential" }, [], values);
}

/**
 * Calls a function with the program that every pass makes from now on: what tracing, transforms, the partitioner and the
 * compiler do to a function, in order. `printProgram` shows a program.
 *
 * @returns a function that ends it
 *
 * @example
 * ```ts
 * const passes: string[] = [];
 * const stop = debug.onPass((pass) => passes.push(pass));
 * makeProgram((x: Tensor) => x.mul(2))(np.array(1));
 * stop();
 * passes[0]; // "makeProgram"
 * ```
 */
export function onPass(listener: PassListener): () => void {
  need("function", listener, "listener", "debug.onPass");
  return listenToPasses(listener);
}
