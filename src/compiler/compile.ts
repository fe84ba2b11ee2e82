import { fuseUpdates } from "#compiler/plan/fuseUpdates";
import type { MeshShape } from "../ir/mesh.js";
import type { Program } from "../ir/program.js";
import { at, bytesOf } from "../ir/shape.js";
import { LoweringFrame } from "./lower/frame.js";
import type { AttentionSteps } from "./lower/lowerAttention.js";
import type { KernelTarget } from "./native/kernels/x64Kernel.js";
import { normalise } from "./normalise/normalise.js";
import { Compilation } from "./plan/compilation.js";
import { finalise } from "./plan/finalise.js";
import { limitRows } from "./plan/limitRows.js";
import { planMemory } from "./plan/memoryPlan.js";
import { type Buffer, denseView } from "./plan/planBuffers.js";
import type { UnplacedStep } from "./plan/plannedSteps.js";
import { scheduleCollectives } from "./plan/scheduleCollectives.js";
import type { CompiledProgram } from "./steps.js";
import type { AddressType } from "./wasm/addresses.js";
import { BASELINE_FEATURES, type WasmFeatures } from "./wasm/features.js";

/** What a program is compiled for. */
export interface CompileProgramOptions {
  /** The mesh whose axes the program's collectives name. */
  readonly mesh: MeshShape;
  /** Which inputs may be overwritten. */
  readonly donated?: readonly boolean[] | undefined;
  /** For messages and traces. */
  readonly name?: string | undefined;
  /** What the host's WebAssembly can do; see `detectFeatures`. */
  readonly features?: WasmFeatures | undefined;
  /** How many threads of a device share large kernels; 1 by default. */
  readonly threads?: number | undefined;
  /** Address type of the memory in which the program runs; i32 by default. */
  readonly addressType?: AddressType | undefined;
  /** How attention in float32 is one kernel; otherwise it is products and a softmax. */
  readonly attention?: AttentionSteps | undefined;
  /** Whether matrix products take bfloat16 operands; otherwise these are converted to float32. */
  readonly bfloat16Products?: boolean | undefined;
  /** Whether matrix products take float16 operands; otherwise these are converted to float32. */
  readonly float16Products?: boolean | undefined;
  /**
   * Vector width in bits of machine code for kernels (AVX2: 256, AVX-512: 512); if undefined, all kernels are
   * WebAssembly.
   */
  readonly vectorBits?: KernelTarget["bits"] | undefined;
  /** Largest size of a page of the arena, where that is limited: a multiple of the alignment. */
  readonly arenaPage?: number | undefined;
}

/** A program as steps over buffers, in program order, before scheduling and memory planning. */
export interface LoweredProgram {
  readonly compilation: Compilation;
  readonly steps: readonly UnplacedStep[];
  /** The buffers of the program's inputs. */
  readonly inputs: readonly Buffer[];
  /** The buffers of the program's outputs. */
  readonly outputs: readonly Buffer[];
}

/** Normalises and fuses a per-device program and lowers its units to steps: the first part of the compiler. */
export function lowerProgram(program: Program, options: CompileProgramOptions): LoweredProgram {
  const compilation = new Compilation(
    options.mesh,
    options.features ?? BASELINE_FEATURES,
    options.threads ?? 1,
    options.addressType,
    options.vectorBits,
    options.attention?.code,
  );
  const { gpu } = compilation.features;
  const attentionSteps = options.attention !== undefined;
  const rewritten = normalise(program, { ...options, gpu, attentionSteps });
  const frame = new LoweringFrame(compilation, rewritten, 0, options.attention?.lower);
  const inputs = program.inputs.map((input, index) => {
    const buffer = compilation.buffer(bytesOf(input.type), { kind: "input", index }, 0);
    frame.define(input, denseView(buffer, input.type));
    return buffer;
  });
  frame.run();
  const outputs = frame.program.outputs.map((atom, index) => {
    const buffer = compilation.buffer(bytesOf(atom.type), { kind: "output", index }, 0);
    frame.place(atom, denseView(buffer, at(program.outputs, index).type));
    return buffer;
  });
  return { compilation, steps: frame.steps, inputs, outputs };
}

/** Compiles a per-device program into a step list with a static memory plan. */
export function compileProgram(program: Program, options: CompileProgramOptions): CompiledProgram {
  const lowered = lowerProgram(program, options);
  const { compilation } = lowered;
  const ordered = scheduleCollectives(limitRows(lowered.steps, compilation), compilation.infos);
  // Only machine code rounds such sums once, however long they are.
  const steps = options.vectorBits ? fuseUpdates(ordered, compilation, options.donated ?? []) : ordered;
  return finishProgram(program, { ...lowered, steps }, options);
}

/** The same for a device that exchanges nothing and overwrites no input: all rows that it multiplies are filled. */
export function compileForOneDevice(program: Program, options: CompileProgramOptions): CompiledProgram {
  return finishProgram(program, lowerProgram(program, options), options);
}

/** Plans the memory of ordered steps: the end of the compiler. */
export function finishProgram(
  program: Program,
  { compilation, steps, inputs, outputs }: LoweredProgram,
  { name = "program", donated = [], arenaPage }: CompileProgramOptions,
): CompiledProgram {
  const plan = planMemory(steps, inputs, outputs, donated, arenaPage);
  return finalise(name, program, compilation, steps, plan);
}
