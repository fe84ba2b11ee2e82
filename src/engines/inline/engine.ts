import { attentionHere } from "#engines/kernels/kernelChoice";
import { compileForOneDevice } from "../../compiler/compile.js";
import { runCallback } from "../../compiler/kernel/callbackStep.js";
import type { HostData } from "../../ir/dtype.js";
import type { CompileOptions, Engine } from "../../ir/engine.js";
import { InternalError } from "../../ir/errors.js";
import { isCollectiveEqn } from "../../ir/opFacts.js";
import { type Program, someEqn } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { StepRunner } from "../devices/stepRunner.js";
import { type Evaluator, LocalEngine, type LocalProgram, type MovableTensor } from "../localEngine.js";
import { limitLoops } from "../loopLimit.js";
import { chooseGemm, type GemmChoice, takesBfloat16 } from "../products/gemmChoice.js";
import type { HostTensor } from "../reference/hostTensor.js";
import { runSpmd } from "../reference/interpret.js";
import { KernelFunctions } from "./chunkProgram.js";
import { InlineProgram, runNow } from "./compiledProgram.js";
import { InlineMachine, type PrepareSteps } from "./inlineMachine.js";
import { InlineMemory } from "./inlineMemory.js";
import { addsFloats, compilingCost, interpretedElements } from "./work.js";

/** Options of an inline engine. */
export interface InlineEngineOptions {
  /** How many devices it simulates; by default as many as a mesh asks for. */
  readonly numDevices?: number;
  /**
   * Memory for large tensors in bytes, initially only address space; 4 GiB by default. When it is full, JavaScript
   * arrays hold them.
   */
  readonly memoryBytes?: number;
  /**
   * How much interpreting a program may cost before it is compiled, as a multiple of the cost of compiling: 1 by
   * default; 0 compiles at once.
   */
  readonly patience?: number;
}

/**
 * Opens an engine that computes on the calling thread: programs worth compiling run as kernels; others, and programs
 * for several devices, which it simulates, are interpreted.
 */
export function createInlineEngine(options: InlineEngineOptions = {}): InlineEngine {
  return new InlineEngine(options);
}

/** The engine of the calling thread; see {@link createInlineEngine}. */
export class InlineEngine extends LocalEngine implements Engine {
  private readonly kernels: Kernels;

  constructor({ numDevices = Number.POSITIVE_INFINITY, ...options }: InlineEngineOptions) {
    const kernels = new Kernels(options);
    super("inline", numDevices, kernels);
    this.kernels = kernels;
  }

  /** How often programs ran as kernels and in the interpreter, and the memory that large tensors take. */
  get statistics(): InlineStatistics {
    return this.kernels.statistics;
  }
}

/** Statistics of an inline engine. */
export interface InlineStatistics {
  readonly compiledRuns: number;
  readonly interpretedRuns: number;
  readonly usedBytes: number;
}

/** Programs of more elements run as machine code if available; below, calling WebAssembly is faster. */
const NATIVE_ELEMENTS = 8192;

/**
 * A program that sums floats is compiled at once if interpreting it costs at least this share of compiling, else never.
 */
const SHARE_OF_SUMS = 1 / 32;

/**
 * Chooses for each run between kernels and the interpreter, by one rule: a program is compiled once interpreting it
 * would have cost as much as compiling it. So a large program is compiled at once, a small one after enough runs, and
 * nothing takes longer than twice the better of both. For programs that sum floats, which kernels do in another order,
 * only their size decides, so that results do not depend on what ran before.
 */
class Kernels implements Evaluator {
  compiledRuns = 0;
  interpretedRuns = 0;
  private machine: InlineMachine | "none" | undefined;
  private gemmChoice: GemmChoice | undefined;
  private readonly functions = new KernelFunctions((program) =>
    this.load(program, { mesh: { axes: [] }, devices: [0] }, 0),
  );

  constructor(private readonly options: Omit<InlineEngineOptions, "numDevices">) {}

  get statistics(): InlineStatistics {
    const { compiledRuns, interpretedRuns, machine } = this;
    const usedBytes = typeof machine === "object" ? machine.memory.used : 0;
    return { compiledRuns, interpretedRuns, usedBytes };
  }

