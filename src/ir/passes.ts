import { environment } from "#platform/system";
import { InternalError, reasonOf } from "./errors.js";
import type { Stage } from "./opFacts.js";
import type { Program } from "./program.js";
import { verify } from "./verify.js";

/**
 * Whether the results of passes are checked: then no type is trusted that a rule of its op did not give. The tests set
 * it, and it is read once.
 */
export const checksPasses = Boolean(environment.SHARDWISE_VERIFY);

/** Called with the name and the result of a pass, and with the stage that the program has reached. */
export type PassListener = (pass: string, program: Program, stage: Stage) => void;

const listeners = new Set<PassListener>();

/** Calls a function with the result of every pass from now on; what it returns ends that. */
export function onPass(listener: PassListener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Wraps the result of a pass, and shows it to listeners. With `SHARDWISE_VERIFY` in the environment a program that is not
 * well formed is reported here, under the name of the pass that made it.
 */
export function afterPass(pass: string, program: Program, stage: Stage): Program {
  if (checksPasses) named(pass, () => verify(program, stage));
  for (const listener of listeners) listener(pass, program, stage);
  return program;
}

/** Runs a check of what a pass made; a failure names the pass. */
export function named(pass: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    const message = reasonOf(error);
    throw new InternalError(`the pass "${pass}" made an invalid program: ${message}`);
  }
}
