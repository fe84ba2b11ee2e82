/**
 * How long `shardwise train` takes to its first step on a GPU when nothing is cached, and what it waits for, compared
 * with JAX's first step of the same model: a Llama of 24 layers, sequence 2048, batch 8, bfloat16. Needs `npm run build`.
 *
 *     npm run bench -- firstStep
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { GpuDecoderSize } from "./gpuDecoder.js";
import { runJaxOnGpu } from "./lmOnGpu.js";
import { announce, type Report, type Row } from "./measure.js";

/** Llamas of 24 layers; the first is measured twice, because the first process also loads libraries from the disk. */
const sizes: readonly GpuDecoderSize[] = [1024, 1024, 1536, 2048].map((width) => ({
  name: `width ${width}`,
  width,
  layers: 24,
  sequence: 2048,
  batch: 8,
  vocabulary: 32_000,
  mlpWidth: (11 * width) / 4,
  headSize: 64,
}));

/** Runs the benchmark. */
export async function firstStep(): Promise<Report> {
  const rows: Row[] = [];
  for (const size of sizes) {
    rows.push(announce(await trainRow(size)));
    const begun = Date.now();
    const jax = runJaxOnGpu({ ...size, begun }, { remat: "dots", precision: "bfloat16" }, 1);
    if (!jax) continue;
    rows.push(
      announce({
        width: size.width,
        by: "JAX",
        "seconds since the process began": (jax.since_begun_ms ?? Number.NaN) / 1000,
        "of these, the first call of the step": jax.first_ms / 1000,
      }),
    );
  }
  return { "first step with nothing cached, Llama of 24 layers": rows };
}

/** Trains until the first step has run; the times are those at which lines appear. */
async function trainRow(size: GpuDecoderSize): Promise<Row> {
  const folder = mkdtempSync(join(tmpdir(), "shardwise-first-"));
  const program = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));
  const { width, layers, mlpWidth, vocabulary, sequence, batch, headSize } = size;
  const settings = {
    engine: "xla",
    out: join(folder, "run"),
    steps: 4,
    sample: 0,
    "model.kind": "llama",
    "model.width": width,
    "model.numLayers": layers,
    "model.numHeads": width / headSize,
    "model.mlpWidth": mlpWidth,
    "model.vocabSize": vocabulary,
    "model.dtype": "bfloat16",
    "model.remat": "dots",
    "data.sequence": sequence,
    "data.batch": batch,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const begun = performance.now();
  const child = spawn(process.execPath, [program, "train", ...args], {
    env: { ...process.env, SHARDWISE_TIMES: "1", SHARDWISE_XLA_CACHE: "off" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const row: Record<string, string | number> = { width, by: "shardwise train" };
  const since = () => (performance.now() - begun) / 1000;
  for await (const line of createInterface({ input: child.stderr })) {
    const [, text] = /^\d+\.\d+ s: (.*)$/.exec(line) ?? [];
    if (text?.startsWith("reading")) row["engine open after"] = since();
    if (text === "compiling the training step") row["compiling the step from"] ??= since();
    if (text !== "the first step has run") continue;
    row["seconds since the process began"] = since();
    break;
  }
  child.kill("SIGKILL");
  await new Promise((resolve) => child.once("exit", resolve));
  rmSync(folder, { recursive: true, force: true });
  return row;
}
