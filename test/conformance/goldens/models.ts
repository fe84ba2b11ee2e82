/** The modules that the cases name. */
import * as nn from "../../../src/nn/index.js";
import * as np from "../../../src/numpy/index.js";
import type { Tensor } from "../../../src/trace/tensor.js";

/** Dense, gelu, LayerNorm, and a Dense called head. */
export const MLP = nn.module("MLP", ({ hidden, out }: { hidden: number; out: number }) => (x: Tensor) => {
  const h = nn.LayerNorm()(nn.gelu(nn.Dense({ features: hidden })(x)));
  return nn.Dense({ features: out, name: "head" })(h);
});

/** x + Dense(d)(silu(Dense(2d, no bias)(nn.RMSNorm(x)))). */
export const Block = nn.module("Block", () => (x: Tensor) => {
  const width = x.shape.at(-1) ?? 0;
  const h = nn.Dense({ features: 2 * width, useBias: false })(nn.RMSNorm()(x));
  return np.add(x, nn.Dense({ features: width })(nn.silu(h)));
});

/** Blocks one after the other. */
export const Stack = nn.module("Stack", ({ n }: { n: number }) => (x: Tensor) => {
  let h = x;
  for (let i = 0; i < n; i++) h = Block()(h);
  return h;
});

/** The numbers in the text of a module, such as 16 and 4 of `MLP(hidden=16,out=4)` or `MLP(16,4)`. */
export function numbersIn(text: string, moduleName: string): number[] {
  const args = new RegExp(`\\b${moduleName}\\(([^()]*)\\)`).exec(text)?.[1] ?? "";
  return args
    .split(",")
    .flatMap((part) => /-?\d+(?:\.\d+)?\s*$/.exec(part)?.[0] ?? [])
    .map(Number);
}
