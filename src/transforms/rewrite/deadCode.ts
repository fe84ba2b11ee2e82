import { hasEffects } from "../../ir/effects.js";
import { liveEqns } from "../../ir/liveness.js";
import type { OpName, ProgramOp } from "../../ir/ops.js";
import { afterPass } from "../../ir/passes.js";
import { type Eqn, hasPrograms, type Program } from "../../ir/program.js";
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
type Trim<K extends OpName> = (eqn: Eqn<K>, used: readonly boolean[]) => Eqn<K>;

/** Ops with parts that can be removed; all others compute their results together. */
const trims: { readonly [K in ProgramOp | "optimizationBarrier"]: Trim<K> } = {
  scan: trimScan,
  while: (eqn) => {
    const { condition, body } = eqn.params;
    return {
      ...eqn,
      params: { ...eqn.params, condition: removeDeadCode(condition), body: removeDeadCode(body) },
    };
  },
  cond: (eqn, used) => {
    const branches = eqn.params.branches.map((branch) => trim(branch, used));
    const read = eqn.ins.slice(1).map((_, i) => branches.some((branch) => branch.read[i]));
    return {
      ...eqn,
      ins: [at(eqn.ins, 0), ...pick(eqn.ins.slice(1), read)],
      outs: pick(eqn.outs, used),
      params: {
        branches: branches.map(({ program }) => ({ ...program, inputs: pick(program.inputs, read) })),
      },
    };
  },
  remat: (eqn, used) => {
    const { program, read } = trim(eqn.params.body, used);
    const body = { ...program, inputs: pick(program.inputs, read) };
    return {
      ...eqn,
      ins: pick(eqn.ins, read),
      outs: pick(eqn.outs, used),
      params: { ...eqn.params, body },
    };
  },
  // The three programs agree on operands, results and residuals.
  customVjp: (eqn) => eqn,
  shardMap: (eqn, used) => {
    const { program, read } = trim(eqn.params.body, used);
    return {
      ...eqn,
      ins: pick(eqn.ins, read),
      outs: pick(eqn.outs, used),
      params: {
        ...eqn.params,
        body: { ...program, inputs: pick(program.inputs, read) },
        inSpecs: pick(eqn.params.inSpecs, read),
        outSpecs: pick(eqn.params.outSpecs, used),
      },
    };
  },
  optimizationBarrier: (eqn, used) => ({
    ...eqn,
    ins: pick(eqn.ins, used),
    outs: pick(eqn.outs, used),
  }),
};

function trimEqn(eqn: Eqn, used: readonly boolean[]): Eqn {
  if (hasPrograms(eqn) || eqn.op === "optimizationBarrier") return trimParts(eqn, used);
  return eqn;
}

function trimParts<K extends keyof typeof trims>(eqn: Eqn<K>, used: readonly boolean[]): Eqn<K> {
  const { op }: { readonly op: K } = eqn;
  const rule: Trim<K> = trims[op];
  return rule(eqn, used);
}

/** A carry is needed when its final value is read, or when a needed output of the body reads it. */
function trimScan(eqn: Eqn<"scan">, used: readonly boolean[]): Eqn<"scan"> {
  const { numConsts, numCarry, body } = eqn.params;
  const wanted = [...used];
  let trimmed = trim(body, wanted);
  for (let changed = true; changed; ) {
    changed = false;
    for (let c = 0; c < numCarry; c++) {
      if (trimmed.read[numConsts + c] && !wanted[c]) {
        wanted[c] = true;
        changed = true;
      }
    }
    if (changed) trimmed = trim(body, wanted);
  }
  const keep = eqn.ins.map((_, i) => {
    const carry = i - numConsts;
    return carry >= 0 && carry < numCarry ? (wanted[carry] ?? false) : (trimmed.read[i] ?? false);
  });
  return {
    ...eqn,
    ins: pick(eqn.ins, keep),
    outs: pick(eqn.outs, wanted),
    params: {
      ...eqn.params,
      body: { ...trimmed.program, inputs: pick(body.inputs, keep) },
      numConsts: keep.slice(0, numConsts).filter(Boolean).length,
      numCarry: wanted.slice(0, numCarry).filter(Boolean).length,
    },
  };
}
