/** Matrix products through `jit`, as a share of the machine's sgemm. */
import { devicePut, jit, Mesh, NamedSharding, np, P, random, type Tensor } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import { best, type Report, type Row, sgemmPeak } from "./measure.js";

/** Runs the benchmark. */
export async function matmul(): Promise<Report> {
  const engine = createThreadsEngine({ numDevices: 1 });
  const mesh = Mesh.create({ x: 1 }, { engine });
  const rows: Row[] = [];
  for (const n of [64, 128, 256, 512, 1024, 2048]) {
    const peak = await sgemmPeak(Math.min(n, 1024));
    // Small products are repeated inside one run, each with the result of the one before.
    const repeats = Math.max(1, Math.round(2 ** 27 / n ** 3));
    const a = await devicePut(
      random.normal(random.key(0), [n, n]).mul(1 / Math.sqrt(n)),
      new NamedSharding(mesh, P()),
    );
    const multiply = jit((x: Tensor) => {
      let y = x;
      for (let i = 0; i < repeats; i++) y = np.matmul(y, x);
      return y;
    });
    const milliseconds = await best(async () => (await multiply(a).ready()).dispose());
    const rate = (2 * n ** 3 * repeats) / milliseconds / 1e6;
    rows.push({ n, "GFLOP/s": rate, "sgemm GFLOP/s": peak, "% of sgemm": (100 * rate) / peak });
  }
  await engine.close();
  return { "matrix products (one device)": rows };
}
