import { findDifference, sameKind } from "./compare.js";
import { InternalError } from "./errors.js";
import { formatMesh } from "./mesh.js";
import { parseProgram } from "./parse.js";
import { printEqn, printProgram } from "./print.js";
import {
  type Atom,
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
import type { TensorType } from "./shape.js";
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

/** Types of inputs that were read back before. */
const knownTypes = new Set<string>();

function checkText(program: Program): void {
  const text = unreadPart(program);
  if (text === undefined) return;
  const printed = printProgram(text);
  const difference = findDifference(text, parseProgram(printed));
  if (difference !== undefined) {
    throw new InternalError(`it is read back differently (${difference}) from\n${printed}`);
  }
  for (const { type } of text.inputs) knownTypes.add(typeText(type));
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

/** An equation as text: the types of its values, its constants, and its parameters, which most have none of. */
function textAlone(eqn: Eqn): string {
  const atomText = (atom: Atom) =>
    atom.kind === "literal" ? `${atom.value}:${atom.type.dtype}` : typeText(atom.type);
  const own = Object.keys(eqn.params).length === 0 ? eqn.op : printEqn(eqn);
  return `${own} ${eqn.ins.map(atomText).join()} ${eqn.outs.map(atomText).join()}`;
}

const typeText = ({ dtype, shape, varying }: TensorType): string =>
  `${dtype}[${shape.join()}]${varying ? formatMesh({ axes: varying }) : ""}`;

/** What of a whole program was not read back before and what that reads, or nothing. */
function unreadPart({ inputs, eqns, outputs }: Program): Program | undefined {
  const fresh = eqns.filter((eqn) => !wasReadBack(eqn));
  const read = new Set(fresh.flatMap(({ ins }) => ins.map((atom) => (atom.kind === "var" ? atom.id : -1))));
  const newInputs = inputs.filter(({ id, type }) => read.has(id) || !knownTypes.has(typeText(type)));
  const newOutputs = outputs.filter((atom) => atom.kind === "literal");
  if (fresh.length + newInputs.length + newOutputs.length === 0) return undefined;
  return unread({ inputs: newInputs, eqns: fresh, outputs: newOutputs });
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
