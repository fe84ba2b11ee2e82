/** The memory of a per-device program whose compiler fuses: what is stored, from its kernel to its last reader. */
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll } from "../../ir/shape.js";
import { Fusion } from "./fusion.js";

/** What of a program's inputs counts. */
interface InputMemory {
  /** The bytes that an input takes inside; 0 if it belongs to the surroundings. */
  readonly bytes: (input: Var, index: number) => number;
  /** Whether its memory is free after its last reader. */
  readonly ends: (index: number) => boolean;
  /** Whether a result has memory of its own elsewhere, so that it need not be kept until the end. */
  readonly isMoved: (output: number) => boolean;
}

/** The most bytes that are stored at one time. @param donated for every input whether results may take its memory */
export function fusedPeakBytes(program: Program, donated: readonly boolean[]): number {
  return peakOf(program, {
    bytes: ({ type }) => bytesOf(type),
    ends: (index) => donated[index] ?? false,
    isMoved: () => false,
  });
}

function peakOf(program: Program, memory: InputMemory): number {
  const fusion = new Fusion(program);
  const sizes = new Map<number, number>();
  let alive = 0;
  const hold = (value: Var, bytes = bytesOf(value.type)) => {
    sizes.set(value.id, bytes);
    alive += bytes;
  };
  const lastUse = lastUses(program, fusion, memory);
  const release = (values: readonly Var[], position: number): number => {
    let freed = 0;
    for (const { id } of new Set(values)) {
      if ((lastUse.get(id) ?? position) > position) continue;
      freed += sizes.get(id) ?? 0;
      sizes.delete(id);
    }
    alive -= freed;
    return freed;
  };
  for (const [i, input] of program.inputs.entries()) hold(input, memory.bytes(input, i));
  let peak = alive;
  program.eqns.forEach((eqn, i) => {
    for (const { reads, writes } of fusion.kernels.get(i) ?? []) {
      const values = [...reads.keys()];
      // A kernel can write over what it is the last to read.
      const freed = release(values, i);
      for (const out of writes) hold(out);
      const inPlace = Math.min(freed, bytesOfAll(writes));
      peak = Math.max(peak, alive + freed - inPlace);
      release(writes, i);
    }
    if (!fusion.isSeparate(eqn)) return;
    // Operands whose memory the equation takes over: what it updates, or carries from iteration to iteration.
    const taken = takenOperands(eqn).flatMap((atom) => fusion.root(atom) ?? []);
    release(taken, i);
    const isTaken = (atom: Atom) => !sizes.has(fusion.root(atom)?.id ?? -1);
    peak = Math.max(peak, alive + innerBytes(eqn, isTaken));
    for (const out of eqn.outs) hold(out);
    peak = Math.max(peak, alive);
    release([...fusion.operands(eqn), ...eqn.outs], i);
  });
  return peak;
}

/** For every stored value the last equation that reads it; values that stay have the number of equations. */
function lastUses(program: Program, fusion: Fusion, memory: InputMemory): Map<number, number> {
  const { eqns, inputs, outputs } = program;
  const found = new Map<number, number>();
  eqns.forEach((eqn, i) => {
    for (const { reads } of fusion.kernels.get(i) ?? []) for (const { id } of reads.keys()) found.set(id, i);
    if (fusion.isSeparate(eqn)) for (const { id } of fusion.operands(eqn)) found.set(id, i);
  });
  inputs.forEach(({ id }, i) => {
    if (!memory.ends(i)) found.set(id, eqns.length);
  });
  outputs.forEach((atom, i) => {
    const root = fusion.root(atom);
    if (root && !memory.isMoved(i)) found.set(root.id, eqns.length);
  });
  return found;
}

function takenOperands(eqn: Eqn): readonly Atom[] {
  switch (eqn.op) {
    case "dynamicUpdateSlice":
      return eqn.ins.slice(0, 1);
    case "scan": {
      const { numConsts, numCarry } = eqn.params;
      const others = [...eqn.ins.slice(0, numConsts), ...eqn.ins.slice(numConsts + numCarry)];
      return eqn.ins.slice(numConsts, numConsts + numCarry).filter((atom) => !others.includes(atom));
    }
    case "while":
    case "cond":
      return eqn.ins.slice(1);
    default:
      return [];
  }
}

/** The most bytes that an equation's bodies store while it runs, besides operands that outlive it. */
function innerBytes(eqn: Eqn, isTaken: (atom: Atom) => boolean): number {
  switch (eqn.op) {
    case "scan": {
      const { body, numConsts, numCarry } = eqn.params;
      const isCarry = (index: number) => index >= numConsts && index < numConsts + numCarry;
      const inside = peakOf(body, {
        // What is scanned over is read in place.
        bytes: ({ type }, i) => (isCarry(i) ? bytesOf(type) : 0),
        ends: isCarry,
        // The results of every iteration are written to their stack.
        isMoved: (output) => output >= numCarry,
      });
      return bytesOfAll(eqn.outs.slice(numCarry)) + inside;
    }
    case "cond": {
      const owns = (index: number) => isTaken(at(eqn.ins, index + 1));
      const inside = eqn.params.branches.map((body) =>
        peakOf(body, {
          bytes: ({ type }, i) => (owns(i) ? bytesOf(type) : 0),
          ends: owns,
          isMoved: () => false,
        }),
      );
      return Math.max(0, ...inside);
    }
    case "while": {
      const all = { bytes: ({ type }: Var) => bytesOf(type), ends: () => true, isMoved: () => false };
      return Math.max(peakOf(eqn.params.condition, all), peakOf(eqn.params.body, all));
    }
    default:
      return 0;
  }
}
