/**
 * Prints the results of passes and reads them back. With `SHARDWISE_VERIFY=texts` a few equations of every kind are
 * tested, and with `SHARDWISE_VERIFY=all-texts` all.
 */
import { InternalError } from "../../src/ir/errors.js";
import { named, onPass } from "../../src/ir/passes.js";
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
} from "../../src/ir/program.js";
import { parseProgram } from "../../src/ir/text/parse.js";
import { printProgram } from "../../src/ir/text/print.js";
import { findDifference } from "./comparePrograms.js";
import { atomKind, textKind } from "./textKind.js";

/** Equations that need not be parsed back, or not again: they never change. */
const readBack = new WeakSet<Eqn>();

/** How many equations of each kind of text were parsed back, and which kinds of inputs and constants. */
const numRead = new Map<string, number>();
const readAtoms = new Set<string>();

/** Maximum number of equations of a kind to parse back, unless all are. */
const enough = process.env.SHARDWISE_VERIFY === "all-texts" ? Number.POSITIVE_INFINITY : 4;

let isOn = false;

/** Checks the texts of what passes make from now on. */
export function readBackTexts(): void {
  if (!isOn) onPass(checkText);
  isOn = true;
}

/** Throws unless the printed result of a pass parses back to itself. */
export function checkText(pass: string, program: Program): void {
  named(pass, () => checkProgram(program));
}

function checkProgram(program: Program): void {
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
