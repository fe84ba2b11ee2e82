import { environment } from "#platform/system";
import { findDifference } from "./comparePrograms.js";
import { InternalError, reasonOf } from "./errors.js";
import type { Stage } from "./opFacts.js";
import { parseProgram } from "./parse.js";
import { printProgram } from "./print.js";
import {
  type Eqn,
  hasPrograms,
  innerPrograms,
  makeEqn,
  mapInnerPrograms,
  newLiteral,
  newVar,
  type Program,
  type Var,
} from "./program.js";
import { atomKind, textKind } from "./textKind.js";
import { verify } from "./verify.js";

/** Which checks of passes are on: the tests set it, and it is read once. */
const checked = environment.SHARDWISE_VERIFY;

const checksTexts = checked === "texts" || checked === "all-texts";

/** Whether the results of passes are checked: then no type is trusted that a rule of its op did not give. */
export const checksPasses = checksTexts || checked === "passes";

/** Called with the name and the result of a pass, and with the stage that the program has reached. */
export type PassListener = (pass: string, program: Program, stage: Stage) => void;

const listeners = new Set<PassListener>();

/** Calls a function with the result of every pass from now on; what it returns ends that. */
export function onPass(listener: PassListener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Wraps the result of a pass, and shows it to listeners. With `SHARDWISE_VERIFY=passes` in the environment a program that is not well formed is
 * reported here, under the name of the pass that made it; with `SHARDWISE_VERIFY=texts` also one whose printed form
 * does not parse back to it, tested on a few equations of every kind, and with `SHARDWISE_VERIFY=all-texts` on all;
 * otherwise nothing is done.
 */
export function afterPass(pass: string, program: Program, stage: Stage): Program {
  if (checksTexts) checkPass(pass, program, stage);
  else if (checked === "passes") named(pass, () => verify(program, stage));
  for (const listener of listeners) listener(pass, program, stage);
  return program;
}

/** Checks the result of a pass: {@link verify}, and that the printed program parses back to itself. */
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
    const message = reasonOf(error);
    throw new InternalError(`the pass "${pass}" made an invalid program: ${message}`);
  }
}

/** Equations that need not be parsed back, or not again: they never change. */
const readBack = new WeakSet<Eqn>();

/** How many equations of each kind of text were parsed back, and which kinds of inputs and constants. */
const numRead = new Map<string, number>();
const readAtoms = new Set<string>();

/** Maximum number of equations of a kind to parse back, unless all are. */
const enough = checked === "all-texts" ? Number.POSITIVE_INFINITY : 4;

function checkText(program: Program): void {
  if (isRead(program)) return;
  const text = unread(partRead(program));
  const printed = printProgram(text);
  const difference = findDifference(text, parseProgram(printed));
  if (difference !== undefined) {
    throw new InternalError(`it is read back differently (${difference}) from\n${printed}`);
  }
  noteRead(program);
}

/** The program with those of its inputs and outputs that are new or that new equations read. */
function partRead({ inputs, eqns, outputs }: Program): Program {
  const fresh = eqns.filter((eqn) => !wasReadBack(eqn));
  const read = new Set(fresh.flatMap(({ ins }) => ins.map((atom) => (atom.kind === "var" ? atom.id : -1))));
  return {
    inputs: inputs.filter((input) => read.has(input.id) || !readAtoms.has(atomKind(input))),
    eqns: fresh,
    outputs: outputs.filter(({ kind }) => kind === "literal"),
  };
}

function noteRead({ inputs, eqns, outputs }: Program): void {
  for (const atom of [...inputs, ...outputs]) readAtoms.add(atomKind(atom));
  for (const eqn of eqns) {
    if (readBack.has(eqn)) continue;
    readBack.add(eqn);
    const kind = textKind(eqn);
    if (kind !== undefined) numRead.set(kind, (numRead.get(kind) ?? 0) + 1);
    for (const [, inner] of innerPrograms(eqn)) noteRead(inner);
  }
}

/** Whether no part of a program needs to be parsed back. */
function isRead({ inputs, eqns, outputs }: Program): boolean {
  return (
    eqns.every(wasReadBack) &&
    inputs.every((input) => readAtoms.has(atomKind(input))) &&
    outputs.every((atom) => atom.kind === "var" || readAtoms.has(atomKind(atom)))
  );
}

function wasReadBack(eqn: Eqn): boolean {
  if (readBack.has(eqn)) return true;
  const kind = textKind(eqn);
  if (kind === undefined || (numRead.get(kind) ?? 0) < enough) return false;
  if (hasPrograms(eqn) && !innerPrograms(eqn).every(([, inner]) => isRead(inner))) return false;
  readBack.add(eqn);
  return true;
}

/** The program without the equations already parsed back; uses of their results become zeros. */
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
