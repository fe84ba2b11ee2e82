import { BASELINE_FEATURES, detectFeatures, type WasmFeatures } from "../../src/compiler/wasm/features.js";
import { type Vec, VecBuilder } from "../../src/compiler/wasm/vectorProgram.js";
import { STORAGE_BYTES, type VectorStorage } from "../../src/compiler/wasm/vectorStorage.js";
import { enableRelaxedSimd } from "../../src/engines/system/v8Flags.js";
import { scalarFunctions } from "../../src/ir/scalarFunctions.js";
import { buildElementwiseModule } from "./elementwiseKernel.js";

enableRelaxedSimd();

/** The instruction sets tests run with: always the baseline, and fused multiply-add where the host has it. */
export const FEATURE_SETS: readonly WasmFeatures[] = detectFeatures().fma
  ? [BASELINE_FEATURES, { fma: true }]
  : [BASELINE_FEATURES];

/** An array of 32-bit elements a test hands to a vector program. */
export type Words = Float32Array | Int32Array | Uint32Array;

/** Runs one expression over arrays of equal length and returns the bits of the result. */
export function evaluate(
  features: WasmFeatures,
  expression: (b: VecBuilder, ...inputs: Vec[]) => Vec,
  inputs: readonly Words[],
  options: { readonly unroll?: number } = {},
): Uint32Array {
  const b = new VecBuilder(features);
  const program = b.finish([expression(b, ...inputs.map((_, slot) => b.input(slot)))]);
  const storage = inputs.map((): VectorStorage => "word");
  const module = buildElementwiseModule({ program, inputs: storage, outputs: ["word"], ...options });
  const [result] = runModule(module, inputs, [{ storage: "word", length: inputs[0]?.length ?? 0 }]);
  if (result === undefined) throw new Error("[evaluate] the module has no output");
  return new Uint32Array(result.buffer);
}

/** Copies arrays into a fresh memory, runs a kernel module over them and returns the bytes of its outputs. */
export function runModule(
  bytes: Uint8Array<ArrayBuffer>,
  inputs: readonly ArrayBufferView[],
  outputs: readonly { readonly storage: VectorStorage; readonly length: number }[],
): Uint8Array<ArrayBuffer>[] {
  const count = outputs[0]?.length ?? 0;
  const sizes = [
    ...inputs.map((input) => input.byteLength),
    ...outputs.map((output) => output.length * STORAGE_BYTES[output.storage]),
  ];
  let end = 16;
  const addresses = sizes.map((size) => {
    const at = end;
    end = Math.ceil((at + size) / 16) * 16;
    return at;
  });
  const pages = Math.ceil(end / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const all = new Uint8Array(memory.buffer);
  inputs.forEach((input, index) => {
    all.set(new Uint8Array(input.buffer, input.byteOffset, input.byteLength), addresses[index]);
  });
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), {
    env: { memory },
    math: scalarFunctions,
  });
  const { run } = instance.exports;
  if (typeof run !== "function") throw new Error("[runModule] the module exports no run");
  run(count, ...addresses);
  return addresses.slice(inputs.length).map((at, index) => {
    const copy = new Uint8Array(sizes[inputs.length + index] ?? 0);
    copy.set(all.subarray(at, at + copy.length));
    return copy;
  });
}

const word = new DataView(new ArrayBuffer(4));

function orderedBits(value: number): number {
  word.setFloat32(0, value);
  const bits = word.getInt32(0);
  return bits < 0 ? -(bits & 0x7fffffff) : bits;
}

/** How many float32 values lie between two; NaN matches NaN only, and zeros must agree in sign. */
export function ulpDistance(actual: number, expected: number): number {
  if (Object.is(actual, expected)) return 0;
  if (Number.isNaN(actual) || Number.isNaN(expected)) return Infinity;
  if (actual === 0 && expected === 0) return Infinity;
  return Math.abs(orderedBits(actual) - orderedBits(expected));
}

/** Values at which float32 functions like to go wrong. */
export const SPECIAL_VALUES: readonly number[] = [
  0,
  -0,
  Infinity,
  -Infinity,
  Number.NaN,
  1,
  -1,
  2,
  -2,
  0.5,
  -0.5,
  3,
  -3,
  1.4e-45,
  -1.4e-45,
  3.4028235e38,
  -3.4028235e38,
  0.99999994,
  -0.99999994,
  1.0000001,
  1.17549435e-38,
  -1.17549421e-38,
  88.72283,
  88.722839,
  -87.33655,
  -103.9,
  -104.1,
  1e5,
  -1e5,
  1e9,
  1e30,
  8388609,
  2.5,
  -2.5,
  3.5,
  0.49999997,
  8.0,
  9.01,
  9.03,
  3.92,
].map(Math.fround);

/** Special values and one float32 out of every 4096 of the whole range, at a jittered place in its stretch. */
export function denseSamples(): Float32Array {
  const count = process.env.CASES === "all" ? 2 ** 20 : 2 ** 18;
  const step = 2 ** 32 / count;
  const samples = new Float32Array(SPECIAL_VALUES.length + count);
  samples.set(SPECIAL_VALUES);
  const bits = new Uint32Array(samples.buffer);
  for (let i = 0; i < count; i++) {
    bits[SPECIAL_VALUES.length + i] = i * step + ((Math.imul(i, 0x9e3779b1) >>> 16) & (step - 1));
  }
  return samples;
}
