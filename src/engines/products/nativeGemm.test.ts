import { afterAll, describe, expect, it } from "vitest";
import { EmulatedPairs } from "../../../test/support/emulatedPairs.js";
import { EmulatedTiles } from "../../../test/support/emulatedTiles.js";
import { type GuardedMemory, mapGuarded } from "../../../test/support/guardedMemory.js";
import { codeMemory, describeWith, orSkip } from "../../../test/support/optional.js";
import type { Product } from "../../compiler/native/gemm/gemmPlan.js";
import { elementsOf, type GemmTarget, type ProductType } from "../../compiler/native/gemm/target.js";
import { x64AmxGemm } from "../../compiler/native/gemm/x64AmxGemm.js";
import { x64Gemm } from "../../compiler/native/gemm/x64Gemm.js";
import { fromBfloat16Bits, toBfloat16Bits } from "../../ir/dtype.js";
import { CodeMemory } from "../system/codeMemory.js";
import { allNativeGemmsHere, nativeGemmHere } from "./available.js";
import { NativeGemm, type ProductTargets, targetsOf } from "./nativeGemm.js";

const memory = orSkip(codeMemory);
const TYPES: readonly ProductType[] = ["float32", "float64", "bfloat16"];

/** The kernels that run here, and those for bfloat16 in instructions that every processor with AVX-512 has. */
const cases = allNativeGemmsHere().flatMap((sets): [string, ProductTargets][] => {
  const targets = targetsOf(sets);
  if (sets.bfloat16 !== undefined) return [[sets.bfloat16, targets]];
  const emulated: [string, ProductTargets][] = [
    ["emulated AVX-512-BF16", { ...targets, bfloat16: x64Gemm(512, "bfloat16", EmulatedPairs) }],
    ["emulated AMX", { ...targets, bfloat16: x64AmxGemm(EmulatedTiles) }],
  ];
  const packed: [string, ProductTargets] = [
    `${sets.set} and all factors packed`,
    { ...targets, float32: withPacking(targets.float32), float64: withPacking(targets.float64) },
  ];
  return [
    [sets.set, targets],
    ...(sets.set === "NEON" ? [] : [packed]),
    ...(sets.set === "AVX-512" ? emulated : []),
  ];
});

/** The kernels of a target for factors as large ones are: never multiplied where they lie. */
function withPacking(target: GemmTarget | undefined): GemmTarget | undefined {
  return target && { ...target, flat: undefined, direct: { a: 0, transposedA: 0, b: 0, rows: 0 } };
}

const numProducts = Number(process.env.FUZZ_PRODUCTS ?? 20);
const seed = Number(process.env.SEED ?? 1);

/** Numbers from 0 to 1, the same for a seed. */
function randomSource(start: number): () => number {
  let state = start;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x ^= x + Math.imul(x ^ (x >>> 7), 61 | x);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Elements = Float32Array | Float64Array | Uint16Array;

/** What elements mean: bfloat16 are kept as their bits. */
function valuesOf(elements: Elements): Elements | readonly number[] {
  return elements instanceof Uint16Array ? Array.from(elements, fromBfloat16Bits) : elements;
}

/** A matrix against one of the guards of a memory: its elements, padding of rows included, and its address. */
function place(guarded: GuardedMemory, size: number, length: number, atEnd: boolean): [Elements, number] {
  const offset = atEnd ? guarded.bytes.byteLength - length * size : 0;
  const ArrayType = size === 2 ? Uint16Array : size === 4 ? Float32Array : Float64Array;
  return [new ArrayType(guarded.bytes, offset, length), guarded.start + offset];
}

function fill(elements: Elements, random: () => number): void {
  const bits = elements instanceof Uint16Array;
  for (let e = 0; e < elements.length; e++) {
    const value = 2 * random() - 1;
    elements[e] = bits ? toBfloat16Bits(value) : value;
  }
}

/** Puts a value somewhere. */
function plant(elements: Elements, random: () => number, value: number): void {
  const index = Math.floor(random() * elements.length);
  elements[index] = elements instanceof Uint16Array ? toBfloat16Bits(value) : value;
}

/** Says what is wrong with a product, judged by what the roundings of its sums explain. */
function faultsOf(
  type: ProductType,
  product: Product,
  factorA: Elements,
  factorB: Elements,
  old: Elements,
  c: Elements,
): string {
  const [a, b] = [valuesOf(factorA), valuesOf(factorB)];
  const { transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta } = product;
  const epsilon = elementsOf(type).size === 4 ? 2 ** -24 : 2 ** -53;
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < ldc && i * ldc + j < c.length; j++) {
      const [got, before] = [c[i * ldc + j] ?? 0, old[i * ldc + j] ?? 0];
      if (j >= n) {
        if (!Object.is(got, before)) return `padding at ${i}, ${j} became ${got}`;
        continue;
      }
      let sum = 0;
      let magnitude = 0;
      for (let l = 0; l < k; l++) {
        const term =
          (a[transposeA ? l * lda + i : i * lda + l] ?? 0) * (b[transposeB ? j * ldb + l : l * ldb + j] ?? 0);
        sum += term;
        magnitude += Math.abs(term);
      }
      const kept = beta === 0 ? 0 : beta * before;
      const want = alpha * sum + kept;
      const bound = 2 * (k + 4) * epsilon * (Math.abs(alpha) * magnitude + Math.abs(kept));
      const isRight = Number.isFinite(want) ? Math.abs(got - want) <= bound : Object.is(got, want);
      if (!isRight) return `element ${i}, ${j} is ${got}, not ${want}`;
    }
  }
  return "";
}

