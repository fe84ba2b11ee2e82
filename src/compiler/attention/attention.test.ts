import { grad, jit, Mesh, np, random, Tensor } from "shardwise";
import { createReferenceEngine, createThreadsEngine, type Engine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { afterAll, describe, expect, it, vi } from "vitest";
import { isNear } from "../../../test/support/near.js";
import { nativeKernelsHere } from "../../engines/kernels/kernelChoice.js";
import { bindKernels } from "../../engines/kernels/nativeKernels.js";
import { CodeMemory } from "../../engines/system/codeMemory.js";
import { releaseNativeAddress } from "../../engines/system/nativeAddress.js";
import { getOrInsert } from "../../ir/collections.js";
import { newVar, type Program } from "../../ir/program.js";
import { range, tensorType } from "../../ir/shape.js";
import { compileProgram } from "../compile.js";
import { KernelLibrary, kernelImports } from "../kernel/kernelLibrary.js";
import { attentionAs } from "../lower/lowerAttention.js";
import { writeKernelCode } from "../native/kernelCode.js";
import { BASELINE_FEATURES, detectFeatures, type WasmFeatures } from "../wasm/features.js";
import {
  type AttentionArgument,
  type AttentionKernel,
  argumentBytes,
  attentionScratchBytes,
  backwardScratch,
  forwardScratch,
  isBackward,
} from "./attentionKernel.js";
import { attentionTile } from "./attentionTile.js";
import { wasmAttention } from "./wasmMachine.js";

/** What computes attention: machine code, or WebAssembly. */
interface Target {
  readonly name: string;
  readonly setting: "native-avx512" | "native-avx2" | "wasm";
  readonly bits?: 256 | 512 | undefined;
  readonly features: WasmFeatures;
}

const targets: readonly Target[] = [
  { name: "AVX-512", setting: "native-avx512", bits: 512, features: BASELINE_FEATURES },
  { name: "AVX2", setting: "native-avx2", bits: 256, features: BASELINE_FEATURES },
  { name: "WebAssembly", setting: "wasm", features: detectFeatures() },
];

/** Other processors' tiles of WebAssembly, which any processor can compute. */
const otherTiles: readonly Target[] = [
  { name: "WebAssembly with few registers", setting: "wasm", features: { fma: false, fewRegisters: true } },
  { name: "WebAssembly with many registers", setting: "wasm", features: { fma: false } },
];

const isHere = ({ bits }: Target) =>
  bits === undefined || "bits" in nativeKernelsHere(bits === 512 ? "AVX-512" : "AVX2");

interface Case {
  /** Batch, queries, keys, heads, heads of keys, features. */
  readonly sizes: readonly [number, number, number, number, number, number];
  readonly options: nn.AttentionCallOptions;
}

const cases: readonly Case[] = [
  { sizes: [1, 16, 16, 1, 1, 1], options: {} },
  { sizes: [2, 33, 45, 4, 2, 24], options: {} },
  { sizes: [1, 100, 100, 2, 1, 64], options: { causal: true } },
  { sizes: [1, 300, 300, 2, 2, 20], options: { causal: true, scale: 0.3 } },
  { sizes: [1, 300, 257, 1, 1, 33], options: {} },
  { sizes: [1, 257, 300, 1, 1, 16], options: { causal: true } },
  { sizes: [1, 260, 260, 1, 1, 40], options: { window: [20, 0] } },
  { sizes: [1, 330, 330, 2, 1, 8], options: { window: [40, 17] } },
  // Queries beyond all keys, which see none.
  { sizes: [1, 450, 350, 1, 1, 8], options: { window: [3, 0], causal: true } },
  { sizes: [1, 150, 240, 1, 1, 100], options: { window: [null, 30] } },
];

/** The result, the log-sums, and the gradients of a sum of both, weighted. */
async function attend(engine: Engine, { sizes, options }: Case): Promise<Float32Array[]> {
  const [batch, length, keyLength, heads, keyHeads, headSize] = sizes;
  const mesh = Mesh.create({ data: 1 }, { engine });
  const draw = (seed: number, ...shape: number[]) => random.normal(random.key(seed), shape);
  const operands = [
    draw(1, batch, length, heads, headSize),
    draw(2, batch, keyLength, keyHeads, headSize),
    draw(3, batch, keyLength, keyHeads, headSize),
  ] as const;
  const loss = (q: Tensor, k: Tensor, v: Tensor) => {
    const { output, logSumExp } = nn.attention(q, k, v, options);
    const sums = np.where(np.isfinite(logSumExp), logSumExp, 0);
    return np.sum(output.mul(draw(4, ...output.shape))).add(np.sum(sums.mul(draw(5, ...sums.shape))));
  };
  const step = (q: Tensor, k: Tensor, v: Tensor) => {
    const { output, logSumExp } = nn.attention(q, k, v, options);
    return [output, logSumExp, ...grad(loss, { argnums: [0, 1, 2] })(q, k, v)];
  };
  const results = jit(step, { mesh })(...operands);
  return Promise.all(results.map(async (x) => Float32Array.from(await x.data())));
}

const reference = createReferenceEngine({ numDevices: 1 });
const definitions = new Map<Case, Promise<Float32Array[]>>();

/** What the reference engine computes, which is the same for every target. */
function defined(one: Case): Promise<Float32Array[]> {
  return getOrInsert(definitions, one, () => attend(reference, one));
}

/**
 * Runs a kernel in a memory of a byte, by default one that no number begins with; returns the memory, that before, and
 * the places of results and scratch memory.
 *
 * @param valueAt the numbers of its operands, by default ones
 */
function runAlone(
  kernel: AttentionKernel,
  { bits, features }: Target,
  byte = 0x5a,
  valueAt: (i: number) => number = () => 1,
) {
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true });
  const bytes = new Uint8Array(memory.buffer).fill(byte);
  let next = 4096;
  const sizes = [...kernel.args.map((_, i) => argumentBytes(kernel, i)), attentionScratchBytes(kernel)];
  const words = new Uint32Array(memory.buffer);
  const places = sizes.map((size, i) => {
    const place = { from: next, to: next + size };
    next = Math.ceil((next + size) / 64) * 64 + 4096;
    words[64 / 4 + i] = place.from;
    words.set([4 * i, 0], 1024 / 4 + 2 * i);
    return place;
  });
  const results: readonly (AttentionArgument | undefined)[] = isBackward(kernel)
    ? ["queryCotangent", "keyCotangent", "valueCotangent"]
    : ["mixed", "logSums"];
  const isResult = (name: AttentionArgument | undefined) => results.includes(name);
  places.forEach(({ from, to }, i) => {
    if (i < kernel.args.length && !isResult(kernel.args[i]))
      new Float32Array(memory.buffer, from, (to - from) / 4).forEach((_, j, all) => {
        all[j] = valueAt(j + i);
      });
  });
  const before = bytes.slice();
  const library = new KernelLibrary(features, 1, wasmAttention);
  const { rows = 0 } = library.addAttention(kernel);
  const built = library.module(
    "i32",
    (plan, isDivided) => bits && writeKernelCode(plan, isDivided, { bits, addressType: "i32" }),
  );
  const code = CodeMemory.open();
  const pieces = built.native.filter((piece) => piece !== undefined);
  const native = typeof code === "string" || pieces.length === 0 ? [] : code.load(pieces);
  const module = new WebAssembly.Module(built.bytes.slice());
  const [run] = bindKernels({ ...built, module, native }, kernelImports(memory), memory);
  run?.(64, 1024, 0, rows, 0);
  releaseNativeAddress(memory);
  if (typeof code !== "string") code.release();
  const written = places.filter((_, i) => i >= kernel.args.length || isResult(kernel.args[i]));
  const scratch = bytes.subarray(places.at(-1)?.from, places.at(-1)?.to);
  return { before, bytes, scratch, written };
}

