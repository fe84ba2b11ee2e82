import { describe, expect, it } from "vitest";
import {
  denseSamples,
  evaluate,
  FEATURE_SETS,
  SPECIAL_VALUES,
  ulpDistance,
} from "../../../test/support/vectorKernels.js";
import { scalarFunctions as host } from "../../ir/scalarFunctions.js";
import * as math from "./math.js";
import type { Vec, VecBuilder } from "./vectorProgram.js";

interface UnaryCase {
  readonly expression: (b: VecBuilder, x: Vec) => Vec;
  readonly reference: (x: number) => number;
  readonly ulp: number;
}

const UNARY: { readonly [name: string]: UnaryCase } = {
  exp: { expression: math.exp, reference: Math.exp, ulp: 1 },
  expBelowZero: {
    expression: (b, x) => math.expBelowZero(b, b.neg(b.abs(x))),
    reference: (x) => Math.exp(-Math.abs(x)),
    ulp: 1,
  },
  expm1: { expression: math.expm1, reference: Math.expm1, ulp: 2 },
  log: { expression: math.log, reference: Math.log, ulp: 1 },
  log1p: { expression: math.log1p, reference: Math.log1p, ulp: 2 },
  tanh: { expression: math.tanh, reference: Math.tanh, ulp: 6 },
  logistic: { expression: math.logistic, reference: host.logistic, ulp: 3 },
  erf: { expression: math.erf, reference: host.erf, ulp: 6 },
  erfInv: { expression: math.erfInv, reference: host.erfInv, ulp: 6 },
  sin: { expression: math.sin, reference: Math.sin, ulp: 3 },
  cos: { expression: math.cos, reference: Math.cos, ulp: 3 },
  cbrt: { expression: math.cbrt, reference: Math.cbrt, ulp: 2 },
  rsqrt: { expression: math.rsqrt, reference: (x) => 1 / Math.sqrt(x), ulp: 1 },
  sqrt: { expression: math.sqrt, reference: Math.sqrt, ulp: 0 },
  floor: { expression: math.floor, reference: Math.floor, ulp: 0 },
  ceil: { expression: math.ceil, reference: Math.ceil, ulp: 0 },
  roundEven: { expression: math.roundEven, reference: roundHalfEven, ulp: 0 },
  roundAway: {
    expression: math.roundAway,
    reference: (x) => Math.sign(x) * Math.floor(Math.abs(x) + 0.5),
    ulp: 0,
  },
  sign: { expression: math.sign, reference: Math.sign, ulp: 0 },
};

function roundHalfEven(x: number): number {
  const down = Math.floor(x);
  if (x - down !== 0.5) return Object.is(x, -0) || (x < 0 && x > -0.5) ? -0 : Math.floor(x + 0.5);
  return down % 2 === 0 ? down : down + 1 === 0 ? -0 : down + 1;
}

function worst(actual: Float32Array, expected: Float32Array): { ulp: number; index: number } {
  let result = { ulp: 0, index: -1 };
  actual.forEach((value, index) => {
    const ulp = ulpDistance(value, expected[index] ?? Number.NaN);
    if (ulp > result.ulp) result = { ulp, index };
  });
  return result;
}

const samples = denseSamples();
const pairs = samplePairs();
const references = new Map<string, Float32Array>();

function expectedOnce(name: string, compute: () => Float32Array): Float32Array {
  const known = references.get(name) ?? compute();
  references.set(name, known);
  return known;
}

