import { findDifference } from "./compare.js";
import { InternalError } from "./errors.js";
import { parseProgram } from "./parse.js";
import { printProgram } from "./print.js";
import type { Program } from "./program.js";
import { type Stage, verify } from "./verify.js";

/** Whether passes are checked: the tests set it, and it is read once. */
const isChecking = process.env.SHARDWISE_VERIFY === "passes";

/**
 * Stands around what a pass made. With `SHARDWISE_VERIFY=passes` in the environment a program that is not well
 * formed is reported here, under the name of the pass that made it; otherwise nothing is done.
 */
export function afterPass(pass: string, program: Program, stage: Stage): Program {
  if (isChecking) checkPass(pass, program, stage);
  return program;
}

/** Checks what a pass made: {@link verify}, and that the printed program is read back as it is. */
export function checkPass(pass: string, program: Program, stage: Stage): void {
  try {
    verify(program, stage);
    checkText(program);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new InternalError(`the pass "${pass}" made a wrong program: ${message}`);
  }
}

function checkText(program: Program): void {
  const text = printProgram(program);
  const difference = findDifference(program, parseProgram(text));
  if (difference !== undefined) {
    throw new InternalError(`it is read back differently (${difference}) from\n${text}`);
  }
}