function randomProduct(random: () => number): Product {
  const upTo = (most: number) => 1 + Math.floor(random() * most);
  const pick = <T>(...values: readonly [T, ...T[]]): T => values[upTo(values.length) - 1] ?? values[0];
  const extent = () => upTo(pick(4, 20, 70, 150, 300));
  // Some are so deep that their sums are made in several parts, some have rows that are packed one strip at a time, and
  // some are of whole blocks, which need not be packed.
  const unit = pick(1, 1, 32);
  const kind = random();
  const [m, n, depth] =
    kind < 0.8
      ? [extent(), extent(), extent()]
      : kind < 0.9
        ? [upTo(70), upTo(70), 400 + upTo(900)]
        : [upTo(70), 256 + upTo(100), 256 + upTo(100)];
  const k = Math.ceil(depth / unit) * unit;
  const [transposeA, transposeB] = [pick(true, false), pick(true, false)];
  const pad = () => pick(0, 0, 1, 5, 300);
  const [lda, ldb, ldc] = [(transposeA ? m : k) + pad(), (transposeB ? k : n) + pad(), n + pad()];
  return {
    ...{ transposeA, transposeB, m, n, k, lda, ldb, ldc },
    ...{ alpha: pick(1, 1, 0.125, -2), beta: pick(0, 1, 0.5) },
  };
}

describeWith(codeMemory, "code memory", () => {
  it("gives its mappings back", () => {
    const opened = CodeMemory.open();
    if (typeof opened === "string") return;
    expect(opened.load([Uint8Array.of(0xc3), Uint8Array.of(0xc3)]).map((at) => at % 64)).toEqual([0, 0]);
    expect(opened.scratch(100) % 2 ** 21).toBe(0);
    opened.release();
  });
});

