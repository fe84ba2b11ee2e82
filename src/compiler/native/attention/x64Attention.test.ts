import { grad, jit, Mesh, np, random, type Tensor } from "shardwise";
import { createReferenceEngine, createThreadsEngine, type Engine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { afterAll, describe, expect, it } from "vitest";
import { isNear } from "../../../../test/support/near.js";
import { nativeKernels, testWith } from "../../../../test/support/optional.js";
import { KernelCaller } from "../../../engines/kernels/kernelCaller.js";
import { nativeKernelsHere } from "../../../engines/kernels/kernelChoice.js";
import { CodeMemory } from "../../../engines/system/codeMemory.js";
import { releaseNativeAddress } from "../../../engines/system/nativeAddress.js";
import { newVar, type Program } from "../../../ir/program.js";
import { range, tensorType } from "../../../ir/shape.js";
import { compileProgram } from "../../compile.js";
import {
  type AttentionArgument,
  type AttentionKernel,
  argumentBytes,
  attentionScratchBytes,
  attentionUnits,
  backwardScratch,
  forwardScratch,
  isBackward,
  PANEL,
} from "../../kernel/attentionKernel.js";
import { writeAttention } from "./x64Attention.js";

const chosen = nativeKernelsHere();
const isWide = "bits" in chosen && chosen.bits === 512;

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

/**
 * Runs a kernel on ones in a memory of a byte, by default one that no number begins with; returns the memory and the
 * results' places.
 */
function runAlone(kernel: AttentionKernel, code: CodeMemory, byte = 0x5a) {
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
      new Float32Array(memory.buffer, from, (to - from) / 4).fill(1);
  });
  const [address = 0] = code.load([writeAttention(kernel, "i32")]);
  new KernelCaller(memory).bind(address)(64, 1024, 0, attentionUnits(kernel), 0);
  releaseNativeAddress(memory);
  const written = places.filter((_, i) => i >= kernel.args.length || isResult(kernel.args[i]));
  const scratch = bytes.subarray(places.at(-1)?.from, places.at(-1)?.to);
  return { bytes, scratch, read: places.filter((place) => !written.includes(place)), written };
}

/** A kernel whose operands have a batch and heads, with rows one behind the other. */
function denseKernel(
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
  };
}

describe("attention in one piece", () => {
  const threads = createThreadsEngine({ numDevices: 1, threadsPerDevice: 1 });
  const pair = createThreadsEngine({ numDevices: 1, threadsPerDevice: 2 });
  const reference = createReferenceEngine({ numDevices: 1 });
  afterAll(async () => {
    await threads.close();
    await pair.close();
  });

  it("is one step where the machine has vectors of 512 bits, else products and a softmax", () => {
    const [out, sums] = [
      newVar(tensorType("float32", [1, 64, 2, 8])),
      newVar(tensorType("float32", [1, 2, 64])),
    ];
    const inputs = range(3).map(() => newVar(tensorType("float32", [1, 64, 2, 8])));
    const params = { scale: 1, causal: true };
    const eqns = [{ op: "attention", ins: inputs, outs: [out, sums], params } as const];
    const program: Program = { inputs, eqns, outputs: [out, sums] };
    const opsOf = (vectorBits: 256 | 512) =>
      compileProgram(program, { mesh: { axes: [] }, vectorBits }).infos.map(({ ops }) => ops.join(" "));
    expect(opsOf(512)).toEqual(["attention"]);
    expect(opsOf(256)).not.toContain("attention");
  });

  for (const one of cases) {
    it(`computes what the definition says: ${JSON.stringify(Object.values(one))}`, async () => {
      const [want, got, shared] = [
        await attend(reference, one),
        await attend(threads, one),
        await attend(pair, one),
      ];
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

  it("makes NaN of a query that sees NaN, and of no other", async () => {
    const mesh = Mesh.create({ data: 1 }, { engine: threads });
    const x = np.ones([1, 64, 1, 8]);
    const k = x.at(0, 40, 0, 3).set(Number.NaN);
    const { output } = jit((q: Tensor, keys: Tensor) => nn.attention(q, keys, q, { causal: true }), { mesh })(
      x,
      k,
    );
    const values = await output.data();
    for (const t of range(64)) expect(Number.isNaN(values[8 * t])).toBe(t >= 40);
  });

  for (const backward of [false, true]) {
    const name = backward ? "its cotangents" : "it";
    testWith(nativeKernels, `writes nothing but results and scratch memory: ${name}`, {}, () => {
      const code = CodeMemory.open();
      if (typeof code === "string" || !isWide) return;
      const kernel = denseKernel(backward, [2, 45, 45, 3, 3, 19], [30, 0]);
      const { bytes, read, written } = runAlone(kernel, code);
      code.release();
      const ones = new Uint8Array(Float32Array.of(1).buffer);
      for (let at = 4096; at < bytes.length; at++) {
        if (written.some(({ from, to }) => at >= from && at < to)) continue;
        const isRead = read.some(({ from, to }) => at >= from && at < to);
        if (bytes[at] !== (isRead ? ones[at % 4] : 0x5a)) expect.fail(`byte ${at} changed`);
      }
      const first = written[0];
      if (!backward && first)
        expect(new Float32Array(bytes.buffer, first.from, 3)).toEqual(Float32Array.of(1, 1, 1));
    });

    testWith(nativeKernels, `reads nothing that others left in its scratch memory: ${name}`, {}, () => {
      const code = CodeMemory.open();
      if (typeof code === "string" || !isWide) return;
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
          const kernel = denseKernel(backward, [1, length, keyLength, 2, 1, 3], window);
          const [one, other] = [0x5a, 0].map((byte) => {
            const { bytes, written } = runAlone(kernel, code, byte);
            return written.slice(0, -1).map(({ from, to }) => Buffer.from(bytes.slice(from, to)));
          });
          expect(one, `${length} queries, ${keyLength} keys, window ${window}`).toEqual(other);
        }
      }
      code.release();
    });

    testWith(nativeKernels, `uses every part of its scratch memory up to the end: ${name}`, {}, () => {
      const code = CodeMemory.open();
      if (typeof code === "string" || !isWide) return;
      // A whole block of queries, a whole block of keys and another with a last panel that is not whole.
      const kernel = denseKernel(backward, [1, 225, 255, 2, 1, 20], [-1, 223]);
      const { scratch } = runAlone(kernel, code);
      code.release();
      const { at: starts, bytes } = backward ? backwardScratch(kernel) : forwardScratch(kernel);
      const parts: readonly (readonly [string, number])[] = Object.entries(starts);
      const unused = parts.flatMap(([part, start], i) => {
        const content = scratch.subarray(start, parts[i + 1]?.[1] ?? bytes);
        const used = content.findLastIndex((byte) => byte !== 0x5a) + 1;
        const lines = Math.ceil(content.length / 64) - Math.ceil(used / 64);
        return lines > 0 ? [[part, lines * 64]] : [];
      });
      // Rows of scores are as far apart as for cotangents, which have an empty panel behind the last one.
      expect(unused).toEqual(backward ? [] : [["scores", 4 * PANEL]]);
    });
  }
});
