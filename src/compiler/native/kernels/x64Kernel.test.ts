import { describe, expect } from "vitest";
import { testWith, vectors } from "../../../../test/support/optional.js";
import { type RandomKernel, randomKernel, randomSource } from "../../../../test/support/randomKernel.js";
import type { LoadedModule } from "../../../engines/kernels/loadKernels.js";
import { bindKernels } from "../../../engines/kernels/nativeKernels.js";
import type { CodeMemory } from "../../../engines/system/codeMemory.js";
import { releaseNativeAddress } from "../../../engines/system/nativeAddress.js";
import { enableRelaxedSimd } from "../../../engines/system/v8Flags.js";
import { byteSize, type DType } from "../../../ir/dtype.js";
import { at, range } from "../../../ir/shape.js";
import { KernelLibrary, kernelImports } from "../../kernel/kernelLibrary.js";
import { kernelArgs } from "../../kernel/phases.js";
import type { KernelNode } from "../../kernel/spec.js";
import { ADDRESS_BYTES, type AddressType, viewAddresses } from "../../wasm/addresses.js";
import { detectFeatures } from "../../wasm/features.js";
import { writeKernelCode } from "../kernelCode.js";

enableRelaxedSimd();
const features = detectFeatures();
const numKernels = Number(process.env.FUZZ_KERNELS ?? 150);
const seed = Number(process.env.SEED ?? 1);

const SPECIAL = [Number.NaN, Infinity, -Infinity, 0, -0, 1e-40, -1e-45, 3.4e38, -104.5, 88.8, 1];

/** Where every argument of a kernel lies, with room between them that must not change. */
interface Places {
  readonly arguments: readonly number[];
  readonly table: number;
  readonly list: number;
  readonly bytes: number;
}

function placesOf(types: readonly DType[], bytes: readonly number[]): Places {
  let end = 256;
  const places = types.map((dtype, i) => {
    // Elements begin where their own size allows, not where vectors like it.
    const place = end + byteSize(dtype) * (i % 5);
    end = Math.ceil((place + at(bytes, i)) / 64) * 64 + 64;
    return place;
  });
  return { arguments: places, table: end, list: end + 1024, bytes: end + 4096 };
}

function fill(memory: Uint8Array, dtype: DType, place: number, bytes: number, random: () => number): void {
  const data = new DataView(memory.buffer, place, bytes);
  for (let i = 0; i + byteSize(dtype) <= bytes; i += byteSize(dtype)) {
    const value = random() < 0.1 ? at(SPECIAL, Math.floor(random() * SPECIAL.length)) : (random() - 0.5) * 8;
    if (dtype === "float32") data.setFloat32(i, value, true);
    else if (dtype === "bool") data.setUint8(i, random() < 0.5 ? 1 : 0);
    else if (byteSize(dtype) === 2) data.setUint16(i, random() * 65536, true);
    else data.setInt32(i, random() < 0.5 ? value : (random() - 0.5) * 2 ** 32, true);
  }
}

/** The bits of elements, all NaN alike: WebAssembly leaves open which one comes out. */
function bitsOf(
  memory: Uint8Array,
  types: readonly DType[],
  places: Places,
  bytes: readonly number[],
): Buffer {
  const copy = memory.slice();
  const data = new DataView(copy.buffer);
  types.forEach((dtype, i) => {
    const place = at(places.arguments, i);
    for (let j = place; j + byteSize(dtype) <= place + at(bytes, i); j += byteSize(dtype)) {
      if (dtype === "float32" && Number.isNaN(data.getFloat32(j, true))) data.setUint32(j, 0x7fc00000, true);
      const half = byteSize(dtype) === 2 ? data.getUint16(j, true) & 0x7fff : 0;
      const infinity = dtype === "bfloat16" ? 0x7f80 : 0x7c00;
      if (half > infinity) data.setUint16(j, 0x7fff, true);
    }
  });
  return Buffer.from(copy.buffer);
}

