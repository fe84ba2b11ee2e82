import { unrollFor } from "../../kernel/innerLoop.js";
import type { LaneCount } from "../../kernel/memory.js";
import { maxLive } from "../../wasm/emitInterleaved.js";
import type { VecProgram } from "../../wasm/vectorProgram.js";
import type { VectorBits } from "../x64/operands.js";
import { numRegisters } from "./x64Line.js";

/** A part of a vector loop: `count` turns over `copies` vectors, or over single elements. */
export interface Stage {
  readonly bits: VectorBits;
  readonly copies: number;
  readonly mode: "vector" | "single";
  readonly count: number;
}

/** The elements that a turn of a stage takes in. */
export function elementsOf({ bits, copies, mode }: Stage): number {
  return mode === "single" ? 1 : (copies * bits) / 32;
}

/** WebAssembly's vectors, whose accumulators the sums of a row have too. */
const NARROW: LaneCount = 4;

/** Registers that constants and intermediate results should have beside the values that are alive. */
const ROOM = 6;

/**
 * Cuts a loop into stages: wide vectors as long as they fit, then those of 128 bits, then single elements.
 *
 * A loop that reduces has the accumulators of WebAssembly, only more of them in one register, so that every element is
 * added to the same partial sum there and here.
 */
export function planStages(
  program: VecProgram,
  size: number,
  widest: 256 | 512,
  reduces: boolean,
): readonly Stage[] {
  const stages: Stage[] = [];
  let left = size;
  const add = (bits: VectorBits, copies: number, mode: Stage["mode"]): void => {
    const stage = { bits, copies, mode, count: 0 };
    const count = Math.floor(left / elementsOf(stage));
    if (count > 0) stages.push({ ...stage, count });
    left -= count * elementsOf(stage);
  };
  if (reduces) {
    const unroll = unrollFor(program, NARROW, size);
    const bits = unroll * 128 >= widest ? widest : unroll === 2 ? 256 : 128;
    add(bits, (unroll * 128) / bits, "vector");
  } else {
    const bits = widestFor(size, widest);
    const copies = copiesFor(program, size, bits);
    add(bits, copies, "vector");
    if (copies > 1) add(bits, 1, "vector");
  }
  add(128, 1, "vector");
  add(128, 1, "single");
  return stages;
}

function widestFor(size: number, widest: 256 | 512): VectorBits {
  if (size * 32 >= widest) return widest;
  return size >= 8 ? 256 : 128;
}

function copiesFor(program: VecProgram, size: number, bits: VectorBits): number {
  const live = maxLive(program);
  let copies = 4;
  while (copies > 1 && (copies * live > numRegisters(bits) - ROOM || copies * bits > size * 32)) copies /= 2;
  return copies;
}
