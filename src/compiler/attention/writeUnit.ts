import { type AttentionKernel, isBackward } from "./attentionKernel.js";
import type { AttentionMachine } from "./attentionMachine.js";
import { BackwardCode } from "./backward.js";
import { ForwardCode } from "./forward.js";

/** Writes the code of a unit of work of a kernel, of attention or of its cotangents. */
export function writeUnit(machine: AttentionMachine, kernel: AttentionKernel): void {
  const code = isBackward(kernel) ? new BackwardCode(machine, kernel) : new ForwardCode(machine, kernel);
  code.writeUnit();
}
