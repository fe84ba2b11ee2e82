import { describe, expect, test } from "vitest";
import { unaryFunctions } from "./scalarFunctions.js";

const { erf, erfInv } = unaryFunctions;

/** The largest relative error of `f` over pairs of argument and true value. */
function worstError(f: (x: number) => number, pairs: readonly (readonly [number, number])[]): number {
  return Math.max(...pairs.flatMap(([x, y]) => [Math.abs(f(x) / y - 1), Math.abs(f(-x) / -y - 1)]));
}

describe("erf", () => {
  test("is accurate to a few units in the last place of float64", () => {
    const pairs = [
      [1e-300, 1.1283791670955126e-300],
      [1e-9, 1.1283791670955127e-9],
      [0.01, 0.011283415555849616],
      [0.1, 0.1124629160182849],
      [0.25, 0.2763263901682369],
      [0.5, 0.5204998778130465],
      [0.75, 0.7111556336535151],
      [1, 0.8427007929497148],
      [1.25, 0.9229001282564583],
      [1.4999, 0.9660932516622953],
      [1.5, 0.9661051464753108],
      [1.75, 0.9866716712191824],
      [2, 0.9953222650189527],
      [2.5, 0.999593047982555],
      [3, 0.9999779095030014],
      [4, 0.9999999845827421],
      [5, 0.9999999999984626],
      [5.9, 0.9999999999999999],
    ] as const;
    expect(worstError(erf, pairs)).toBeLessThan(5e-16);
  });

  test("keeps zeros and NaN and ends at 1", () => {
    expect([-0, 0, 6.1, Number.NEGATIVE_INFINITY, Number.NaN].map(erf)).toEqual([-0, 0, 1, -1, Number.NaN]);
  });
});

describe("erfInv", () => {
  test("is accurate to a few units in the last place of float64, next to 1 too", () => {
    const pairs = [
      [1e-300, 8.86226925452758e-301],
      [1e-9, 8.86226925452758e-10],
      [0.001, 0.000886227157466552],
      [0.1, 0.08885599049425769],
      [0.3, 0.2724627147267544],
      [0.5, 0.4769362762044699],
      [0.7, 0.7328690779592169],
      [0.9, 1.1630871536766743],
      [0.99, 1.8213863677184496],
      [0.9999, 2.75106390571208],
      [0.999999, 3.458910737275499],
      [1 - 1e-9, 4.320005388105362],
      [1 - 1e-12, 5.042031898572696],
      [1 - 2 ** -53, 5.863584748755168],
    ] as const;
    expect(worstError(erfInv, pairs)).toBeLessThan(1e-15);
  });

  test("undoes erf", () => {
    for (let x = -3; x <= 3; x += 0.01) expect(erfInv(erf(x))).toBeCloseTo(x, 11);
  });
});