/** Writes the address table and a list of arguments that names its entries in order. */
function writeAddresses(memory: WebAssembly.Memory, places: Places, addressType: AddressType): void {
  const bytes = ADDRESS_BYTES[addressType];
  const table = viewAddresses(addressType, memory.buffer, places.table, places.arguments.length);
  const list = viewAddresses(addressType, memory.buffer, places.list, 2 * places.arguments.length);
  places.arguments.forEach((place, i) => {
    table[i] = place;
    list.set([bytes * i, 0], 2 * i);
  });
}

/**
 * Runs a kernel as WebAssembly and as machine code; says where memory differs, or that it stays WebAssembly.
 *
 * @param parts how many threads could share the kernel; their parts run from the last to the first
 */
function compare(
  code: CodeMemory,
  kernel: RandomKernel,
  bits: 256 | 512,
  random: () => number,
  parts = 1,
): string {
  const library = new KernelLibrary(features, parts);
  const { plan, spillBytes, rows } = library.add(kernel.spec);
  const addressType = random() < 0.3 ? "i64" : "i32";
  const native = library.module("i32", (own, isDivided) =>
    writeKernelCode(own, isDivided, { bits, addressType }),
  );
  const piece = native.native[0];
  if (piece === undefined) return "WebAssembly";
  const types = kernelArgs(plan);
  const bytes = [...kernel.bytes, ...spillBytes];
  const places = placesOf(types, bytes);
  const pages = Math.ceil(places.bytes / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const whole = new Uint8Array(memory.buffer);
  types.forEach((dtype, i) => {
    fill(whole, dtype, at(places.arguments, i), at(bytes, i), random);
  });
  const before = whole.slice();
  const run = (bound: LoadedModule, addresses: AddressType): Buffer => {
    whole.set(before);
    writeAddresses(memory, places, addresses);
    const kernel = at(bindKernels(bound, kernelImports(memory), memory), 0);
    if (rows === undefined) kernel(places.table, places.list);
    else {
      const bound = (part: number) => Math.floor((part * rows) / parts);
      for (const part of range(parts).reverse()) {
        kernel(places.table, places.list, bound(part), bound(part + 1), part);
      }
    }
    return bitsOf(whole.slice(0, places.table), types, places, bytes);
  };
  const wasm = library.module("i32");
  const compiled = (from: typeof wasm) => new WebAssembly.Module(from.bytes.slice());
  const expected = run({ ...wasm, module: compiled(wasm), native: [] }, "i32");
  const loaded = code.load([piece]);
  const actual = run({ ...native, module: compiled(native), native: loaded }, addressType);
  code.unload(at(loaded, 0));
  releaseNativeAddress(memory);
  if (expected.equals(actual)) return "";
  const first = expected.findIndex((byte, i) => byte !== actual[i]);
  const arg = places.arguments.findLastIndex((place) => place <= first);
  return `byte ${first - at(places.arguments, arg)} of argument ${arg} (${types[arg]}) is ${actual[first]}, not ${expected[first]}`;
}

const addition: KernelNode = {
  kind: "op",
  dtype: "float32",
  call: { op: "add", from: "float32", to: "float32" },
  args: [0, 1],
  result: 0,
};

testWith(vectors[256], "kernels refuse arguments that leave the memory, and do nothing", {}, (opened) => {
  const library = new KernelLibrary(features);
  const access = { arg: 0, strides: [1] };
  library.add({
    ...{ dims: [64], numRows: 0, args: ["float32"], fills: [] },
    nodes: [
      { kind: "load", dtype: "float32", access },
      { kind: "literal", dtype: "float32", value: 1 },
      addition,
    ],
    stores: [{ node: 2, access }],
  });
  const built = library.module("i32", (plan, isDivided) =>
    writeKernelCode(plan, isDivided, { bits: 256, addressType: "i32" }),
  );
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const module = new WebAssembly.Module(built.bytes.slice());
  const native = opened.load(built.native.filter((piece) => piece !== undefined));
  const kernel = at(bindKernels({ ...built, module, native }, kernelImports(memory), memory), 0);
  const words = new Uint32Array(memory.buffer);
  for (const [place, isRefused] of [
    [65536 - 256, false],
    [65536 - 252, true],
    [0xfffffff0, true],
  ] as const) {
    words.fill(0);
    words[16] = place;
    if (isRefused) expect(() => kernel(64, 128)).toThrow(/argument 0 of a kernel leaves the memory of 65536/);
    else kernel(64, 128);
    expect(new Float32Array(memory.buffer)[65536 / 4 - 1]).toBe(isRefused ? 0 : 1);
  }
  releaseNativeAddress(memory);
});

describe.each([256, 512] as const)("kernels of %s bits", (bits) => {
  testWith(vectors[bits], "add up over rows in parts as WebAssembly does", {}, (opened) => {
    const load = (arg: number, ...strides: number[]): KernelNode => ({
      kind: "load",
      dtype: "float32",
      access: { arg, strides },
    });
    const sums = (batch: number): RandomKernel => ({
      spec: {
        ...{ dims: [batch, 100, 210], numRows: 0, args: ["float32", "float32", "float32"] },
        nodes: [load(0, 0, 1, 0), load(1, 21_000, 210, 1), addition],
        stores: [{ node: 2, access: { arg: 2, strides: [210, 0, 1] }, combine: "sum" }],
        fills: [{ arg: 2, count: batch * 210, value: 0 }],
      },
      bytes: [400, batch * 84_000, batch * 840],
    });
    for (const batch of [1, 3]) {
      expect(new KernelLibrary(features, 3).add(sums(batch).spec).rows).toBe(3);
      expect(compare(opened, sums(batch), bits, randomSource(1), 3)).toBe("");
    }
  });

  testWith(
    vectors[bits],
    "multiply rows by matrices as WebAssembly does, several at a time",
    {},
    (opened) => {
      for (const dtype of ["float32", "bfloat16"] as const) {
        const load = (arg: number, ...strides: number[]): KernelNode => {
          return { kind: "load", dtype, access: { arg, strides } };
        };
        const op = (name: "convert" | "mul", from: DType, ...args: number[]): KernelNode => {
          const call = { op: name, from, to: "float32" } as const;
          return { kind: "op", dtype: "float32", call, args, result: 0 };
        };
        const size = byteSize(dtype);
        for (const [rows, columns] of [
          [24, 333],
          [20, 128],
          [7, 130],
        ] as const) {
          const products: RandomKernel = {
            spec: {
              ...{ dims: [16, rows, columns], numRows: 0, args: [dtype, dtype, "float32"] },
              nodes: [
                load(0, rows, 1, 0),
                op("convert", dtype, 0),
                load(1, rows * columns, columns, 1),
                op("convert", dtype, 2),
                op("mul", "float32", 1, 3),
              ],
              stores: [{ node: 4, access: { arg: 2, strides: [columns, 0, 1] }, combine: "sum" }],
              fills: [{ arg: 2, count: 16 * columns, value: 0 }],
            },
            bytes: [16 * rows * size, 16 * rows * columns * size, 16 * columns * 4],
          };
          expect(compare(opened, products, bits, randomSource(1), 3), `${dtype} ${rows}`).toBe("");
        }
      }
    },
  );

  testWith(vectors[bits], "have the bits of WebAssembly and touch nothing else", {}, (opened) => {
    let numNative = 0;
    for (let i = 0; i < numKernels; i++) {
      const random = randomSource(seed * 1_000_003 + i);
      const kernel = randomKernel(random);
      const found = compare(opened, kernel, bits, random);
      if (found !== "WebAssembly") numNative++;
      if (found !== "" && found !== "WebAssembly")
        expect.fail(`kernel ${i} of seed ${seed}: ${found}\n${JSON.stringify(kernel.spec)}`);
    }
    expect(numNative / numKernels).toBeGreaterThan(0.8);
  });
});
