import { CONTEXT } from "../../compiler/native/kernels/x64Kernel.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { bindCode } from "../system/codeMemory.js";
import { type Koffi, loadKoffi } from "../system/koffi.js";
import { nativeAddress } from "../system/nativeAddress.js";
import { instantiateKernels, type KernelFunction } from "./kernelFunctions.js";
import type { LoadedModule } from "./loadKernels.js";

/** The kernels of a module as functions of this thread: machine code where there is some, else WebAssembly. */
export function bindKernels(
  { module, exports, native }: LoadedModule,
  imports: WebAssembly.Imports,
  memory: WebAssembly.Memory,
): KernelFunction[] {
  const rest = instantiateKernels(
    module,
    exports.filter((_, i) => native[i] === undefined),
    imports,
  );
  const caller = rest.length < exports.length ? new KernelCaller(memory) : undefined;
  let next = 0;
  return exports.map((_, i) => {
    const address = native[i];
    return address !== undefined && caller !== undefined ? caller.bind(address) : at(rest, next++);
  });
}

/** Calls machine code of kernels on one memory from one thread. */
class KernelCaller {
  private readonly base: number;
  private readonly words = new BigInt64Array(new SharedArrayBuffer(CONTEXT.bytes));
  private readonly context: number;
  private readonly koffi: Koffi;

  constructor(memory: WebAssembly.Memory) {
    const koffi = loadKoffi();
    if (koffi === undefined) throw new InternalError("[threads] machine code needs the package koffi");
    this.koffi = koffi;
    this.base = nativeAddress(memory);
    this.words[CONTEXT.base / 8] = BigInt(this.base);
    this.words[CONTEXT.end / 8] = BigInt(memory.buffer.byteLength);
    this.context = Number(koffi.address(new Uint8Array(this.words.buffer)));
  }

  bind(address: number): KernelFunction {
    const { base, context } = this;
    // Fewer arguments are passed faster, and most kernels are not divided among threads.
    const whole = bindCode(this.koffi, address, 3);
    const divided = bindCode(this.koffi, address, 6);
    const failed = new Int32Array(this.words.buffer, CONTEXT.failed, 1);
    return (table, args, from, to, part) => {
      if (from === undefined || to === undefined) whole(context, base + table, base + args);
      else divided(context, base + table, base + args, from, to, part ?? 0);
      if (failed[0] !== 0) throw this.failure(failed);
    };
  }

  private failure(failed: Int32Array): InternalError {
    const argument = (failed[0] ?? 0) - 1;
    failed[0] = 0;
    return new InternalError(
      `[threads] argument ${argument} of a kernel leaves the memory of ${this.words[CONTEXT.end / 8]} bytes`,
    );
  }
}