describe.each(FEATURE_SETS)("float32 functions with fma $fma", (features) => {
  for (const [name, { expression, reference, ulp }] of Object.entries(UNARY)) {
    it(`${name} stays within ${ulp} ulp over the whole range`, () => {
      const actual = new Float32Array(evaluate(features, expression, [samples]).buffer);
      const found = worst(
        actual,
        expectedOnce(name, () => samples.map((x) => reference(x))),
      );
      expect(found.ulp, `at ${samples[found.index]}`).toBeLessThanOrEqual(ulp);
    });
  }

  const BINARY = {
    pow: { expression: math.pow, ulp: 1, reference: host.pow },
    rem: { expression: math.rem, ulp: 0, reference: host.rem },
    atan2: { expression: math.atan2, ulp: 4, reference: Math.atan2 },
  };
  for (const [name, { expression, ulp, reference }] of Object.entries(BINARY)) {
    it(`${name} stays within ${ulp} ulp over the whole range`, () => {
      const actual = new Float32Array(evaluate(features, expression, [pairs.x, pairs.y]).buffer);
      const compute = (): Float32Array => pairs.x.map((x, index) => reference(x, pairs.y[index] ?? 0));
      const found = worst(actual, expectedOnce(name, compute));
      expect(found.ulp, `at ${pairs.x[found.index]}, ${pairs.y[found.index]}`).toBeLessThanOrEqual(ulp);
    });
  }

  it("gives the same result whatever the unroll factor", () => {
    const part = samples.subarray(0, 1003).slice();
    const expression = (b: VecBuilder, x: Vec): Vec => math.sin(b, math.tanh(b, math.exp(b, x)));
    const once = evaluate(features, expression, [part], { unroll: 1 });
    for (const unroll of [2, 4, 8]) expect(evaluate(features, expression, [part], { unroll })).toEqual(once);
  });

  it("keeps tanh within ±1 and at ±1 for every large argument", () => {
    const near = Float32Array.from({ length: 400_000 }, (_, i) => 7 + i / 200_000);
    const far = Float32Array.from({ length: 1000 }, (_, i) => (i % 2 ? -1 : 1) * (9.02 + i ** 3));
    const inside = new Float32Array(evaluate(features, math.tanh, [near]).buffer);
    expect(inside.every((y, i) => y <= 1 && ulpDistance(y, Math.fround(Math.tanh(near[i] ?? 0))) <= 6)).toBe(
      true,
    );
    const outside = new Float32Array(evaluate(features, math.tanh, [far]).buffer);
    expect(outside.every((y, i) => y === (i % 2 ? -1 : 1))).toBe(true);
  });

  it("gives the same bits for e^x whether or not x is known to be at most 0", () => {
    // Without fused products x · log2(e) of the first one lies halfway between two integers.
    const below = Float32Array.from([-29.458755493164062, ...samples], (x) => -Math.abs(x));
    const numbers = (expression: typeof math.exp) =>
      new Float32Array(evaluate(features, expression, [below]).buffer);
    const [known, unknown] = [numbers(math.expBelowZero), numbers(math.exp)];
    expect(below.filter((_, i) => !Object.is(known[i], unknown[i]))).toHaveLength(0);
  });

  it("underflows to zero for masked softmax entries", () => {
    const x = new Float32Array([-104, -200, -1e30, -Infinity]);
    expect([...evaluate(features, math.exp, [x])]).toEqual([0, 0, 0, 0]);
  });
});

/** All pairs of special values, then random exponents, then moderate values where pow does not saturate. */
function samplePairs(): { x: Float32Array; y: Float32Array } {
  const special = SPECIAL_VALUES.length ** 2;
  const count = special + 400_000;
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  const xBits = new Uint32Array(x.buffer);
  const yBits = new Uint32Array(y.buffer);
  let state = 1;
  const random = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state;
  };
  for (let i = 0; i < count; i++) {
    if (i < special) {
      x[i] = SPECIAL_VALUES[Math.floor(i / SPECIAL_VALUES.length)] ?? 0;
      y[i] = SPECIAL_VALUES[i % SPECIAL_VALUES.length] ?? 0;
    } else if (i % 2 === 0) {
      xBits[i] = random();
      yBits[i] = random();
    } else {
      x[i] = (random() / 2 ** 32) * (i % 3 === 0 ? 1e3 : 3) - (i % 5 === 0 ? 2 : 0);
      y[i] = (random() / 2 ** 32 - 0.5) * 60;
      if (i % 5 === 0) y[i] = Math.round(y[i] ?? 0);
    }
  }
  return { x, y };
}
