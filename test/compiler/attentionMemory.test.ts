/**
 * Attention streams over blocks of keys on every kind of processor, also where it is no kernel of its own: with
 * WebAssembly, AVX2 and NEON, and with options that no kernel has.
 */

import { grad, makeProgram, np, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { describe, expect, test } from "vitest";
import { nativeAttention } from "../../src/compiler/attention/attentionKernel.js";
import { wasmAttention } from "../../src/compiler/attention/wasmMachine.js";
import { compileProgram } from "../../src/compiler/compile.js";
import { attentionAs } from "../../src/compiler/lower/lowerAttention.js";
import { bytesOf } from "../../src/ir/shape.js";
import { inlineCalls } from "../../src/spmd/partition/passes/inlineCalls.js";

const [batch, heads, headDim] = [1, 2, 4];

const length = 20_000;
const integers = np.zeros([batch, length], { dtype: "int32" });
const forms = {
  "causal attention": { causal: true },
  "attention with everything": {
    ...{ causal: true, window: 100, softcap: 5, segmentIds: integers, positions: integers },
    ...{ sinks: np.zeros([heads]), bias: np.zeros([1, 1, 1, length]) },
  },
};

/** The arena of attention and its gradient, and the bytes of the tokens. */
function memoryOf(options: nn.AttentionCallOptions, target: (typeof targets)[number][1]) {
  const loss = (x: Tensor) => np.sum(nn.attention(x, x, x, options).output);
  const x = np.zeros([batch, length, heads, headDim]);
  const program = inlineCalls(makeProgram(grad(loss))(x));
  return {
    arena: compileProgram(program, { mesh: { axes: [] }, ...target }).arenaBytes,
    tokens: bytesOf(x.type),
  };
}

const targets = [
  ["NEON", {}],
  ["WebAssembly", { attention: attentionAs(wasmAttention) }],
  ["AVX2", { vectorBits: 256, attention: attentionAs(nativeAttention) }],
] as const;

describe.each(targets)("on %s", (_, target) => {
  test.each(Object.entries(forms))("%s holds blocks of its scores only", (_, options) => {
    const { arena, tokens } = memoryOf(options, target);
    // A few values as large as the tokens, and as blocks of scores; all scores of a head are 1.5 GiB.
    expect(arena).toBeLessThan(7 * tokens + 4 * 4 * 256 * 256);
  });
});