/** A kernel whose operands have a batch and heads, with rows one behind the other. */
function denseKernel(
  { bits, features }: Target,
  backward: boolean,
  [batch, length, keyLength, heads, keyHeads, headSize]: Case["sizes"],
  [before, ahead]: readonly [number, number],
): AttentionKernel {
  const names = ["query", "key", "value", "mixed"] as const;
  const more = ["mixedCotangent", "queryCotangent", "keyCotangent", "valueCotangent"] as const;
  const all = backward ? [...names, ...more] : names;
  const strides = all.map((name) => {
    const [rows, width] = /^(key|value)/.test(name) ? [keyLength, keyHeads] : [length, heads];
    const row = 4 * width * headSize;
    return [name, { batch: rows * row, row, head: 4 * headSize }];
  });
  return {
    ...{ kind: "attention", batch, length, heads, keyLength, keyHeads, headSize, scale: 1, before, ahead },
    ...{ args: [...all, "logSums"], strides: Object.fromEntries(strides) },
    tile: attentionTile(features, bits),
  };
}

describe.each(targets.filter(isHere))("attention in one piece on $name", (target) => {
  vi.stubEnv("SHARDWISE_KERNELS", target.setting);
  vi.stubEnv("SHARDWISE_GEMM", target.setting);
  const threads = createThreadsEngine({ numDevices: 1, threadsPerDevice: 1 });
  const pair = createThreadsEngine({ numDevices: 1, threadsPerDevice: 2 });
  vi.unstubAllEnvs();
  afterAll(async () => {
    await threads.close();
    await pair.close();
  });

  it("is one step", () => {
    const [out, sums] = [
      newVar(tensorType("float32", [1, 64, 2, 8])),
      newVar(tensorType("float32", [1, 2, 64])),
    ];
    const inputs = range(3).map(() => newVar(tensorType("float32", [1, 64, 2, 8])));
    const params = { scale: 1, causal: true };
    const eqns = [{ op: "attention", ins: inputs, outs: [out, sums], params } as const];
    const program: Program = { inputs, eqns, outputs: [out, sums] };
    const { infos } = compileProgram(program, {
      mesh: { axes: [] },
      vectorBits: target.bits,
      attention: attentionAs(wasmAttention),
    });
    expect(infos.map(({ ops }) => ops.join(" "))).toEqual(["attention"]);
  });

  for (const one of cases) {
    it(`computes what the definition says: ${JSON.stringify(Object.values(one))}`, async () => {
      const [want, got, shared] = [await defined(one), await attend(threads, one), await attend(pair, one)];
      const bitsOf = (results: readonly Float32Array[]) =>
        Buffer.concat(results.map(({ buffer }) => Buffer.from(buffer)));
      for (const [i, values] of want.entries()) {
        const isSame = (value: number, j: number) =>
          isNear(got[i]?.[j] ?? Number.NaN, value, 5e-6 * (1 + Math.abs(value)));
        expect(
          values.findIndex((value, j) => !isSame(value, j)),
          `result ${i}`,
        ).toBe(-1);
      }
      expect(bitsOf(shared).equals(bitsOf(got))).toBe(true);
    });
  }

  // NaN has many bit patterns: that of processors, that of GPUs, and others.
  it.each([0x7fc00000, 0x7fffffff, 0xffffffff, 0x7fc00001])(
    "makes NaN of a query that sees the NaN %i, and of no other",
    async (bits) => {
      const mesh = Mesh.create({ data: 1 }, { engine: threads });
      const data = new Float32Array(64 * 8).fill(1);
      new Uint32Array(data.buffer)[40 * 8 + 3] = bits;
      const [x, k] = [
        np.ones([1, 64, 1, 8]),
        Tensor.fromHost({ dtype: "float32", shape: [1, 64, 1, 8] }, data),
      ];
      const attend = (q: Tensor, keys: Tensor) => nn.attention(q, keys, q, { causal: true });
      const { output, logSumExp } = jit(attend, { mesh })(x, k);
      const gradient = jit(
        grad((q: Tensor, keys: Tensor) => np.sum(attend(q, keys).output)),
        { mesh },
      )(x, k);
      const [values, sums, gradients] = await Promise.all(
        [output, logSumExp, gradient].map((tensor) => tensor.data()),
      );
      for (const t of range(64)) {
        expect(Number.isNaN(values?.[8 * t])).toBe(t >= 40);
        expect(Number.isNaN(sums?.[t])).toBe(t >= 40);
        // The derivatives by other queries multiply the key with 0.
        if (t >= 40) expect(gradients?.[8 * t]).toBeNaN();
      }
    },
  );
});

