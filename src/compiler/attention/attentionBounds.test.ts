import { afterAll, describe, expect, it } from "vitest";
import { type GuardedMemory, mapGuarded } from "../../../test/support/guardedMemory.js";
import { codeMemory, orSkip } from "../../../test/support/optional.js";
import { randomSource } from "../../../test/support/randomKernel.js";
import { nativeKernelsHere } from "../../engines/kernels/kernelChoice.js";
import { instantiateKernels } from "../../engines/kernels/kernelFunctions.js";
import { bindCode } from "../../engines/system/codeMemory.js";
import { loadKoffi } from "../../engines/system/koffi.js";
import { at } from "../../ir/shape.js";
import { KernelLibrary, kernelImports } from "../kernel/kernelLibrary.js";
import { writeAttention } from "../native/attention/x64Attention.js";
import { CONTEXT } from "../native/kernels/x64Arguments.js";
import { BASELINE_FEATURES, detectFeatures, type WasmFeatures } from "../wasm/features.js";
import {
  type AttentionArgument,
  type AttentionKernel,
  argumentBytes,
  attentionScratchBytes,
  attentionUnits,
  type HeadStrides,
  type HeadsName,
} from "./attentionKernel.js";
import { attentionTile } from "./attentionTile.js";
import { wasmAttention } from "./wasmMachine.js";

const numKernels = Number(process.env.FUZZ_ATTENTION ?? 20);
const seed = Number(process.env.SEED ?? 1);

const ofForward = ["query", "key", "value", "mixed", "logSums"] as const;
const ofBackward = [
  ...["query", "key", "value", "logSums", "mixedCotangent", "mixed"],
  ...["logSumsCotangent", "queryCotangent", "keyCotangent", "valueCotangent"],
] as const as readonly AttentionArgument[];

/** A kernel of any sizes, whose operands lie in any order of their dims, some with gaps between rows. */
function randomKernel(random: () => number, tile: AttentionKernel["tile"]): AttentionKernel {
  const below = (count: number) => Math.floor(random() * count);
  const pick = <T>(...values: readonly [T, ...T[]]): T => values[below(values.length)] ?? values[0];
  const keyHeads = 1 + below(3);
  const [batch, heads] = [1 + below(2), keyHeads * (1 + below(3))];
  const headSize = pick(1 + below(20), 1 + below(70), 8, 16, 32, 64);
  const extent = () => pick(1 + below(4), 1 + below(40), 1 + below(300));
  const [length, keyLength] = [extent(), extent()];
  const args = pick<readonly AttentionArgument[]>(ofForward, ofBackward, ofBackward);
  const stridesOf = (rows: number, all: number): HeadStrides => {
    const gap = pick(0, 0, 4, 12);
    const width = 4 * headSize + gap;
    const headsLast = { batch: rows * all * width, row: all * width, head: width };
    return pick(headsLast, headsLast, { batch: rows * all * width, row: width, head: rows * width });
  };
  const strides: { [N in HeadsName]?: HeadStrides } = {};
  for (const name of args) {
    if (name === "logSums" || name === "logSumsCotangent") continue;
    const isOfKeys = name.startsWith("key") || name.startsWith("value");
    strides[name] = isOfKeys ? stridesOf(keyLength, keyHeads) : stridesOf(length, heads);
  }
  const side = () => pick(-1, -1, 0, below(5), below(200));
  return {
    ...{ kind: "attention", batch, length, heads, keyLength, keyHeads, headSize, scale: 0.5 },
    ...{ before: side(), ahead: side(), args, strides, tile },
  };
}

/** The bytes of the arguments of a kernel, and of the scratch memory of a thread. */
const sizesOf = (kernel: AttentionKernel): readonly number[] => [
  ...kernel.args.map((_, i) => argumentBytes(kernel, i)),
  attentionScratchBytes(kernel),
];

const describeKernel = (kernel: AttentionKernel, i: number) =>
  `kernel ${i} of seed ${seed}: ${JSON.stringify(kernel)}`;

const memory = orSkip(codeMemory);

describe.each([256, 512] as const)("attention with vectors of %i bits", (bits) => {
  if (memory === undefined || "unavailable" in nativeKernelsHere(bits === 512 ? "AVX-512" : "AVX2")) return;
  const guarded: GuardedMemory[] = [...ofBackward, "scratch"].map(() => mapGuarded(2 ** 23));
  const words = mapGuarded(65536);
  afterAll(() => {
    for (const one of [...guarded, words]) one.release();
  });

  // A byte beyond the arguments ends the process.
  it("touches nothing but its arguments and scratch memory", () => {
    const random = randomSource(seed);
    const koffi = loadKoffi();
    for (let i = 0; i < numKernels; i++) {
      const kernel = randomKernel(random, attentionTile(BASELINE_FEATURES, bits));
      const [address] = memory.load([writeAttention(kernel, { bits, addressType: "i64" })]);
      if (koffi === undefined || address === undefined) throw new Error("attention needs koffi");
      const sizes = sizesOf(kernel);
      const places = sizes.map((bytes, j) => {
        const { start, bytes: all } = at(guarded, j);
        const offset = random() < 0.7 ? all.byteLength - bytes : 0;
        new Float32Array(all).fill(1);
        return start + offset;
      });
      // Addresses are absolute, and numbers of float64 where memories are large.
      const [table, list] = [1024, 2048];
      new BigInt64Array(words.bytes).set([0n, 2n ** 53n, 0n]);
      new Float64Array(words.bytes, table, places.length).set(places);
      new Float64Array(words.bytes, list, 2 * places.length).set(places.flatMap((_, j) => [8 * j, 0]));
      const run = bindCode(koffi, address, 6);
      run(words.start, words.start + table, words.start + list, 0, attentionUnits(kernel), 0);
      expect(new Int32Array(words.bytes, CONTEXT.failed, 1)[0], describeKernel(kernel, i)).toBe(0);
    }
  });
});

const tiles: readonly WasmFeatures[] = [detectFeatures(), { fma: false }, { fma: false, fewRegisters: true }];

describe.each(tiles)("attention in WebAssembly with %o", (features) => {
  // An access beyond the memory throws.
  it("touches nothing before its first argument and after its last", () => {
    const random = randomSource(seed);
    const tile = attentionTile(features);
    for (let i = 0; i < numKernels; i++) {
      const kernel = randomKernel(random, tile);
      const sizes = sizesOf(kernel).map((bytes, j) => ({ bytes, j }));
      const order = sizes.toSorted(() => random() - 0.5);
      const pages = Math.ceil((order.reduce((sum, { bytes }) => sum + bytes, 4096) + 4096) / 65536);
      const own = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
      new Float32Array(own.buffer).fill(1);
      const words = new Uint32Array(own.buffer);
      let next = 0;
      const places = order.map(({ bytes, j }, n) => {
        const from = n === order.length - 1 ? own.buffer.byteLength - bytes : next;
        next += bytes;
        return { from, j };
      });
      const table = Math.ceil(next / 4) - at(order, order.length - 1).bytes / 4;
      for (const { from, j } of places) {
        words[table + j] = from;
        words.set([4 * j, 0], table + 100 + 2 * j);
      }
      const library = new KernelLibrary(features, 1, wasmAttention);
      library.addAttention(kernel);
      const built = library.module();
      const module = new WebAssembly.Module(built.bytes.slice());
      const [run] = instantiateKernels(module, built.exports, kernelImports(own));
      expect(
        () => run?.(4 * table, 4 * (table + 100), 0, attentionUnits(kernel), 0),
        describeKernel(kernel, i),
      ).not.toThrow();
    }
  });
});
