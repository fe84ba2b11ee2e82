import type { HostStep } from "../../compiler/steps.js";

/** The imports of kernel modules. */
export function kernelImports(memory: WebAssembly.Memory): WebAssembly.Imports {
  return { env: { memory } };
}

/** Runs a step in JavaScript. */
export function runHostStep(step: HostStep, _table: number, _memory: WebAssembly.Memory): void {
  throw new Error(`host step ${step.kernel.kind}`);
}