describe.each([...targets.filter(isHere), ...otherTiles])("the kernel of attention on $name", (target) => {
  for (const backward of [false, true]) {
    const name = backward ? "its cotangents" : "it";
    it(`computes what it does with other tiles: ${name}`, () => {
      const results = (on: Target) => {
        const kernel = denseKernel(on, backward, [2, 50, 70, 4, 2, 21], [30, 9]);
        const { bytes, written } = runAlone(kernel, on, 0, (i) => Math.sin(i * i) / 4);
        return written.slice(0, -1).map(({ from, to }) => new Float32Array(bytes.slice(from, to).buffer));
      };
      const wanted = results({ ...target, bits: undefined, features: BASELINE_FEATURES });
      for (const [i, values] of results(target).entries()) {
        expect(values.length).toBeGreaterThan(0);
        const isSame = (value: number, j: number) =>
          isNear(value, wanted[i]?.[j] ?? Number.NaN, 1e-5 * (1 + Math.abs(value)));
        expect(values.findIndex((value, j) => !isSame(value, j))).toBe(-1);
      }
    });

    it(`writes nothing but results and scratch memory: ${name}`, () => {
      const kernel = denseKernel(target, backward, [2, 45, 45, 3, 3, 19], [30, 0]);
      const { before, bytes, written } = runAlone(kernel, target);
      for (const { from, to } of written) before.set(bytes.subarray(from, to), from);
      expect(bytes.findIndex((byte, at) => byte !== before[at])).toBe(-1);
      const first = written[0];
      if (!backward && first)
        expect(new Float32Array(bytes.buffer, first.from, 3)).toEqual(Float32Array.of(1, 1, 1));
    });

    it(`reads nothing that others left in its scratch memory: ${name}`, () => {
      for (const [length, keyLength] of [
        [128, 64],
        [300, 31],
        [45, 250],
        [450, 350],
      ] as const) {
        for (const window of [
          [1, 0],
          [3, 20],
          [40, -1],
          [-1, 0],
          [0, 5],
          [-1, -1],
        ] as const) {
          const kernel = denseKernel(target, backward, [1, length, keyLength, 2, 1, 3], window);
          const [one, other] = [0x5a, 0].map((byte) => {
            const { bytes, written } = runAlone(kernel, target, byte);
            return written.slice(0, -1).map(({ from, to }) => Buffer.from(bytes.slice(from, to)));
          });
          // Comparing them as values takes a hundred times as long.
          const isSame = other?.every((bytes, i) => one?.[i]?.equals(bytes));
          expect(isSame, `${length} queries, ${keyLength} keys, window ${window}`).toBe(true);
        }
      }
    });

    it(`uses every part of its scratch memory up to the end: ${name}`, () => {
      // A whole block of queries, a whole block of keys and another with a last panel that is not whole.
      const kernel = denseKernel(target, backward, [1, 225, 255, 2, 1, 20], [-1, 223]);
      const { scratch } = runAlone(kernel, target);
      const { at: starts, bytes } = backward ? backwardScratch(kernel) : forwardScratch(kernel);
      const parts: readonly (readonly [string, number])[] = Object.entries(starts);
      const unused = parts.flatMap(([part, start], i) => {
        const content = scratch.subarray(start, parts[i + 1]?.[1] ?? bytes);
        const used = content.findLastIndex((byte) => byte !== 0x5a) + 1;
        const lines = Math.ceil(content.length / 64) - Math.ceil(used / 64);
        return lines > 0 ? [[part, lines * 64]] : [];
      });
      // Rows of scores are as far apart as for cotangents, which have an empty panel behind the last one.
      const empty = 4 * kernel.tile.columns;
      expect(unused).toEqual(backward || empty < 64 ? [] : [["scores", empty]]);
    });
  }
});
