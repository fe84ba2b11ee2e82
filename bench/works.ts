/** Kernels that several benchmarks time. */
import { lax, np, type Tensor } from "shardwise";

/** GELU as the tanh formula has it. */
export function gelu(x: Tensor): Tensor {
  return x.mul(np.tanh(x.add(x.mul(x).mul(x).mul(0.044715)).mul(Math.sqrt(2 / Math.PI))).add(1)).mul(0.5);
}

/** Softmax of every row. */
export function softmax(x: Tensor): Tensor {
  const weights = np.exp(x.sub(lax.stopGradient(np.max(x, -1, { keepdims: true }))));
  return weights.div(np.sum(weights, -1, { keepdims: true }));
}

/** Layer norm of every row, without weights. */
export function layerNorm(x: Tensor): Tensor {
  const centred = x.sub(np.mean(x, -1, { keepdims: true }));
  return centred.mul(lax.rsqrt(np.mean(centred.mul(centred), -1, { keepdims: true }).add(1e-6)));
}

/** A parameter and its moments after one update. */
export function adamw(p: Tensor, m: Tensor, v: Tensor, g: Tensor): Tensor[] {
  const mean = m.mul(0.9).add(g.mul(0.1));
  const square = v.mul(0.95).add(g.mul(g).mul(0.05));
  const update = mean.mul(1.1).div(np.sqrt(square.mul(1.2)).add(1e-8));
  return [p.sub(update.add(p.mul(0.1)).mul(3e-4)), mean, square];
}
