/** Checks of values inside of programs, which come back as a value. */
import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { DTypeError, ValueError } from "../../ir/errors.js";
import { Recent } from "../../ir/recent.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { isFields, parseTemplate } from "../../trace/placeholders.js";
import { Tensor } from "../../trace/tensor.js";
import { flattenArgs } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { newCheck } from "../../transforms/checks/checks.js";
import { ErrorValue } from "../../transforms/checks/errorValue.js";

export {
  allChecks,
  automaticChecks,
  checkify,
  divChecks,
  floatChecks,
  indexChecks,
  nanChecks,
  userChecks,
} from "../../transforms/checks/checkify.js";
export type { ErrorCategory } from "../../transforms/checks/checks.js";
export { ErrorValue } from "../../transforms/checks/errorValue.js";

/** Maximum number of messages to cache, so that a loop with the same check calls the same function. */
const maxTexts = 256;

const known = new Recent<ReturnType<typeof newCheck>>(maxTexts, () => {});

/**
 * Checks that something holds when the program gets there. In a function that {@link checkify} was given, what does not
 * hold becomes its error; outside of compiled functions it is thrown at once.
 *
 * @param predicate one bool
 * @param message what to say; `{}`, `{0}` and `{name}` are placeholders for values, as in `debug.print`
 *
 * @example
 * ```ts
 * const [error] = checkify.checkify((x: Tensor) => {
 *   checkify.check(x.gt(0), "x must be positive, got {}", x);
 *   return x;
 * })(np.array(-1));
 * (await error.get()) !== null; // true
 * ```
 */
export function check(predicate: Tensor | boolean, message: string, ...values: unknown[]): void {
  need("string", message, "message", "check");
  const holds = typeof predicate === "boolean" ? Tensor.scalar(predicate, "bool") : predicate;
  if (!(holds instanceof Tensor) || holds.ndim !== 0 || holds.dtype !== "bool") {
    const given = holds instanceof Tensor ? holds : describe(holds);
    throw new DTypeError(`[check] takes one bool, got ${given}: reduce it with np.all or np.any`);
  }
  const flat = flattenArgs(values, "check");
  const template = parseTemplate(message, "check");
  const last = values.at(-1);
  const named = template.names.length > 0 && isFields(last) ? last : {};
  const missing = template.names.find((name) => !Object.hasOwn(named, name));
  if (missing !== undefined || template.numPositions > values.length) {
    throw new ValueError(
      `[check] ${JSON.stringify(message)} has a place for ${missing === undefined ? `${template.numPositions} values, ${values.length} were given` : `"${missing}": give { ${missing}: … } as the last value`}`,
    );
  }
  const fn = known.get(`${JSON.stringify(message)} ${tree.formatStructure(flat.structure)}`, () =>
    newCheck((arrays) => {
      const given = tree.unflatten<unknown[]>(flat.structure, arrays);
      const fields = given.at(-1);
      const text = template.fill(given, template.names.length > 0 && isFields(fields) ? fields : {});
      return `${text} (\`check\` failed)`;
    }),
  );
  bindCheck(fn, [holds, ...flat.tensors]);
}

/**
 * Throws what an error value says, as {@link check} does: at once, or as the error of a surrounding {@link checkify}.
 *
 * @example
 * ```ts
 * const [error, y] = checkify.checkify((x: Tensor) => x.mul(2))(np.array(2));
 * checkify.checkError(error);
 * y; // 4
 * ```
 */
export function checkError(error: ErrorValue): void {
  if (!(error instanceof ErrorValue)) {
    throw new ValueError(
      `[checkError] takes the error of a function made by checkify, got ${describe(error)}`,
    );
  }
  const { code, kept, sites } = error;
  const fn = known.get(`checks ${sites.id}`, () => newCheck(error.describe));
  bindCheck(fn, [ops.compare("eq", code, 0), code, ...kept]);
}

function bindCheck(fn: ReturnType<typeof newCheck>, operands: readonly Tensor[]): void {
  bind("callback", operands, { fn, kind: "check", batching: "broadcastAll", results: [], once: [] });
}
