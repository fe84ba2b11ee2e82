import type { OpParams } from "../../../ir/ops.js";
import { forEachEqn } from "../../../ir/program.js";
import { bytesOf, type TensorType } from "../../../ir/shape.js";

/**
 * Which loops are written out, one step after the other. A loop copies what its steps read out of stacks and what they
 * give into stacks; steps that are written out read and give values where they lie. That costs compile time, and pays
 * where the copies are large.
 */
export interface WriteOut {
  /** The least that a step adds to stacks, or reads from those of loops that are written out, in bytes. */
  readonly minBytes: number;
  /** The most equations that a loop becomes. */
  readonly maxEqns: number;
}

/**
 * What pays on GPUs: training steps of layers that keep so much for the way back are up to a tenth faster. Below,
 * kernels are so short that starting them one by one takes longer.
 */
export const gpuWriteOut: WriteOut = { minBytes: 1 << 23, maxEqns: 20_000 };

/**
 * How XLA compiles programs whose loops are written out. Graphs of CUDA hold all their kernels then, and bringing one
 * up to date takes longer than starting the kernels; Triton's products, and other kernels than XLA's own for what is
 * fused, are found by trying them one by one, which takes most of the time of compiling and gains a hundredth at most;
 * products of one operand that are merged into one copy their other operands side by side first, in every step; and
 * nobody asks for what is kept for debugging, which is as large as the program.
 */
export const writtenOutFlags = {
  xla_gpu_graph_min_graph_size: 1_000_000,
  xla_gpu_enable_triton_gemm: false,
  xla_gpu_experimental_enable_fusion_autotuner: false,
  xla_gpu_executable_embed_debug_info: false,
  xla_disable_hlo_passes: "dot-merger",
} as const;

/**
 * Whether a loop is written out.
 *
 * @param stacks what its steps add to, and read from loops that are written out
 */
export function isWrittenOut(
  { body, length }: OpParams["scan"],
  stacks: readonly TensorType[],
  { minBytes, maxEqns }: WriteOut,
): boolean {
  const bytes = stacks.reduce((sum, type) => sum + bytesOf(type), 0);
  if (bytes < minBytes * length) return false;
  let numEqns = 0;
  forEachEqn(body, () => {
    numEqns++;
  });
  return numEqns * length <= maxEqns;
}
