import { InternalError } from "../../ir/errors.js";

/**
 * A kernel: takes the addresses of the address table and of its arguments, and if threads share it the first row
 * of a part, the row after its last, and the number of the part.
 */
export type KernelFunction = (table: number, args: number, from?: number, to?: number, part?: number) => void;

/** Runs one of `count` parts of a kernel that threads share. */
export function runRows(
  kernel: KernelFunction,
  table: number,
  args: number,
  rows: number,
  part: number,
  count: number,
): void {
  kernel(table, args, Math.floor((part * rows) / count), Math.floor(((part + 1) * rows) / count), part);
}

/** The kernels of a module, in the order of their names. */
export function instantiateKernels(
  module: WebAssembly.Module,
  names: readonly string[],
  imports: WebAssembly.Imports,
): KernelFunction[] {
  const { exports } = new WebAssembly.Instance(module, imports);
  return names.map((name) => {
    const kernel = exports[name];
    if (typeof kernel !== "function") throw new InternalError(`[threads] a kernel module has no ${name}`);
    return kernel as KernelFunction;
  });
}