  prepare(program: Program, options: CompileOptions): LocalProgram {
    const isLocal = runsAlone(program, options);
    const elements = interpretedElements(program);
    const worth = (this.options.patience ?? 1) * compilingCost(program);
    let left = isLocal ? worth : Number.POSITIVE_INFINITY;
    // If kernels would give different results, the choice is the same from the first run on.
    if (isLocal && addsFloats(program))
      left = elements >= worth * SHARE_OF_SUMS ? 0 : Number.POSITIVE_INFINITY;
    let compiled: InlineProgram | undefined;
    return {
      run: (inputs) => {
        left -= elements;
        if (left <= 0) {
          compiled ??= this.load(program, options, elements);
          // If there is no memory for it now, it is not compiled again for every run.
          if (compiled === undefined) left = worth;
          const results = compiled && runNow(compiled, inputs);
          if (results) {
            this.compiledRuns++;
            return results;
          }
        }
        return this.interpret(program, options, inputs, isLocal);
      },
      release: () => compiled?.release(),
    };
  }

  free(data: HostData): void {
    if (typeof this.machine === "object") this.machine.memory.free(data);
  }

  close(): void {
    this.functions.release();
    if (typeof this.machine === "object") this.machine.release();
    this.machine = "none";
  }

  private interpret(
    program: Program,
    { mesh }: CompileOptions,
    inputs: readonly (readonly MovableTensor[])[],
    isLocal: boolean,
  ): HostTensor[][] {
    this.interpretedRuns++;
    const { machine } = this;
    // A program that is never compiled needs no functions with the bits of kernels: exact ones are closer to JAX's.
    const functions = isLocal ? this.functions.evaluate : undefined;
    const results = runSpmd(program, mesh, inputs, limitLoops(), functions);
    if (typeof machine !== "object") return results;
    // Results that the interpreter passes through unchanged may share memory with an input.
    const owned = (tensor: HostTensor) =>
      machine.memory.holds(tensor.data) ? { type: tensor.type, data: tensor.data.slice() } : tensor;
    return results.map((row) => row.map(owned));
  }

  private load(
    program: Program,
    { mesh, name }: CompileOptions,
    elements: number,
  ): InlineProgram | undefined {
    this.machine ??= this.start();
    if (this.machine === "none") return undefined;
    const { features } = this.machine;
    const vectorBits = elements > NATIVE_ELEMENTS ? this.machine.vectorBits : undefined;
    const bfloat16Products = multipliesBfloat16(program) && takesBfloat16(this.gemm());
    const attention = vectorBits && attentionHere;
    const compiled = compileForOneDevice(program, {
      ...{ mesh, name, features, vectorBits, attention, bfloat16Products },
    });
    return InlineProgram.load(compiled, this.machine, 1);
  }

  private start(): InlineMachine | "none" {
    const memory = InlineMemory.reserve(this.options.memoryBytes);
    return memory === undefined ? "none" : new InlineMachine(memory, () => this.gemm(), prepareAlone);
  }

  /** Which implementation multiplies matrices, determined at the first product. */
  private gemm(): GemmChoice {
    this.gemmChoice ??= chooseGemm(undefined);
    return this.gemmChoice;
  }
}

/** The steps of a program of one device without collectives. */
const prepareAlone: PrepareSteps<void> = ({ steps, callbacks }, [device]) => {
  if (device === undefined) throw new InternalError("[inline] a program has no device");
  const { buffer } = device.memory;
  const runner = new StepRunner(0, steps, {
    ...device,
    collectives: [],
    prepareCall: (step) => (addressOf) =>
      runCallback(at(callbacks, step.callback), step, buffer, step.places.map(addressOf)),
    status: { words: new Int32Array(3), step: 0, progress: 1, loops: 2 },
    now: () => performance.now(),
    tellWaits: () => {},
    progress: undefined,
    limitLoop: limitLoops(),
    wrap: (_, action) => action,
  });
  return () => runner.run(undefined);
};

/** Whether a program runs on one device and has nothing to say to others; the axes of its mesh then have size 1. */
function runsAlone(program: Program, { devices }: CompileOptions): boolean {
  return devices.length === 1 && !someEqn(program, isCollectiveEqn);
}

/** Whether a program has bfloat16 products: only then is the implementation determined, which takes milliseconds. */
function multipliesBfloat16(program: Program): boolean {
  return someEqn(
    program,
    ({ op, ins }) => (op === "dotGeneral" || op === "raggedDot") && at(ins, 0).type.dtype === "bfloat16",
  );
}
