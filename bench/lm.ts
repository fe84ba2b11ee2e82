/** One AdamW step of two decoder language models, on one device and on `data=2`, beside JAX where it is installed. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { devicePut, Mesh, NamedSharding, P } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import {
  type DecoderSize,
  initDecoder,
  initState,
  makeStep,
  makeTokens,
  sizes,
  stepFlops,
} from "./decoder.js";
import { best, type Report, type Row, sgemmPeak } from "./measure.js";

interface JaxResult {
  readonly step_ms: number;
  readonly compile_ms: number;
}

/** The same step in JAX, or `null` when no Python with JAX is found (`JAX_PYTHON`, `.venv/bin/python`). */
function runJax(size: DecoderSize, devices: number): JaxResult | null {
  const root = new URL("../", import.meta.url);
  const python = process.env.JAX_PYTHON ?? fileURLToPath(new URL(".venv/bin/python", root));
  if (!existsSync(python)) return null;
  const script = fileURLToPath(new URL("bench/jax/decoder.py", root));
  // As many cores as devices: left alone, JAX gives all cores to one device.
  const pinned = process.platform === "linux" ? ["taskset", "-c", `0-${devices - 1}`] : [];
  const [command = python, ...args] = [...pinned, python, script, JSON.stringify({ ...size, devices })];
  const { stdout, status, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    env: { ...process.env, XLA_FLAGS: `--xla_force_host_platform_device_count=${devices}` },
  });
  if (status !== 0) {
    console.error(`JAX did not run: ${stderr.split("\n").slice(-3).join(" ")}`);
    return null;
  }
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "null");
}

async function measure(size: DecoderSize, devices: number): Promise<{ stepMs: number; compileMs: number }> {
  const engine = createThreadsEngine({ numDevices: devices });
  try {
    const mesh = Mesh.create({ data: devices }, { engine });
    const everywhere = new NamedSharding(mesh, P());
    let state = await devicePut(initState(initDecoder(size)), everywhere);
    const tokens = await devicePut(makeTokens(size), new NamedSharding(mesh, P("data")));
    const step = makeStep(size, mesh);
    const start = performance.now();
    state = step(state, tokens);
    const compileMs = performance.now() - start;
    const stepMs = await best(
      async () => {
        state = step(state, tokens);
        await state.step.item();
      },
      { seconds: 6, least: 5 },
    );
    return { stepMs, compileMs };
  } finally {
    await engine.close();
  }
}

/** Runs the benchmark. */
export async function lm(): Promise<Report> {
  const peak = await sgemmPeak();
  const rows: Row[] = [];
  for (const size of sizes) {
    for (const devices of [1, 2]) {
      const { stepMs, compileMs } = await measure(size, devices);
      const jax = runJax(size, devices);
      const rate = stepFlops(size) / stepMs / 1e6;
      rows.push({
        model: size.name,
        devices,
        "step ms": stepMs,
        "GFLOP/s": rate,
        "% of sgemm": (100 * rate) / (peak * devices),
        "compile ms": compileMs,
        "JAX ms": jax?.step_ms ?? null,
        "JAX compile ms": jax?.compile_ms ?? null,
        "times JAX": jax ? jax.step_ms / stepMs : null,
      });
    }
  }
  return { [`decoder training step (sgemm peak ${peak.toFixed(1)} GFLOP/s a core)`]: rows };
}
