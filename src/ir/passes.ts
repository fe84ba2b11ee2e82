import { findDifference, sameKind } from "./compare.js";
import { InternalError } from "./errors.js";
import { parseProgram } from "./parse.js";
import { printEqn, printProgram } from "./print.js";
import {
  type Eqn,
  forEachEqn,
  hasPrograms,
  makeEqn,
  mapInnerPrograms,
  newLiteral,
  newVar,
  type Program,
  type Var,
} from "./program.js";
import { formatType } from "./shape.js";
import { type Stage, verify } from "./verify.js";

/** What is checked of passes: the tests set it, and it is read once. */
const checked = process.env.SHARDWISE_VERIFY;

/** Whether what passes make is checked: then nothing is taken for right because of who made it. */
export const checksPasses = checked === "texts" || checked === "passes";

/**
 * Stands around what a pass made. With `SHARDWISE_VERIFY=passes` in the environment a program that is not well
 * formed is reported here, under the name of the pass that made it; with `SHARDWISE_VERIFY=texts` also one that is
 * not read back as it was printed; otherwise nothing is done.
 */
export function afterPass(pass: string, program: Program, stage: Stage): Program {
  if (checked === "texts") checkPass(pass, program, stage);
  else if (checked === "passes") named(pass, () => verify(program, stage));
  return program;
}

/** Checks what a pass made: {@link verify}, and that the printed program is read back as it is. */
export function checkPass(pass: string, program: Program, stage: Stage): void {
  named(pass, () => {
    verify(program, stage);
    checkText(program);
  });
}

function named(pass: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new InternalError(`the pass "${pass}" made a wrong program: ${message}`);
  }
}

/** Equations that were read back before. They never change, so they need not be read again in the next program. */
const readBack = new WeakSet<Eqn>();

/** One equation that was read back for each text: what is the same as it need not be read again either. */
const examples = new Map<string, Eqn>();
const mostExamples = 50_000;

function checkText(program: Program): void {
  const text = unread(program);
  const printed = printProgram(text);
  const difference = findDifference(text, parseProgram(printed));
  if (difference !== undefined) {
    throw new InternalError(`it is read back differently (${difference}) from\n${printed}`);
  }
  forEachEqn(program, (eqn) => {
    if (readBack.has(eqn)) return;
    readBack.add(eqn);
    if (hasPrograms(eqn)) return;
    if (examples.size === mostExamples) examples.clear();
    examples.set(textAlone(eqn), eqn);
  });
}

function wasReadBack(eqn: Eqn): boolean {
  if (readBack.has(eqn)) return true;
  if (hasPrograms(eqn)) return false;
  const example = examples.get(textAlone(eqn));
  if (example === undefined || !sameKind(example, eqn)) return false;
  readBack.add(eqn);
  return true;
}

/** An equation as text: which of the values that it reads are the same, and all that its parameters may be read by. */
function textAlone(eqn: Eqn): string {
  return `${printEqn(eqn)} ${eqn.ins.map(({ type }) => formatType(type)).join()}`;
}

/** The program without the equations that were read back; what others read of their results is zeros. */
function unread({ inputs, eqns, outputs }: Program): Program {
  const fresh = eqns.filter((eqn) => !wasReadBack(eqn)).map((eqn) => mapInnerPrograms(eqn, unread));
  const defined = new Set([...inputs, ...fresh.flatMap(({ outs }) => outs)].map(({ id }) => id));
  const zeros: Eqn[] = [];
  for (const atom of [...fresh.flatMap(({ ins }) => ins), ...outputs]) {
    if (atom.kind === "literal" || defined.has(atom.id)) continue;
    defined.add(atom.id);
    zeros.push(...zerosFor(atom));
  }
  return { inputs, eqns: [...zeros, ...fresh], outputs };
}

function zerosFor(variable: Var): Eqn[] {
  const { dtype, shape, varying } = variable.type;
  const zero = newLiteral(0, dtype);
  const alike = varying ? newVar({ dtype, shape }) : variable;
  const eqn = makeEqn("broadcastInDim", [zero], [alike], { shape, dims: [] });
  return varying ? [eqn, makeEqn("pvary", [alike], [variable], { over: varying })] : [eqn];
}
