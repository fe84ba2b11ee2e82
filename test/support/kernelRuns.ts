import { vi } from "vitest";
import { lowerProgram } from "../../src/compiler/compile.js";
import { KernelLibrary, kernelImports } from "../../src/compiler/kernel/kernelLibrary.js";
import type { KernelNode, KernelSpec } from "../../src/compiler/kernel/spec.js";
import { READ_SLACK } from "../../src/compiler/steps.js";
import { BASELINE_FEATURES } from "../../src/compiler/wasm/features.js";
import { allocateHost, byteSize, viewHost } from "../../src/ir/dtype.js";
import { at, range } from "../../src/ir/shape.js";
import { Random, randomProgram } from "../compiler/randomProgram.js";
import type { ArgMemory } from "./kernelReference.js";

/** Bytes on both sides of an argument that no kernel may write. */
const MARGIN = 256;

/**
 * Compiles a kernel and runs it on copies of the arguments; gives them as they are afterwards, and throws if a byte
 * beside them has changed. 16-bit floats are not supported.
 *
 * @param parts into how many parts the kernel is divided; they run from the last to the first
 */
export function runKernel(spec: KernelSpec, memory: readonly ArgMemory[], parts = 1): ArgMemory[] {
  const library = new KernelLibrary(BASELINE_FEATURES, parts);
  const { spillBytes, rows } = library.add(spec);
  if (parts > 1 && rows === undefined) throw new RangeError("[runKernel] the kernel cannot be divided");
  const sizes = [...memory.map(({ dtype, values }) => values.length * byteSize(dtype)), ...spillBytes];
  let end = 1024;
  const starts = sizes.map((size) => {
    const start = end + MARGIN;
    end = Math.ceil((start + size + MARGIN) / 64) * 64;
    return start;
  });
  const pages = Math.ceil((end + READ_SLACK) / 65536);
  const wasm = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const bytes = new Uint8Array(wasm.buffer);
  bytes.fill(0xab, 1024);
  memory.forEach(({ dtype, values }, i) => {
    const data = allocateHost(dtype, values.length);
    data.set(values);
    bytes.set(new Uint8Array(data.buffer), at(starts, i));
  });
  // One slot of the address table, which holds 0; arguments are pairs of a slot and an offset.
  const args = new Int32Array(wasm.buffer, 64, 2 * starts.length);
  starts.forEach((start, i) => {
    const origin = memory[i] ? at(memory, i).origin * byteSize(at(memory, i).dtype) : 0;
    args.set([0, start + origin], 2 * i);
  });
  const module = new WebAssembly.Module(library.module().bytes as Uint8Array<ArrayBuffer>);
  const run = new WebAssembly.Instance(module, kernelImports(wasm)).exports.k0;
  if (typeof run !== "function") throw new Error("[runKernel] the module exports no kernel");
  if (rows === undefined) run(0, 64);
  else {
    const bound = (part: number) => Math.floor((part * rows) / parts);
    for (const part of range(parts).reverse()) run(0, 64, bound(part), bound(part + 1), part);
  }
  const inside = new Uint8Array(end);
  starts.forEach((start, i) => {
    inside.fill(1, start, start + at(sizes, i));
  });
  const spoiled = inside.findIndex((is, i) => is === 0 && i >= 1024 && bytes[i] !== 0xab);
  if (spoiled >= 0) throw new RangeError(`[runKernel] byte ${spoiled} beside the arguments was written`);
  return memory.map((arg, i) => {
    const own = bytes.slice(at(starts, i), at(starts, i) + at(sizes, i));
    return { ...arg, values: Array.from(viewHost(arg.dtype, own.buffer)) };
  });
}

/** A random kernel over rows: values of rows and of their elements, and reductions of both kinds of them. */
export function randomRowKernel(seed: number): KernelSpec {
  const random = new Random(seed);
  const [rows, columns] = [1 + random.below(3), 1 + random.below(20)];
  const load = (arg: number, ...strides: number[]): KernelNode => {
    return { kind: "load", dtype: "float32", access: { arg, strides } };
  };
  const nodes: KernelNode[] = [load(0, columns, 1), load(1, 0, 1), load(2, 1, 0)];
  for (const _ of range(4 + random.below(9))) {
    const pick = () => random.below(nodes.length);
    const kind = random.below(3);
    const op =
      kind === 0
        ? random.pick(["neg", "abs", "exp", "tanh"] as const)
        : random.pick(["add", "sub", "mul", "max", "div"] as const);
    const args = kind === 0 ? [pick()] : [pick(), pick()];
    nodes.push(
      kind === 2
        ? {
            kind: "reduce",
            dtype: "float32",
            combine: random.pick(["sum", "max", "min"] as const),
            arg: pick(),
          }
        : { kind: "op", dtype: "float32", call: { op, from: "float32", to: "float32" }, args, result: 0 },
    );
  }
  const stored = [...new Set([nodes.length - 1, random.below(nodes.length), random.below(nodes.length)])];
  return {
    dims: [rows, columns],
    numRows: 1,
    args: ["float32", "float32", "float32", ...stored.map(() => "float32" as const)],
    nodes,
    stores: stored.map((node, i) => ({ node, access: { arg: 3 + i, strides: [columns, 1] } })),
    fills: [],
  };
}

/** The kernels of random programs, as they are before any pass over kernels. */
export function randomKernels(count: number, seed: number): KernelSpec[] {
  const add = vi.spyOn(KernelLibrary.prototype, "add");
  const types = ["float32", "int32", "bool"] as const;
  for (const i of range(count)) {
    lowerProgram(randomProgram({ seed: seed + i, numEqns: 12 + (i % 20), types }), { mesh: { axes: [] } });
  }
  const specs = new Set(add.mock.calls.map(([spec]) => spec));
  add.mockRestore();
  return [...specs];
}
