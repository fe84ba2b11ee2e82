/** Fused kernels over two million floats, as a share of the speed of copying memory, and in other libraries. */
import { devicePut, grad, jit, Mesh, NamedSharding, np, P, random, type Tensor } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import { best, copySpeed, type Report, type Row } from "./measure.js";
import { otherLibraries } from "./others.mjs";
import { adamw, gelu, layerNorm, softmax } from "./works.js";

const [numRows, numColumns] = [2048, 1024];

/** The work of one line, and the minimum number of floats that it must read and write. */
interface Work {
  readonly name: string;
  readonly floats: number;
  readonly inputs: number;
  readonly run: (...inputs: Tensor[]) => Tensor | readonly Tensor[];
}

const size = numRows * numColumns;

const backward = (f: (x: Tensor) => Tensor) => (x: Tensor, ct: Tensor) =>
  grad((y: Tensor) => np.sum(f(y).mul(ct)))(x);

const works: readonly Work[] = [
  { name: "tanh-gelu", inputs: 1, floats: 2, run: gelu },
  { name: "tanh-gelu backward", inputs: 2, floats: 3, run: backward(gelu) },
  { name: "softmax", inputs: 1, floats: 2, run: softmax },
  { name: "softmax backward", inputs: 2, floats: 3, run: backward(softmax) },
  { name: "layer norm", inputs: 1, floats: 2, run: layerNorm },
  { name: "layer norm backward", inputs: 2, floats: 3, run: backward(layerNorm) },
  { name: "AdamW update", inputs: 4, floats: 7, run: adamw },
];

/** Runs the benchmark. */
export async function kernels(): Promise<Report> {
  const speed = await copySpeed();
  const others = await otherLibraries(numRows, numColumns);
  const report: Record<string, Row[]> = {};
  for (const devices of [1, 2]) {
    const engine = createThreadsEngine({ numDevices: devices });
    const mesh = Mesh.create({ x: devices }, { engine });
    const rows: Row[] = [];
    for (const { name, inputs, floats, run } of works) {
      const sharding = new NamedSharding(mesh, P("x"));
      const data = await Promise.all(
        Array.from({ length: inputs }, (_, i) => {
          const x = random.uniform(random.key(i), [numRows, numColumns]);
          return devicePut(x, sharding);
        }),
      );
      const compiled = jit((...xs: Tensor[]) => {
        const result = run(...xs);
        return Array.isArray(result) ? [...result] : [result];
      });
      const milliseconds = await best(async () => {
        const results = compiled(...data);
        await Promise.all(results.map((result) => result.ready()));
        for (const result of results) result.dispose();
      });
      const rate = (4 * floats * size) / milliseconds / 1e6;
      const row: Record<string, string | number | null> = { work: name, ms: milliseconds, "GB/s": rate };
      row["% of memcpy"] = (100 * rate) / (speed * devices);
      for (const other of others) {
        const theirs = devices === 1 ? await other.time(name) : null;
        row[`${other.name} ms`] = theirs;
        row[`times ${other.name}`] = theirs === null ? null : theirs / milliseconds;
      }
      rows.push(row);
    }
    report[`fused kernels, ${size / 2 ** 20} Mi floats, ${devices} device(s)`] = rows;
    await engine.close();
  }
  return report;
}
