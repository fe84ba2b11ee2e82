/** Stands in for the WebAssembly kernels that move and combine elements; knows elements of 32 bits. */
import type { Combine } from "../../../src/compiler/identities.js";
import type { CombineKernel, MoveKernels } from "../../../src/engines/collectives/moveKernels.js";

export type { CombineKernel, MoveKernels };

const combiners: Readonly<Record<Combine, (a: number, b: number) => number>> = {
  sum: (a, b) => a + b,
  max: (a, b) => Math.max(a, b),
  min: (a, b) => Math.min(a, b),
};

/** The kernels on a memory, one word after the other. */
export function instantiateMoveKernels(_module: WebAssembly.Module, memory: WebAssembly.Memory): MoveKernels {
  const words = new Int32Array(memory.buffer);
  const copy = (target: number, source: number, bytes: number) => {
    for (let i = 0; i < bytes / 4; i++) words[target / 4 + i] = words[source / 4 + i] ?? 0;
  };
  const unknown = () => {
    throw new Error("16-bit floats are not simulated");
  };
  return {
    copy,
    copyRows(target, source, bytes, rows, targetStride, sourceStride) {
      for (let row = 0; row < rows; row++)
        copy(target + row * targetStride, source + row * sourceStride, bytes);
    },
    zero(target, bytes) {
      for (let i = 0; i < bytes / 4; i++) words[target / 4 + i] = 0;
    },
    touch() {},
    combine(_dtype, name): CombineKernel {
      const combine = combiners[name];
      return (target, a, b, bytes) => {
        for (let i = 0; i < bytes / 4; i++) {
          words[target / 4 + i] = combine(words[a / 4 + i] ?? 0, words[b / 4 + i] ?? 0);
        }
      };
    },
    sumTwice(first, second, a, b, bytes) {
      for (let i = 0; i < bytes / 4; i++) {
        const sum = (words[a / 4 + i] ?? 0) + (words[b / 4 + i] ?? 0);
        words[first / 4 + i] = sum;
        words[second / 4 + i] = sum;
      }
    },
    widen: { bfloat16: unknown, float16: unknown },
    narrow: { bfloat16: unknown, float16: unknown },
  };
}

/** An empty module. */
export function buildMoveModule(): Uint8Array<ArrayBuffer> {
  return Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
}
