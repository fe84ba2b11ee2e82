/**
 * Causal attention, forward and backward, in float32 on one core or on several that share it: one device of the
 * `threads` engine beside JAX's `dot_product_attention` (`JAX_PYTHON`) and PyTorch's `scaled_dot_product_attention`
 * (`TORCH_PYTHON`), where they are installed. The share of products alone counts the half of the scores that is seen.
 *
 *     npm run bench -- attention --threads 1,8 --lengths 256,8192
 */
import { grad, jit, Mesh, np, random, type Tensor } from "shardwise";
import { createThreadsEngine, type ThreadsEngine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { runJax } from "./jax.js";
import { allCorePeak, announce, best, type Report, type Row, settle } from "./measure.js";
import { countsOption } from "./options.js";
import { runTorch } from "./torch.js";

const [batch, heads, headDim] = [1, 8, 64];

/** Runs the benchmark. */
export async function attention(): Promise<Report> {
  const rows: Row[] = [];
  for (const cores of countsOption("threads", [1])) {
    const peak = await allCorePeak(cores);
    const engine = createThreadsEngine({ numDevices: 1, threadsPerDevice: cores });
    try {
      for (const length of countsOption("lengths", [256, 512, 1024, 2048, 4096, 8192])) {
        rows.push(announce(await besideOthers(engine, length, cores, peak)));
      }
    } finally {
      await engine.close();
    }
  }
  return { "causal attention, forward and backward": rows };
}

async function besideOthers(
  engine: ThreadsEngine,
  length: number,
  cores: number,
  peak: number,
): Promise<Row> {
  const ours = await ourTime(engine, length);
  const settings = { batch, heads, headDim, length, cores };
  const jax = runJax("attention.py", settings, { devices: 1, cores })?.step_ms ?? null;
  const torch = runTorch<number>("attention.py", settings, cores);
  // Two products forward and five backward, of half of all pairs of tokens.
  const flops = 7 * batch * heads * length * length * headDim;
  return {
    cores,
    length,
    ms: ours,
    "share of products alone": flops / peak / 1e6 / ours,
    "JAX ms": jax,
    "PyTorch ms": torch,
    "times as fast as PyTorch": torch === null ? null : torch / ours,
  };
}

async function ourTime(engine: ThreadsEngine, length: number): Promise<number> {
  const mesh = Mesh.create({ data: 1 }, { engine });
  const draw = (seed: number) => random.normal(random.key(seed), [batch, length, heads, headDim]);
  const loss = (q: Tensor, k: Tensor, v: Tensor) => np.sum(nn.attention(q, k, v, { causal: true }).output);
  const step = jit(grad(loss, { argnums: [0, 1, 2] }), { mesh });
  const [q, k, v] = [draw(1), draw(2), draw(3)];
  return best(() => settle(step(q, k, v)), { seconds: 2 });
}
