/** Runs the benchmarks' JAX programs on as many cores as their counterparts here. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** What a JAX program prints. */
export interface JaxResult {
  readonly step_ms: number;
  readonly compile_ms: number;
}

/** The result of a program of `bench/jax`, or `null` when no Python with JAX is found (`JAX_PYTHON`, `.venv/bin/python`). */
export function runJax(
  script: string,
  settings: object,
  { devices, cores }: { readonly devices: number; readonly cores: number },
): JaxResult | null {
  const root = new URL("../", import.meta.url);
  const python = process.env.JAX_PYTHON ?? fileURLToPath(new URL(".venv/bin/python", root));
  if (!existsSync(python)) return null;
  // Left alone, JAX gives all cores of the machine to its devices.
  const pinned = process.platform === "linux" ? ["taskset", "-c", `0-${cores - 1}`] : [];
  const file = fileURLToPath(new URL(`bench/jax/${script}`, root));
  const [command = python, ...args] = [...pinned, python, file, JSON.stringify(settings)];
  const { stdout, status, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    env: {
      ...process.env,
      JAX_PLATFORMS: "cpu",
      XLA_FLAGS: `--xla_force_host_platform_device_count=${devices}`,
    },
  });
  if (status !== 0) {
    console.error(`JAX did not run: ${stderr.split("\n").slice(-3).join(" ")}`);
    return null;
  }
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "null");
}