describe.each(cases)("products with %s", (set, targets) => {
  if (memory === undefined) return;
  const gemm = new NativeGemm(memory, targets);
  const guarded = [0, 1, 2].map(() => mapGuarded(1400 * 700 * 8));
  afterAll(() => {
    for (const one of guarded) one.release();
  });

  // Others with the same instructions for floats try those.
  const types = targets.bfloat16 === undefined ? (["float32", "float64"] as const) : (["bfloat16"] as const);

  it.each(types)("of %s are right and stay inside their matrices", (type) => {
    const random = randomSource(seed * 1000 + TYPES.indexOf(type));
    const { size, factorBytes } = elementsOf(type);
    const sizes = [factorBytes, factorBytes, size];
    for (let i = 0; i < numProducts; i++) {
      const product = randomProduct(random);
      const { transposeA, transposeB, m, n, k, lda, ldb, ldc, beta } = product;
      const lengths = [
        ((transposeA ? k : m) - 1) * lda + (transposeA ? m : k),
        ((transposeB ? n : k) - 1) * ldb + (transposeB ? k : n),
        (m - 1) * ldc + n,
      ];
      const atEnd = random() < 0.7;
      const [a, b, c] = lengths.map((length, j) => {
        const guard = guarded[j];
        if (guard === undefined) throw new Error("three matrices");
        return place(guard, sizes[j] ?? 0, length, atEnd);
      });
      if (a === undefined || b === undefined || c === undefined) throw new Error("three matrices");
      for (const [elements] of [a, b, c]) fill(elements, random);
      if (random() < 0.3) plant(a[0], random, random() < 0.5 ? Number.NaN : -Infinity);
      if (random() < 0.3) plant(b[0], random, Infinity);
      if (beta === 0) c[0].fill(Number.NaN);
      const old = c[0].slice();
      gemm.prepare(type, product)(a[1], b[1], c[1]);
      const faults = faultsOf(type, product, a[0], b[0], old, c[0]);
      if (faults !== "")
        expect.fail(`${faults} (${set}, product ${i} of seed ${seed}: ${JSON.stringify(product)})`);
    }
  });

  it.each(types)("of %s know nothing of what was packed before them", (type) => {
    const { size } = elementsOf(type);
    const words = new Uint8Array(new SharedArrayBuffer(3 * 64 * 64 * size));
    const at = memory.addressOf(words.buffer as SharedArrayBuffer);
    const run = (n: number, transposed: boolean): void => {
      const shape = { transposeA: transposed, transposeB: transposed, m: n, n, k: n, lda: n, ldb: n, ldc: n };
      gemm.prepare(type, { ...shape, alpha: 1, beta: 0 })(at, at + 64 * 64 * size, at + 2 * 64 * 64 * size);
    };
    for (const transposed of [false, true]) {
      // All bits set is NaN in every type.
      words.fill(255);
      run(64, transposed);
      words.fill(0);
      for (const n of [1, 2, 3, 5, 31]) {
        run(n, transposed);
        expect(words.every((byte) => byte === 0)).toBe(true);
      }
    }
  });

  it("run in batches whose operands are apart or the same", () => {
    const floats = new Float32Array(new SharedArrayBuffer(4 * 64));
    floats.set([1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 1]);
    const at = memory.addressOf(floats.buffer as SharedArrayBuffer);
    const shape = { transposeA: false, transposeB: false, m: 2, n: 2, k: 2, lda: 2, ldb: 2, ldc: 2 };
    const batch = { count: 2, strideA: 16, strideB: 0, strideC: 32 };
    gemm.prepare("float32", { ...shape, alpha: 2, beta: 0 }, batch)(at, at + 32, at + 64);
    expect([...floats.slice(16, 28)]).toEqual([2, 4, 6, 8, 0, 0, 0, 0, 10, 12, 14, 16]);
  });

  it("have the same bits in parts, whatever their number", () => {
    const random = randomSource(seed);
    const floats = new Float32Array(new SharedArrayBuffer(4 * 256 * 1024));
    const bytesOf = (list: Float32Array) => Buffer.from(list.buffer, list.byteOffset, list.byteLength);
    for (let i = 0; i < floats.length; i++) floats[i] = random() - 0.5;
    const at = memory.addressOf(floats.buffer as SharedArrayBuffer);
    const [m, n, k] = [150, 211, 500];
    const [b, c] = [m * 512, m * 512 + 512 * 256];
    for (const transposeB of [false, true]) {
      const shape = { transposeA: false, transposeB, m, n, k, lda: 512, ldb: transposeB ? 512 : 256, ldc: n };
      const product = { ...shape, alpha: 0.5, beta: 1 };
      const old = floats.slice(c, c + m * n);
      gemm.prepare("float32", product)(at, at + 4 * b, at + 4 * c);
      const whole = floats.slice(c, c + m * n);
      for (const count of [2, 3, 16]) {
        floats.set(old, c);
        const parts = gemm.prepareParts("float32", product, undefined, count);
        expect(parts.length).toBeGreaterThan(1);
        for (const part of parts) {
          gemm.run(part.program, at + part.a, at + 4 * b + part.b, at + 4 * c + part.c);
        }
        expect(Buffer.compare(bytesOf(floats.slice(c, c + m * n)), bytesOf(whole))).toBe(0);
      }
    }
  });

  it("of no elements are refused", () => {
    const shape = { transposeA: false, transposeB: false, m: 1, n: 1, k: 0, lda: 1, ldb: 1, ldc: 1 };
    expect(() => gemm.prepare("float32", { ...shape, alpha: 1, beta: 0 })).toThrow(/1×1×0/);
  });
});

it("only what the machine has is offered", () => {
  const foreign = process.arch === "arm64" ? "AVX2" : "NEON";
  expect(nativeGemmHere(foreign)).toEqual({
    unavailable: expect.stringMatching(/no (AVX2|NEON)|Linux|koffi/),
  });
});
