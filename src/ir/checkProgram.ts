/** Checks of programs that come from outside the library: from third-party engines and from users who build programs. */
import { need } from "./arguments.js";
import { ValueError } from "./errors.js";
import { isWellTyped } from "./infer/repeated.js";
import type { Eqn, Program } from "./program.js";
import { isTyped } from "./shape.js";

const isAtom = (value: unknown): boolean =>
  typeof value === "object" &&
  value !== null &&
  "kind" in value &&
  (value.kind === "var" || value.kind === "literal") &&
  "type" in value &&
  isTyped(value.type);

const isList = (value: unknown, isEntry: (entry: unknown) => boolean): boolean =>
  Array.isArray(value) && value.every(isEntry);

const isEqn = (value: unknown): boolean => {
  if (typeof value !== "object" || value === null) return false;
  if (isWellTyped(value)) return true;
  const { op, params, ins, outs } = value as Partial<Eqn>;
  return (
    typeof op === "string" &&
    typeof params === "object" &&
    params !== null &&
    isList(ins, isAtom) &&
    isList(outs, isAtom)
  );
};

/** Throws unless a value has the structure of a program; `verify` checks whether it is well formed. */
export function needProgram(program: unknown, caller: string): asserts program is Program {
  need("object", program, "the program", caller);
  const { inputs, eqns, outputs } = program as Partial<Program>;
  const parts = {
    inputs: isList(inputs, isAtom),
    equations: isList(eqns, isEqn),
    outputs: isList(outputs, isAtom),
  };
  const wrong = Object.entries(parts).find(([, isRight]) => !isRight);
  if (!wrong) return;
  throw new ValueError(
    `[${caller}] the ${wrong[0]} of the program are not what makeProgram and parseProgram give`,
  );
}
