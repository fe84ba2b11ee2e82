import { factsOf, isElementwiseEqn, isReduction } from "../../../ir/opFacts.js";
import type { OpParams } from "../../../ir/ops.js";
import { forEachEqn, type Program } from "../../../ir/program.js";
import { bytesOfAll, type TensorType } from "../../../ir/shape.js";

/**
 * Which loops are unrolled. A loop copies what its iterations produce into stacks, and another one, such as that of the
 * backward pass, copies it out of them; unrolled iterations use the values where they are. That costs compile time, and
 * pays off if the copies are large. Stacks that no other loop reads, such as initial parameters, must be written anyway.
 */
export interface Unrolling {
  /** Minimum number of bytes that an iteration passes to those of another loop, or reads from them; 0 for all loops. */
  readonly minBytes: number;
  /** Maximum number of equations that a loop expands to. */
  readonly maxEqns: number;
}

/**
 * What pays off on GPUs: training steps of layers that keep this much for the backward pass are up to a tenth faster.
 * Below it, kernels are so short that launching them one by one takes longer.
 */
export const gpuUnrolling: Unrolling = { minBytes: 1 << 23, maxEqns: 20_000 };

/**
 * XLA settings for GPUs. Triton products, and alternatives to XLA's own emitters for fusions, are found by autotuning one
 * by one, which takes most of the compile time (seven seconds for a single product) and gains at most one per cent. The
 * debugging information that XLA keeps is as large as the program, and nothing reads it. Merging products that share an
 * operand concatenates the other operands in every run, which costs more than a launch if they are larger than this: a
 * model that writes one token at a time would copy most of its weights for each.
 */
export const gpuFlags = {
  xla_gpu_enable_triton_gemm: false,
  xla_gpu_experimental_enable_fusion_autotuner: false,
  xla_gpu_executable_embed_debug_info: false,
  xla_gpu_dot_merger_threshold_mb: 8,
} as const;

/** XLA settings for programs with unrolled loops, besides those for all: no products are merged. */
export const unrolledFlags = { xla_disable_hlo_passes: "dot-merger" } as const;

/**
 * XLA settings for programs whose inputs or outputs are at other addresses in every run: CUDA graphs would contain all their
 * kernels, and updating one takes longer than starting the kernels.
 */
export const noGraphFlags = { xla_gpu_graph_min_graph_size: 1_000_000 } as const;

/**
 * XLA settings for programs with float8 products, besides those for all: the factors of merged products would be
 * concatenations, in which XLA does not recognise float8.
 */
export const float8Flags = { xla_disable_hlo_passes: "dot-merger" } as const;

/**
 * Whether to unroll a loop.
 *
 * @param stacks those that its iterations add to and that another loop reads, and those of unrolled loops that they read
 */
export function isUnrolled(
  { body, length }: OpParams["scan"],
  stacks: readonly { readonly type: TensorType }[],
  { minBytes, maxEqns }: Unrolling,
): boolean {
  if (bytesOfAll(stacks) < minBytes * length) return false;
  let numEqns = 0;
  forEachEqn(body, () => {
    numEqns++;
  });
  return numEqns * length <= maxEqns;
}

/** The variables whose elements a program sums up, rearranged or computed with before, as those of gradients for their norm. */
export function summedVars({ eqns }: Program): ReadonlySet<number> {
  const summed = new Set<number>();
  for (const eqn of eqns.toReversed()) {
    const keepsElements = isElementwiseEqn(eqn) || factsOf(eqn.op).family === "movement";
    if (!isReduction(eqn) && !(keepsElements && eqn.outs.some(({ id }) => summed.has(id)))) continue;
    for (const x of eqn.ins) {
      if (x.kind === "var") summed.add(x.id);
    }
  }
  return summed;
}
