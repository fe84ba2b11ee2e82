import { CONTEXT } from "../../compiler/native/kernels/x64Arguments.js";
import { InternalError } from "../../ir/errors.js";
import { bindCode } from "../system/codeMemory.js";
import { type Koffi, loadKoffi } from "../system/koffi.js";
import { nativeAddress } from "../system/nativeAddress.js";
import type { KernelFunction } from "./kernelFunctions.js";

/** Calls kernels in machine code on one memory from one thread. */
export class KernelCaller {
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
    // Passing fewer arguments is faster, and most kernels are not divided among threads.
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
