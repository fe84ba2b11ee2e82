import { describe, expect, it } from "vitest";
import { buildElementwiseModule } from "../../../test/support/elementwiseKernel.js";
import { denseSamples, evaluate, FEATURE_SETS, runModule } from "../../../test/support/vectorKernels.js";
import { BASELINE_FEATURES } from "./features.js";
import * as math from "./math.js";
import { type Vec, VecBuilder } from "./vectorProgram.js";

const EDGES = [
  0, 1, -1, 2, 3, 7, -7, 31, 32, 33, 255, 65535, 1e6, -1e6, 2147483647, -2147483648, -2147483647,
];
const left = Int32Array.from(EDGES.flatMap((x) => EDGES.map(() => x)));
const right = Int32Array.from(EDGES.flatMap(() => EDGES));

function check(
  expression: (b: VecBuilder, x: Vec, y: Vec) => Vec,
  expected: (x: number, y: number) => number,
): void {
  const actual = new Int32Array(evaluate(BASELINE_FEATURES, expression, [left, right]).buffer);
  const wanted = left.map((x, index) => expected(x, right[index] ?? 0) | 0);
  expect(actual).toEqual(wanted);
}

describe("integer vector functions", () => {
  it("divides signed integers as XLA does", () => {
    check(
      (b, x, y) => math.divideInteger(b, x, y, "signed"),
      (x, y) => (y === 0 ? -1 : Math.trunc(x / y)),
    );
    check(
      (b, x, y) => math.remainderInteger(b, x, y, "signed"),
      (x, y) => (y === 0 ? x : x % y),
    );
  });

  it("divides unsigned integers", () => {
    check(
      (b, x, y) => math.divideInteger(b, x, y, "unsigned"),
      (x, y) => (y === 0 ? -1 : Math.trunc((x >>> 0) / (y >>> 0))),
    );
    check(
      (b, x, y) => math.remainderInteger(b, x, y, "unsigned"),
      (x, y) => (y === 0 ? x : (x >>> 0) % (y >>> 0)),
    );
  });

  it("shifts each lane by its own amount and everything out from 32 on", () => {
    const out = (y: number): boolean => y >>> 0 > 31;
    check(
      (b, x, y) => math.shiftLanes(b, "shl", x, y),
      (x, y) => (out(y) ? 0 : x << y),
    );
    check(
      (b, x, y) => math.shiftLanes(b, "shrLogical", x, y),
      (x, y) => (out(y) ? 0 : x >>> y),
    );
    check(
      (b, x, y) => math.shiftLanes(b, "shrArithmetic", x, y),
      (x, y) => (out(y) ? x >> 31 : x >> y),
    );
  });

  it("raises integers to powers with wrapping products", () => {
    const power = (x: number, y: number): number => {
      if (y < 0) return x === 1 ? 1 : x === -1 ? (y % 2 === 0 ? 1 : -1) : 0;
      return Number(BigInt.asIntN(32, modularPower(BigInt(x), y)));
    };
    check((b, x, y) => math.powerInteger(b, x, y, "signed"), power);
  });

  it("encrypts with Threefry-2x32 as the Random123 test vectors say", () => {
    const vectors = [
      { key: [0, 0], counter: [0, 0], result: [0x6b200159, 0x99ba4efe] },
      { key: [-1, -1], counter: [-1, -1], result: [0x1cb996fc, 0xbb002be7] },
      { key: [0x13198a2e, 0x03707344], counter: [0x243f6a88, 0x85a308d3], result: [0xc4923a9c, 0x483df7a0] },
    ];
    const column = (pick: (v: (typeof vectors)[number]) => number | undefined): Uint32Array =>
      Uint32Array.from(vectors, (v) => pick(v) ?? 0);
    const inputs = [
      column((v) => v.key[0]),
      column((v) => v.key[1]),
      column((v) => v.counter[0]),
      column((v) => v.counter[1]),
    ];
    for (const half of [0, 1] as const) {
      const bits = evaluate(
        BASELINE_FEATURES,
        (b) => math.threefry2x32(b, [b.input(0), b.input(1)], [b.input(2), b.input(3)])[half],
        inputs,
      );
      expect(bits).toEqual(column((v) => v.result[half]));
    }
  });
});

function modularPower(base: bigint, exponent: number): bigint {
  let result = 1n;
  let square = BigInt.asUintN(32, base);
  for (let rest = exponent; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = BigInt.asUintN(32, result * square);
    square = BigInt.asUintN(32, square * square);
  }
  return result;
}

