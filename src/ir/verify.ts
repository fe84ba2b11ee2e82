import { InternalError } from "./errors.js";
import { inferTypes } from "./infer.js";
import { printEqn, printProgram } from "./print.js";
import { type Atom, type Eqn, innerPrograms, type Program } from "./program.js";
import { formatType, sameType } from "./shape.js";

/**
 * How far a program has come: `global` programs may hold shard maps and sharding constraints, `perDevice`
 * programs are what an engine compiles.
 */
export type Stage = "global" | "perDevice";

/**
 * Checks that the program is well formed: every value defined once and before its use, every equation's
 * results of the type its op's rule gives, nothing in it that its stage must not hold.
 *
 * @returns the program itself, so that a call can stand around any transform
 */
export function verify(program: Program, stage: Stage = "global"): Program {
  check(program, stage, program);
  return program;
}

function check(program: Program, stage: Stage, whole: Program): void {
  const defined = new Set<number>();
  const fail = (message: string): never => {
    throw new InternalError(`[verify] ${message}\nin the ${stage} program\n${printProgram(whole)}`);
  };
  const define = (id: number, what: string) => {
    if (defined.has(id)) fail(`${what} defines a value a second time`);
    defined.add(id);
  };
  const use = (atom: Atom, what: string) => {
    if (atom.kind === "var" && !defined.has(atom.id)) fail(`${what} reads a value before it is defined`);
  };
  for (const input of program.inputs) define(input.id, "an input");
  for (const eqn of program.eqns) {
    const text = printEqn(eqn);
    for (const atom of eqn.ins) use(atom, text);
    checkStage(eqn, stage, fail);
    checkTypes(eqn, fail);
    for (const [, inner] of innerPrograms(eqn)) check(inner, eqn.op === "shardMap" ? "global" : stage, whole);
    for (const out of eqn.outs) define(out.id, text);
  }
  for (const output of program.outputs) use(output, "return");
}

function checkStage(eqn: Eqn, stage: Stage, fail: (message: string) => never): void {
  if (stage === "perDevice" && (eqn.op === "shardMap" || eqn.op === "shardingConstraint")) {
    fail(`${eqn.op} must be gone from a per-device program`);
  }
}

function checkTypes(eqn: Eqn, fail: (message: string) => never): void {
  const inferred = inferTypes(eqn.op, eqn.ins, eqn.params);
  if (inferred.length !== eqn.outs.length) {
    fail(`${printEqn(eqn)} has ${eqn.outs.length} results, its rule gives ${inferred.length}`);
  }
  eqn.outs.forEach((out, i) => {
    const type = inferred[i];
    if (!type || !sameType(type, out.type)) {
      fail(`${printEqn(eqn)}: result ${i} should be ${type ? formatType(type) : "absent"}`);
    }
  });
}
