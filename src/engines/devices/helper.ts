import { CodeMemory } from "#engines/system/codeMemory";
import { getOrInsert } from "../../ir/collections.js";
import { InternalError } from "../../ir/errors.js";
import { type KernelFunction, runRows } from "../kernels/kernelFunctions.js";
import type { LoadedModule } from "../kernels/loadKernels.js";
import { bindKernels } from "../kernels/nativeKernels.js";
import {
  CALL_FIELD,
  type CrewMemory,
  help,
  JOB,
  JOB_FIELD,
  KERNEL_FIELD,
  PRODUCT_FIELD,
  runCalls,
} from "../protocol/crew.js";
import type { NativeFunction } from "../system/codeMemory.js";
import type { ReleasedObjects } from "./releasedObjects.js";

/** What a helper is started with. */
export interface HelperSetup {
  readonly crew: CrewMemory;
  /** The processor it stays on, if any. */
  readonly core: number | undefined;
}

/** The kernels of a program, sent before the device gets the program. */
export interface KernelsMessage {
  readonly kind: "kernels";
  readonly id: number;
  /** The number by which jobs refer to the program; it changes when the device moves to another memory. */
  readonly sending: number;
  /** The memory of the device. */
  readonly memory: WebAssembly.Memory;
  readonly modules: readonly LoadedModule[];
}

/** A program that is gone. */
export interface ForgetMessage {
  readonly kind: "forget";
  readonly id: number;
}

/** What the main thread leaves in a helper's port. */
export type HelperMessage = KernelsMessage | ForgetMessage;

/** What the host of a helper provides. */
export interface HelperHost {
  /** Takes the next message, if there is one. */
  receive(): HelperMessage | undefined;
  /** Counts what the thread releases, and collects it. */
  readonly released: ReleasedObjects;
  kernelImports(memory: WebAssembly.Memory): WebAssembly.Imports;
}

/** Takes parts of a device's jobs until the engine stops. */
export function runHelper({ crew }: HelperSetup, host: HelperHost): void {
  const { job } = crew;
  const field = (index: number): number => job[index] ?? 0;
  const programs = new ProgramKernels(host);
  const runners = new Runners();
  const runPart = (part: number): void => {
    if (field(JOB_FIELD.kind) === JOB.kernel) {
      const kernel = programs.kernel(
        field(KERNEL_FIELD.program),
        field(KERNEL_FIELD.module),
        field(KERNEL_FIELD.kernel),
      );
      const [table, args] = [field(KERNEL_FIELD.table), field(KERNEL_FIELD.args)];
      runRows(kernel, table, args, field(KERNEL_FIELD.rows), part, field(JOB_FIELD.count));
    } else {
      runCalls(job, part, runners.at(field(PRODUCT_FIELD.runner)));
    }
  };
  help(crew, runPart, () => programs.update());
}

/** The kernels of the programs that the device has, by their sending. */
class ProgramKernels {
  private readonly programs = new Map<number, ProgramOfHelper>();

  constructor(private readonly host: HelperHost) {}

  kernel(sending: number, module: number, index: number): KernelFunction {
    if (!this.programs.has(sending)) this.update();
    const kernel = this.programs.get(sending)?.kernels[module]?.[index];
    if (kernel === undefined) throw new InternalError(`[threads] a helper has no kernel ${index} to run`);
    return kernel;
  }

  update(): void {
    for (let message = this.host.receive(); message !== undefined; message = this.host.receive()) {
      const { id } = message;
      for (const [sending, program] of this.programs) if (program.id === id) this.programs.delete(sending);
      if (message.kind === "forget") {
        this.host.released.program();
        continue;
      }
      const imports = this.host.kernelImports(message.memory);
      const kernels = message.modules.map((module) => bindKernels(module, imports, message.memory));
      this.programs.set(message.sending, { id, kernels });
    }
  }
}

interface ProgramOfHelper {
  readonly id: number;
  readonly kernels: readonly (readonly KernelFunction[])[];
}

/** The functions that run products, by their addresses in the code memory of the device. */
class Runners {
  private readonly known = new Map<number, NativeFunction>();
  private memory: CodeMemory | undefined;

  at(address: number): NativeFunction {
    return getOrInsert(this.known, address, () => {
      this.memory ??= open();
      return this.memory.bind(address, CALL_FIELD.size);
    });
  }
}

function open(): CodeMemory {
  const memory = CodeMemory.open();
  if (typeof memory === "string")
    throw new InternalError(`[threads] a helper cannot run machine code: ${memory}`);
  return memory;
}