describe.each(FEATURE_SETS)("narrow floats with fma $fma", (features) => {
  const samples = denseSamples();

  it("rounds to bfloat16 and back", () => {
    const actual = evaluate(features, (b, x) => math.toBfloat16(b, x), [samples]);
    samples.forEach((x, index) => {
      expectNarrow(actual[index] ?? 0, x, decodeBfloat16, 0x7f80);
    });
    const all = Uint32Array.from({ length: 65536 }, (_, bits) => bits);
    const wide = new Float32Array(evaluate(features, math.fromBfloat16, [all]).buffer);
    wide.forEach((value, bits) => {
      if (!Object.is(value, decodeBfloat16(bits))) expect(value).toBe(decodeBfloat16(bits));
    });
  });

  it("rounds to float16 and back", () => {
    const near = Float32Array.from(
      { length: 200_000 },
      (_, i) => (i - 100_000) * 0.75 * 2 ** ((i % 40) - 34),
    );
    for (const values of [samples, near]) {
      const actual = evaluate(features, (b, x) => math.toFloat16(b, x), [values]);
      values.forEach((x, index) => {
        expectNarrow(actual[index] ?? 0, x, decodeFloat16, 0x7c00);
      });
    }
    const all = Uint32Array.from({ length: 65536 }, (_, bits) => bits);
    const wide = new Float32Array(evaluate(features, math.fromFloat16, [all]).buffer);
    wide.forEach((value, bits) => {
      if (!Object.is(value, decodeFloat16(bits))) expect(value).toBe(decodeFloat16(bits));
    });
  });

  it("reads the smallest float16 without denormal float32 where a GPU may drop them", () => {
    const all = Uint32Array.from({ length: 2048 }, (_, i) => (i % 2) * 0x8000 + i);
    const wide = new Float32Array(evaluate({ ...features, gpu: true }, math.fromFloat16, [all]).buffer);
    expect([...wide]).toEqual([...all].map(decodeFloat16));
  });

  it("makes every NaN the quiet one of float16 with its sign", () => {
    const bits = Uint32Array.of(0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff);
    expect([...evaluate(features, math.toFloat16, [bits])]).toEqual([0x7e00, 0xfe00, 0x7e00, 0xfe00]);
  });
});

const word = new DataView(new ArrayBuffer(4));

function decodeBfloat16(bits: number): number {
  word.setUint16(0, bits);
  return word.getFloat32(0);
}

function decodeFloat16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? Number.NaN : sign * Infinity;
  return exponent === 0 ? sign * mantissa * 2 ** -24 : sign * (1024 + mantissa) * 2 ** (exponent - 25);
}

/** Checks that no neighbouring pattern is nearer, and that ties went to the even one. */
function expectNarrow(bits: number, x: number, decode: (bits: number) => number, infinity: number): void {
  const value = decode(bits);
  if (Number.isNaN(x)) {
    if (!Number.isNaN(value)) expect.fail(`NaN became ${value}`);
    return;
  }
  const magnitude = bits & 0x7fff;
  const edge = decode(infinity - 1) + (decode(infinity - 1) - decode(infinity - 2)) / 2;
  const target = Math.abs(x);
  let good = bits >>> 15 === (x < 0 || Object.is(x, -0) ? 1 : 0);
  if (magnitude === infinity) good &&= target >= edge;
  else {
    const error = Math.abs(decode(magnitude) - target);
    const above = magnitude + 1 === infinity ? edge + (edge - decode(magnitude)) : decode(magnitude + 1);
    const up = Math.abs(above - target);
    const down = magnitude === 0 ? Infinity : Math.abs(decode(magnitude - 1) - target);
    const other = Math.min(up, down);
    good &&= error < other || (error === other && magnitude % 2 === 0);
  }
  if (!good) expect.fail(`${x} became ${value} (0x${bits.toString(16)})`);
}

describe("vector storage", () => {
  it("keeps halves and booleans in 2 and 1 bytes, remainders included", () => {
    const b = new VecBuilder(BASELINE_FEATURES);
    const half = math.fromBfloat16(b, b.input(0));
    const mask = b.input(1);
    const program = b.finish([
      math.toBfloat16(b, b.select(mask, b.add(half, half), half)),
      b.op("v128.not", mask),
    ]);
    const count = 43;
    const halves = Uint16Array.from({ length: count }, (_, i) => (i % 2 ? 0x3f80 : 0xc000));
    const bools = Uint8Array.from({ length: count }, (_, i) => (i % 3 === 0 ? 1 : 0));
    const [values, inverted] = runModule(
      buildElementwiseModule({ program, inputs: ["half", "flag"], outputs: ["half", "flag"], unroll: 4 }),
      [halves, bools],
      [
        { storage: "half", length: count },
        { storage: "flag", length: count },
      ],
    );
    expect(new Uint16Array(values?.buffer ?? new ArrayBuffer(0))).toEqual(
      halves.map((bits, i) => (bools[i] ? bits + 0x80 : bits)),
    );
    expect(inverted).toEqual(bools.map((value) => 1 - value));
  });
});
