import { describe, test } from "vitest";
import { decode, type HostTensor, hostTensor } from "../../src/engines/reference/hostTensor.js";
import { interpret } from "../../src/engines/reference/interpret.js";
import { attentionBackwardProgram, attentionProgram } from "../../src/ir/expansions/attention.js";
import type { Attention, AttentionExtra } from "../../src/ir/ops.js";
import { at, sizeOf } from "../../src/ir/shape.js";
import { expectNear } from "../support/near.js";

const [batch, length, keyLength, heads, keyHeads, headDim] = [2, 7, 8, 4, 2, 3];

function floats(shape: readonly number[], seed: number): HostTensor {
  const values = Array.from({ length: sizeOf(shape) }, (_, i) => Math.sin(seed * 13 + i * 1.7));
  return hostTensor("float64", shape, values);
}

const integers = (n: number, of: (i: number) => number) =>
  hostTensor(
    "int32",
    [batch, n],
    Array.from({ length: batch * n }, (_, i) => of(i)),
  );

const extras: { readonly [N in AttentionExtra]: HostTensor } = {
  bias: floats([1, heads, length, keyLength], 4),
  mask: hostTensor(
    "bool",
    [batch, 1, length, keyLength],
    Array.from({ length: batch * length * keyLength }, (_, i) => Number(i % 5 > 0 && i > 8)),
  ),
  querySegments: integers(length, (i) => Math.floor(i / 4)),
  keySegments: integers(keyLength, (i) => Math.floor(i / 5)),
  queryPositions: integers(length, (i) => (i * 3) % 7),
  keyPositions: integers(keyLength, (i) => (i * 5) % 8),
  sinks: floats([1, heads], 5),
  dropoutKeys: hostTensor(
    "uint32",
    [batch, heads, 2],
    Array.from({ length: batch * heads * 2 }, (_, i) => i * 7919),
  ),
  logSumsCotangent: floats([batch, heads, length], 6),
};

const cases: readonly (readonly [name: string, params: Attention])[] = [
  ["all keys", { scale: 0.5, causal: false }],
  ["earlier keys", { scale: 0.5, causal: true }],
  ["a window", { scale: 0.5, causal: false, window: [2, 1] }],
  ["a window of earlier keys", { scale: 0.5, causal: true, window: [1, -1], extras: ["sinks"] }],
  ["a bias and a mask", { scale: 0.5, causal: true, softcap: 2, extras: ["bias", "mask"] }],
  ["segments", { scale: 0.5, causal: true, extras: ["querySegments", "keySegments"] }],
  ["positions", { scale: 0.5, causal: true, window: [3, -1], extras: ["queryPositions", "keyPositions"] }],
  ["dropout", { scale: 0.5, causal: true, dropoutRate: 0.5, extras: ["dropoutKeys"] }],
];

const blocks = [
  { rows: 2, columns: 3 },
  { rows: 7, columns: 4 },
  { rows: 3, columns: 8 },
  { rows: 2, columns: 8, unrolled: true },
];

describe("attention in blocks", () => {
  test.each(cases)("sees %s as without blocks, forward and backward", (_, params) => {
    const keys = [batch, keyLength, keyHeads, headDim];
    const main = [floats([batch, length, heads, headDim], 1), floats(keys, 2), floats(keys, 3)];
    const more = (params.extras ?? []).map((name) => extras[name]);
    const operands = [...main, ...more];
    const forward = (given?: (typeof blocks)[number]) =>
      interpret(
        attentionProgram(
          params,
          operands.map(({ type }) => type),
          given,
        ),
        operands,
      );
    const [mixed, logSums] = forward();
    if (!mixed || !logSums) throw new Error("no results");
    const wants = (["bias", "sinks"] as const).filter((name) => params.extras?.includes(name));
    const backwardParams = {
      ...params,
      extras: [...(params.extras ?? []), "logSumsCotangent"] as const,
      wants,
    };
    const residuals = [...main, logSums, floats([batch, length, heads, headDim], 8), mixed];
    const backwardOperands = [...residuals, ...more, extras.logSumsCotangent];
    const backward = (given?: (typeof blocks)[number]) =>
      interpret(
        attentionBackwardProgram(
          backwardParams,
          backwardOperands.map(({ type }) => type),
          given,
        ),
        backwardOperands,
      );
    const whole = [...forward(), ...backward()];
    for (const given of blocks) {
      const found = [...forward(given), ...backward(given)];
      whole.forEach((want, i) => {
        expectNear(decode(at(found, i)), decode(want), 1e-12, `result ${i}`);
      });
    }
  });
});
