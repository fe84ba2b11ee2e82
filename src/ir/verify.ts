import { needProgram } from "./checkProgram.js";
import { describe } from "./describe.js";
import { isFloat, sumType } from "./dtype.js";
import { InternalError, ValueError } from "./errors.js";
import { inferTypes } from "./infer/infer.js";
import { isWellTyped, noteWellTyped } from "./infer/repeated.js";
import { missingAxes, needNoMarks, operandVarying, varyingAxes } from "./infer/varying.js";
import { factsOf, type Stage } from "./opFacts.js";
import type { OpName } from "./ops.js";
import { type Atom, type Eqn, hasPrograms, innerPrograms, type Program } from "./program.js";
import { at, formatType, sameType } from "./shape.js";
import { printEqn, printProgram } from "./text/print.js";

/** The stages in order. */
const order: { readonly [S in Stage]: number } = { traced: 0, partitioned: 1, lowered: 2 };

/**
 * Checks that the program is well formed: every value defined once and before its use, every equation's results of the
 * type its op's rule gives, no op that its stage must not contain.
 *
 * @returns the program itself, so that a call can wrap any transform
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => x.mul(2))(np.array([1, 2]));
 * verify(program) === program; // true
 * ```
 */
export function verify(program: Program, stage: Stage = "traced"): Program {
  if (!stages.includes(stage)) {
    throw new ValueError(`[verify] unknown stage ${describe(stage)}: use ${stages.join(", ")}`);
  }
  if (!verified[stage].has(program)) needProgram(program, "verify");
  check(program, stage, program);
  return program;
}

/** Programs that were verified at a stage. They never change, and passes reuse the parts that they leave alone. */
const verified: { readonly [S in Stage]: WeakSet<Program> } = {
  traced: new WeakSet(),
  partitioned: new WeakSet(),
  lowered: new WeakSet(),
};

const stages: readonly unknown[] = Object.keys(order);

function check(program: Program, stage: Stage, whole: Program): void {
  if (verified[stage].has(program)) return;
  const defined = new Set<number>();
  const fail = (message: string): never => {
    throw new InternalError(`[verify] ${message}\nin the ${stage} program\n${printProgram(whole)}`);
  };
  const define = (id: number, eqn?: Eqn) => {
    if (defined.has(id)) fail(`${eqn ? printEqn(eqn) : "an input"} defines a value a second time`);
    defined.add(id);
  };
  const use = (atom: Atom, eqn?: Eqn) => {
    if (atom.kind === "literal" || defined.has(atom.id)) return;
    fail(`${eqn ? printEqn(eqn) : "return"} reads a value before it is defined`);
  };
  for (const input of program.inputs) define(input.id);
  for (const eqn of program.eqns) {
    for (const atom of eqn.ins) use(atom, eqn);
    checkStage(eqn, stage, fail);
    checkTypes(eqn, fail);
    if (hasPrograms(eqn)) for (const [, inner] of innerPrograms(eqn)) check(inner, stage, whole);
    for (const out of eqn.outs) define(out.id, eqn);
  }
  for (const output of program.outputs) use(output);
  verified[stage].add(program);
}

function checkStage(eqn: Eqn, stage: Stage, fail: (message: string) => never): void {
  if (order[stage] > order[factsOf(eqn.op).until]) fail(`${eqn.op} must not occur in a ${stage} program`);
  if (stage !== "lowered") return;
  switch (eqn.op) {
    case "dotGeneral":
    case "raggedDot":
    case "reduceSum":
    case "reduceMax":
    case "reduceMin":
    case "cumsum": {
      const { dtype } = at(eqn.ins, 0).type;
      const product = eqn.op === "dotGeneral" || eqn.op === "raggedDot" ? eqn.params : undefined;
      const isExactProduct = product !== undefined && !isFloat(dtype);
      const isWideProduct = dtype === "bfloat16" && product?.dtype === "float32";
      if ((sumType(dtype) !== dtype && !isWideProduct) || isExactProduct) {
        fail(`${eqn.op} of ${dtype} must not occur in a lowered program`);
      }
      return;
    }
    case "allToAll":
      if (eqn.params.splitDim !== 0 || eqn.params.concatDim !== 0) {
        fail(`${printEqn(eqn)} must work along dim 0 in a lowered program`);
      }
      return;
    default:
  }
}

function checkTypes(eqn: Eqn, fail: (message: string) => never): void {
  if (isWellTyped(eqn)) return;
  const inferred = inferTypes(eqn.op, eqn.ins, eqn.params);
  if (inferred.length !== eqn.outs.length) {
    fail(`${printEqn(eqn)} has ${eqn.outs.length} results, its rule gives ${inferred.length}`);
  }
  eqn.outs.forEach((out, i) => {
    const type = inferred[i];
    if (!type || !sameType(type, out.type)) {
      fail(`${printEqn(eqn)}: result ${i} should be ${type ? formatType(type) : "absent"}`);
    }
    const hidden = type ? missingAxes(varyingAxes(out.type), varyingAxes(type)) : [];
    if (hidden.length > 0) fail(`${printEqn(eqn)}: result ${i} may differ along "${hidden[0]?.name}"`);
  });
  if (!needNoMarks(eqn.op, eqn.ins)) checkVarying(eqn, fail);
  noteWellTyped(eqn);
}

function checkVarying(eqn: Eqn, fail: (message: string) => never): void {
  operandVarying<OpName>(eqn.op, eqn.ins, eqn.params).forEach((axes, i) => {
    const given = varyingAxes(at(eqn.ins, i).type);
    const unlike = [...missingAxes(given, axes), ...missingAxes(axes, given)][0];
    if (unlike && isFloat(at(eqn.ins, i).type.dtype) && at(eqn.ins, i).kind === "var") {
      fail(
        `${printEqn(eqn)}: operand ${i} must differ along "${unlike.name}" where the program inside or the other operands do, and only there`,
      );
    }
  });
}
