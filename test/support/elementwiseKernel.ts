import { ModuleBuilder } from "../../src/compiler/wasm/assembler.js";
import {
  chooseUnroll,
  emitInterleaved,
  importHostFunctions,
  prepareProgram,
} from "../../src/compiler/wasm/emitInterleaved.js";
import type { FunctionBody, Local } from "../../src/compiler/wasm/functionBody.js";
import type { VecProgram } from "../../src/compiler/wasm/vectorProgram.js";
import {
  emitLaneStore,
  emitSplatLoad,
  emitVectorLoad,
  emitVectorStore,
  STORAGE_BYTES,
  type VectorStorage,
} from "../../src/compiler/wasm/vectorStorage.js";

/** A program over contiguous arrays of one length. */
export interface ElementwiseKernel {
  readonly program: VecProgram;
  /** How each input slot lies in memory. */
  readonly inputs: readonly VectorStorage[];
  /** How each output lies in memory. */
  readonly outputs: readonly VectorStorage[];
  readonly unroll?: number;
}

/**
 * A module that imports `env.memory` and exports `run(count, ...inputAddresses, ...outputAddresses)`.
 *
 * The plainest kernel around a vector program: an unrolled main loop, a loop over single vectors and one
 * over single elements.
 */
export function buildElementwiseModule(kernel: ElementwiseKernel): Uint8Array<ArrayBuffer> {
  const builder = new ModuleBuilder();
  builder.importMemory({ module: "env", name: "memory", shared: true, minimumPages: 1, maximumPages: 65536 });
  const host = importHostFunctions(builder);
  const arrays = [...kernel.inputs, ...kernel.outputs];
  const params = ["i32" as const, ...arrays.map(() => "i32" as const)];
  const write = (code: FunctionBody): void => {
    const left = code.param(0);
    const addresses = arrays.map((_, index) => code.param(index + 1));
    const prepared = prepareProgram(code, kernel.program, host);
    const stage = (unroll: number, whole: boolean): void => {
      const lanes = whole ? 4 : 1;
      const step = unroll * lanes;
      code.block((done) => {
        code.loop((next) => {
          code.get(left).i32(step).op("i32.lt_u").brIf(done);
          emitInterleaved(code, prepared, unroll, {
            input: (slot, copy, to) => {
              const [address, storage] = port(addresses, arrays, slot);
              code.get(address);
              const offset = copy * lanes * STORAGE_BYTES[storage];
              if (whole) emitVectorLoad(code, storage, offset);
              else emitSplatLoad(code, storage, offset);
              code.set(to);
            },
            output: (index, copy, value) => {
              const [address, storage] = port(addresses, arrays, kernel.inputs.length + index);
              code.get(address).get(value);
              const offset = copy * lanes * STORAGE_BYTES[storage];
              if (whole) emitVectorStore(code, storage, offset);
              else emitLaneStore(code, storage, offset);
            },
          });
          arrays.forEach((storage, index) => {
            const [address] = port(addresses, arrays, index);
            code.increment(address, step * STORAGE_BYTES[storage]);
          });
          code.increment(left, -step);
          code.br(next);
        });
      });
    };
    const unroll = kernel.unroll ?? chooseUnroll(kernel.program);
    if (unroll > 1) stage(unroll, true);
    stage(1, true);
    stage(1, false);
  };
  builder.function({ params, results: [] }, write, "run");
  return builder.toBytes();
}

function port(
  addresses: readonly Local[],
  arrays: readonly VectorStorage[],
  index: number,
): [Local, VectorStorage] {
  const address = addresses[index];
  const storage = arrays[index];
  if (address === undefined || storage === undefined)
    throw new RangeError(`[buildElementwiseModule] no array ${index}`);
  return [address, storage];
}
