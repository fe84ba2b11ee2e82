import type { Program } from "../ir/program.js";
import { range } from "../ir/shape.js";
import { type AttentionKernel, gpuAttention } from "./attention/attentionKernel.js";
import { type CompileProgramOptions, finishProgram, lowerProgram } from "./compile.js";
import { type LoopPlan, planLoops } from "./kernel/loopPlan.js";
import { attentionAs } from "./lower/lowerAttention.js";
import { fuseEpilogues } from "./plan/fuseEpilogues.js";
import { scheduleCollectives } from "./plan/scheduleCollectives.js";
import type { CompiledProgram } from "./steps.js";
import { GPU_FEATURES } from "./wasm/features.js";
import { gpuTarget } from "./wgsl/kernelShader.js";

/** A program for a GPU: the same steps as elsewhere, without modules, and the loops of every kernel. */
export interface GpuProgram {
  readonly compiled: CompiledProgram;
  /** By the numbers that kernel steps have: loops, or attention in one piece. */
  readonly kernels: readonly (LoopPlan | AttentionKernel)[];
}

/** What a program is compiled for. */
interface GpuOptions
  extends Pick<CompileProgramOptions, "mesh" | "donated" | "name" | "arenaPage" | "float16Products"> {
  /** Whether attention in float32 is one kernel. */
  readonly attentionSteps?: boolean;
  /** Whether matrix products and the kernels behind them are one step. */
  readonly epilogues?: boolean;
}

/** Compiles a per-device program into a step list for a GPU, which starts kernels before the sizes of groups are known. */
export function compileForGpu(
  program: Program,
  { epilogues, attentionSteps, ...options }: GpuOptions,
): GpuProgram {
  const attention = attentionSteps ? attentionAs(gpuAttention) : undefined;
  const all: CompileProgramOptions = { ...options, attention, features: GPU_FEATURES };
  const lowered = lowerProgram(program, all);
  const { compilation } = lowered;
  const { library, infos } = compilation;
  const joined = epilogues ? fuseEpilogues(lowered.steps, compilation) : lowered.steps;
  const steps = scheduleCollectives(joined, infos);
  const compiled = finishProgram(program, { ...lowered, steps }, all);
  const kernels = range(library.size).map((i) => {
    const plan = library.plan(i);
    return "kind" in plan ? plan : planLoops(plan, false, gpuTarget);
  });
  return { compiled, kernels };
}
