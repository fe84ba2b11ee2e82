import { InternalError } from "../../ir/errors.js";
import type { LoopPlan } from "../kernel/loopPlan.js";
import type { KernelSetting } from "./kernelWriter.js";
import { PointShader } from "./pointShader.js";
import { RowShader } from "./rowShader.js";
import type { WgslShader } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** What a plan has to know about the vectors of a GPU: a thread computes one element at a time. */
export const gpuTarget = { widths: [1], copies: () => 1 } as const;

/**
 * Writes a kernel as a shader. Points that do not depend on each other are computed side by side: all of them where
 * nothing is reduced, otherwise rows, each by one or several threads that combine their results in shared memory.
 *
 * @param slabs the slab of each argument
 */
export function kernelShader(plan: LoopPlan, slabs: ShaderSlabs, setting: KernelSetting): WgslShader {
  if (plan.fills.length > 0)
    throw new InternalError("[wgsl] a kernel of a GPU adds nothing up over its rows");
  const reduces = plan.sections.some(({ outputs }) => outputs.some(({ kind }) => kind === "reduce"));
  return new (reduces ? RowShader : PointShader)(plan, slabs, setting).write();
}
