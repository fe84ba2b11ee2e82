import { bodiesOf, countGroups, groupsOf, inGroups, withBodies } from "../../ir/bodies.js";
import { hasEffects } from "../../ir/effects.js";
import { liveEqns } from "../../ir/liveness.js";
import type { ProgramOp } from "../../ir/ops.js";
import { afterPass } from "../../ir/passes.js";
import { type Eqn, hasPrograms, makeEqn, mapInnerPrograms, type Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { pick } from "./split.js";

/**
 * The program without equations that have unused results and no effects, and without unused results of inner programs.
 */
export function removeDeadCode(program: Program): Program {
  const wanted = program.outputs.map(() => true);
  return afterPass("removeDeadCode", trim(program, wanted).program, "traced");
}

/**
 * Only the equations that the outputs need, even without effects: for part of a program that runs in addition to the
 * whole, so that effects do not happen twice.
 */
export function sliceOf(program: Program): Program {
  const { eqns } = liveEqns(program, program.outputs, (eqn, used) =>
    used.includes(true) ? trimEqn(eqn, used) : undefined,
  );
  return afterPass("sliceOf", { ...program, eqns }, "traced");
}

/** A program reduced to some of its outputs, and which of its inputs it still reads. */
interface Trimmed {
  readonly program: Program;
  readonly read: readonly boolean[];
}

/** Keeps all inputs in place; `read` says which are used. */
function trim(program: Program, wanted: readonly boolean[]): Trimmed {
  const outputs = pick(program.outputs, wanted);
  const { eqns, isRead } = liveEqns(program, outputs, (eqn, used) =>
    used.includes(true) || hasEffects(eqn) ? trimEqn(eqn, used) : undefined,
  );
  return { program: { inputs: program.inputs, eqns, outputs }, read: program.inputs.map(isRead) };
}

/** What remains of an equation when only some of its results are read. */
function trimEqn(eqn: Eqn, used: readonly boolean[]): Eqn {
  if (eqn.op === "optimizationBarrier") {
    return { ...eqn, ins: pick(eqn.ins, used), outs: pick(eqn.outs, used) };
  }
  if (!hasPrograms(eqn)) return eqn;
  // The three programs of a custom rule agree on operands, results and residuals.
  if (eqn.op === "customVjp") return eqn;
  return eqn.op === "while" ? mapInnerPrograms(eqn, removeDeadCode) : trimBodies(eqn, used);
}

/** A carry is needed when its final value is read, or when a needed output of the body reads it. */
function trimBodies(eqn: Eqn<"scan" | "cond" | "remat" | "shardMap">, used: readonly boolean[]): Eqn {
  const { operands, results, sizes, bodies } = bodiesOf(eqn);
  let wanted = groupsOf(results, sizes, used);
  for (;;) {
    const trimmed = bodies.map(({ program, outputs }) => trim(program, inGroups(outputs, wanted)));
    const { inputs } = at(bodies, 0);
    const reads = at(trimmed, 0).read.map((_, i) => trimmed.some(({ read }) => read[i]));
    const read = groupsOf(inputs, sizes, reads);
    const carry = wanted.carry?.map((flag, i) => flag || at(read.carry ?? [], i)) ?? [];
    if (carry.some((flag, i) => flag !== wanted.carry?.[i])) {
      wanted = { ...wanted, carry };
      continue;
    }
    const kept = { ...read, index: [true], carry };
    const [keepIns, keepOuts] = [inGroups(operands, kept), inGroups(results, wanted)];
    const programs = trimmed.map(({ program }) => ({
      ...program,
      inputs: pick(program.inputs, inGroups(inputs, kept)),
    }));
    const params = withBodies<ProgramOp>(
      eqn,
      programs,
      countGroups(operands, sizes, keepIns),
      (inSpecs, outSpecs) => ({ inSpecs: pick(inSpecs, keepIns), outSpecs: pick(outSpecs, keepOuts) }),
    );
    return makeEqn<ProgramOp>(eqn.op, pick(eqn.ins, keepIns), pick(eqn.outs, keepOuts), params, eqn.source);
  }
}
