/** Runs the benchmarks' JAX programs on as many cores as their counterparts here. */
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { at, range } from "../src/ir/shape.js";
import { ended } from "../test/support/launchers.js";
import { onCores, ownCores } from "./cores.js";

/** What a JAX program prints. */
export interface JaxResult {
  readonly step_ms: number;
  readonly compile_ms: number;
}

const root = new URL("../", import.meta.url);
const python = process.env.JAX_PYTHON ?? fileURLToPath(new URL(".venv/bin/python", root));

/** Runs a program of `bench/jax` on some cores: by default, JAX gives all cores of the machine to its devices. */
function commandOf(script: string, settings: object, cores: readonly number[]): [string, ...string[]] {
  const file = fileURLToPath(new URL(`bench/jax/${script}`, root));
  return onCores(cores, [python, file, JSON.stringify(settings)]);
}

const environmentOf = (devices: number) => ({
  ...process.env,
  JAX_PLATFORMS: "cpu",
  XLA_FLAGS: `--xla_force_host_platform_device_count=${devices}`,
});

/** What a program printed, or `null` if it failed. */
function readResult(status: number | null, stdout: string, stderr: string): JaxResult | null {
  if (status === 0) return JSON.parse(stdout.trim().split("\n").at(-1) ?? "null");
  console.error(`JAX did not run: ${stderr.split("\n").slice(-3).join(" ")}`);
  return null;
}

/** The result of a program of `bench/jax`, or `null` when no Python with JAX is found (`JAX_PYTHON`, `.venv/bin/python`). */
export function runJax(
  script: string,
  settings: object,
  { devices, cores }: { readonly devices: number; readonly cores: number },
): JaxResult | null {
  if (!existsSync(python)) return null;
  const [command, ...args] = commandOf(script, settings, ownCores().slice(0, cores));
  const { stdout, status, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    env: environmentOf(devices),
  });
  return readResult(status, stdout, stderr);
}

/** Like {@link runJax}, in several processes of one device and one core each, which Gloo joins. */
export async function runJaxProcesses(
  script: string,
  settings: object,
  processes: number,
): Promise<JaxResult | null> {
  if (!existsSync(python)) return null;
  const coordinator = `127.0.0.1:${20_000 + (process.pid % 10_000)}`;
  const cores = ownCores();
  const runs = range(processes).map((process) => {
    const own = { ...settings, devices: processes, processes, process, coordinator };
    const [command, ...args] = commandOf(script, own, [at(cores, process % cores.length)]);
    return ended(spawn(command, args, { env: environmentOf(1) }), 600_000);
  });
  const [first] = await Promise.all(runs);
  return first ? readResult(first.code, first.out, first.err) : null;
}
