import { KernelLibrary, kernelImports } from "../../compiler/kernel/kernelLibrary.js";
import type { Access, KernelSpec } from "../../compiler/kernel/spec.js";
import { writeKernelCode } from "../../compiler/native/kernelCode.js";
import { BASELINE_FEATURES } from "../../compiler/wasm/features.js";
import type { CodeMemory } from "../system/codeMemory.js";
import { releaseNativeAddress } from "../system/nativeAddress.js";
import { bindKernels } from "./nativeKernels.js";

/** The instruction set of machine code for kernels, and the width of its vectors. */
export interface KernelChoice {
  readonly set: "AVX-512" | "AVX2";
  readonly bits: 256 | 512;
}

const [ROWS, COLUMNS] = [3, 93];

/** Rows of a softmax with masks: loads, constants, comparisons, reductions and kept rows. */
function testSpec(): KernelSpec {
  const whole = (arg: number): Access => ({ arg, strides: [COLUMNS, 1] });
  const float = { from: "float32", to: "float32" } as const;
  const op = (name: "sub" | "exp" | "div" | "max", ...args: number[]) =>
    ({ kind: "op", dtype: "float32", call: { op: name, ...float }, args, result: 0 }) as const;
  return {
    dims: [ROWS, COLUMNS],
    numRows: 1,
    args: ["float32", "float32", "bool"],
    nodes: [
      { kind: "load", dtype: "float32", access: whole(0) },
      { kind: "reduce", dtype: "float32", combine: "max", arg: 0 },
      op("sub", 0, 1),
      op("exp", 2),
      { kind: "reduce", dtype: "float32", combine: "sum", arg: 3 },
      op("div", 3, 4),
      { kind: "literal", dtype: "float32", value: 0.01 },
      {
        kind: "op",
        dtype: "bool",
        call: { op: "compare", direction: "gt", from: "float32", to: "bool" },
        args: [5, 6],
        result: 0,
      },
    ],
    stores: [
      { node: 5, access: whole(1) },
      { node: 7, access: whole(2) },
    ],
    fills: [],
  };
}

/** Addresses of the test's address table, arguments, inputs and results. */
const PLACES = { table: 64, args: 128, input: 1024, output: 4096, mask: 8192, scratch: 12288, bytes: 16384 };

/** Whether a kernel in machine code gives the same bits as in WebAssembly. */
export function computesRight(memory: CodeMemory, { bits }: KernelChoice): boolean {
  const wasm = run(undefined, memory);
  const native = run(bits, memory);
  return wasm !== undefined && native !== undefined && Buffer.compare(wasm, native) === 0;
}

/** The memory after the kernel has run: its results and the bytes around them. */
function run(bits: KernelChoice["bits"] | undefined, code: CodeMemory): Uint8Array | undefined {
  const library = new KernelLibrary(BASELINE_FEATURES);
  library.add(testSpec());
  const built = library.module("i32", (plan, isDivided) =>
    bits === undefined ? undefined : writeKernelCode(plan, isDivided, { bits, addressType: "i32" }),
  );
  const pieces = built.native.filter((piece) => piece !== undefined);
  if (bits !== undefined && pieces.length === 0) return undefined;
  const native = pieces.length > 0 ? code.load(pieces) : [];
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const words = new Uint32Array(memory.buffer);
  const { input, output, mask, scratch } = PLACES;
  [input, output, mask, scratch].forEach((place, i) => {
    words[PLACES.table / 4 + i] = place;
    words.set([4 * i, 0], PLACES.args / 4 + 2 * i);
  });
  const values = new Float32Array(memory.buffer, input, ROWS * COLUMNS);
  for (let i = 0; i < values.length; i++) values[i] = ((i * 7919) % 257) / 16 - 8;
  values[5] = Number.NEGATIVE_INFINITY;
  const module = new WebAssembly.Module(built.bytes.slice());
  const [kernel] = bindKernels({ ...built, module, native }, kernelImports(memory), memory);
  kernel?.(PLACES.table, PLACES.args);
  releaseNativeAddress(memory);
  return new Uint8Array(memory.buffer, 0, PLACES.bytes).slice();
}
