import type { Atom, Eqn, Program } from "../ir/program.js";
import { at } from "../ir/shape.js";

/** The program without equations whose results nobody reads, and without unread results of inner programs. */
export function removeDeadCode(program: Program): Program {
  return trim(
    program,
    program.outputs.map(() => true),
  ).program;
}

/** A program reduced to some of its outputs, and which of its inputs it still reads. */
interface Trimmed {
  readonly program: Program;
  readonly read: readonly boolean[];
}

/** Keeps all inputs in place; `read` tells which are used. */
function trim(program: Program, wanted: readonly boolean[]): Trimmed {
  const live = new Set<number>();
  const mark = (atom: Atom) => {
    if (atom.kind === "var") live.add(atom.id);
  };
  const outputs = program.outputs.filter((_, i) => wanted[i]);
  outputs.forEach(mark);
  const kept: Eqn[] = [];
  for (let i = program.eqns.length - 1; i >= 0; i--) {
    const eqn = at(program.eqns, i);
    const used = eqn.outs.map((out) => live.has(out.id));
    if (!used.includes(true)) continue;
    const trimmed = trimEqn(eqn, used);
    trimmed.ins.forEach(mark);
    kept.push(trimmed);
  }
  const reduced = { inputs: program.inputs, eqns: kept.reverse(), outputs };
  return { program: reduced, read: program.inputs.map((input) => live.has(input.id)) };
}

const pick = <T>(list: readonly T[], keep: readonly boolean[]): T[] => list.filter((_, i) => keep[i]);

function trimEqn(eqn: Eqn, used: readonly boolean[]): Eqn {
  switch (eqn.op) {
    case "scan":
      return trimScan(eqn, used);
    case "cond": {
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
    }
    case "remat": {
      const { program, read } = trim(eqn.params.body, used);
      const body = { ...program, inputs: pick(program.inputs, read) };
      return {
        ...eqn,
        ins: pick(eqn.ins, read),
        outs: pick(eqn.outs, used),
        params: { ...eqn.params, body },
      };
    }
    case "shardMap": {
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
    }
    case "while": {
      const everything = (p: Program) =>
        trim(
          p,
          p.outputs.map(() => true),
        ).program;
      const { condition, body } = eqn.params;
      return { ...eqn, params: { ...eqn.params, condition: everything(condition), body: everything(body) } };
    }
    case "optimizationBarrier":
      return { ...eqn, ins: pick(eqn.ins, used), outs: pick(eqn.outs, used) };
    default:
      return eqn;
  }
}

/** A carry is needed when its end is read, or when a needed output of the body reads it. */
function trimScan(eqn: Eqn<"scan">, used: readonly boolean[]): Eqn {
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
