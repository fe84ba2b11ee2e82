import { type EqnParts, forEachEqn } from "../../../ir/program.js";
import { bytesOf } from "../../../ir/shape.js";

/**
 * Which loops are written out, one step after the other. A loop copies what its steps read out of stacks and what they
 * give into stacks; steps that are written out read and give values where they lie. That costs compile time, and pays
 * where the copies are large.
 */
export interface WriteOut {
  /** The least that a step reads from stacks and adds to them, in bytes. */
  readonly minBytes: number;
  /** The most equations that a loop becomes. */
  readonly maxEqns: number;
}

/** What pays on GPUs: a training step of layers whose activations are as large is 7 to 15 % faster. */
export const gpuWriteOut: WriteOut = { minBytes: 1 << 24, maxEqns: 20_000 };

/**
 * How XLA compiles programs whose loops are written out. Graphs of CUDA hold all their kernels then, and bringing one
 * up to date takes longer than starting the kernels; and Triton's products are found by trying them one by one, which
 * takes most of the time of compiling and gains a hundredth at most.
 */
export const writtenOutFlags = {
  xla_gpu_graph_min_graph_size: 1_000_000,
  xla_gpu_enable_triton_gemm: false,
} as const;

/** Whether a loop is written out. */
export function isWrittenOut({ ins, outs, params }: EqnParts<"scan">, writeOut: WriteOut): boolean {
  const { body, length, numConsts, numCarry } = params;
  const stacks = [...ins.slice(numConsts + numCarry), ...outs.slice(numCarry)];
  const bytes = stacks.reduce((sum, { type }) => sum + bytesOf(type), 0);
  if (bytes < writeOut.minBytes * length) return false;
  let numEqns = 0;
  forEachEqn(body, () => {
    numEqns++;
  });
  return numEqns * length <= writeOut.maxEqns;
}
