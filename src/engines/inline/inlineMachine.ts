import { chooseKernels, type KernelChoice } from "#engines/kernels/kernelChoice";
import { compileWasmModule, enableRelaxedSimd } from "#engines/system/v8Flags";
import { buildGemmModule } from "../../compiler/gemm/gemmModule.js";
import { tileFor } from "../../compiler/gemm/tile.js";
import type { CompiledProgram, GemmStep } from "../../compiler/steps.js";
import { detectFeatures, type WasmFeatures } from "../../compiler/wasm/features.js";
import type { ActionHost } from "../devices/stepActions.js";
import { openKernelCode } from "../kernels/loadKernels.js";
import { GemmPreparer } from "../products/gemm.js";
import { type GemmChoice, isInMachineCode } from "../products/gemmChoice.js";
import type { PreparedGemm } from "../products/preparedGemm.js";
import type { CodeMemory } from "../system/codeMemory.js";
import type { InlineMemory } from "./inlineMemory.js";

/**
 * Makes the steps of a program ready on its devices, and returns the function that runs them.
 *
 * @typeParam Ran what that function returns
 */
export type PrepareSteps<Ran> = (compiled: CompiledProgram, devices: readonly ActionHost[]) => () => Ran;

/** The environment that programs on this thread run in. */
export class InlineMachine<Ran = void> {
  readonly features: WasmFeatures;
  /** The widest vectors of machine code for kernels. */
  readonly vectorBits: KernelChoice["bits"] | undefined;
  /** Memory for the machine code of kernels; undefined if all are WebAssembly. */
  readonly code: CodeMemory | undefined;
  private gemms: GemmPreparer | undefined;
  private gemmModule: WebAssembly.Module | undefined;

  /** @param chooseGemm which implementation multiplies matrices, determined at the first product */
  constructor(
    readonly memory: InlineMemory,
    private readonly chooseGemm: () => GemmChoice,
    readonly prepareSteps: PrepareSteps<Ran>,
  ) {
    enableRelaxedSimd();
    this.features = detectFeatures();
    const kernels = chooseKernels();
    this.vectorBits = kernels?.bits;
    this.code = kernels && openKernelCode();
  }

  /** Prepares a matrix product to be called with addresses. */
  prepareGemm(step: GemmStep): PreparedGemm {
    const { memory, features } = this;
    const choice = this.chooseGemm();
    this.gemms ??= new GemmPreparer(memory.memory, choice, memory.gemmScratch);
    if (!isInMachineCode(choice, step))
      this.gemmModule ??= compileWasmModule(buildGemmModule(features, tileFor(features)));
    return this.gemms.prepare(step, this.gemmModule);
  }

  /** Releases what lies outside of JavaScript; no program may run afterwards. */
  release(): void {
    this.gemms?.release();
  }
}
