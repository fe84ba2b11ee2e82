import type { MeshShape } from "../ir/mesh.js";
import type { Program } from "../ir/program.js";
import { at } from "../ir/shape.js";
import { Frame } from "./lower/frame.js";
import { normalise } from "./normalise/normalise.js";
import { bytesOf, denseView } from "./plan/buffers.js";
import { Compilation } from "./plan/compilation.js";
import { finalise } from "./plan/finalise.js";
import { planMemory } from "./plan/memoryPlan.js";
import { scheduleCollectives } from "./plan/schedule.js";
import type { CompiledProgram } from "./steps.js";
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
}

/** Compiles a per-device program into a step list with a static memory plan. */
export function compileProgram(program: Program, options: CompileProgramOptions): CompiledProgram {
  const compilation = new Compilation(options.mesh, options.features ?? BASELINE_FEATURES);
  const frame = new Frame(compilation, normalise(program), 0);
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
  const donated = options.donated ?? [];
  const steps = scheduleCollectives(frame.steps, compilation.infos);
  const plan = planMemory(steps, inputs, outputs, donated);
  return finalise(options.name ?? "program", program, compilation, steps, plan);
}
