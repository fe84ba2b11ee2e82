/** Bytes that each of eight devices sends for some programs, as partitioned here and, if JAX is installed, by XLA. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { simplify } from "shardwise";
import { CostReport } from "../src/spmd/inspect/cost.js";
import { communicationPrograms } from "../test/support/communicationPrograms.js";
import { layerPrograms } from "../test/support/layerPrograms.js";
import type { Report, Row } from "./measure.js";

/** The bytes that XLA's programs send, by name; empty when no Python with JAX is found (`JAX_PYTHON`, `.venv`). */
function xlaBytes(): Readonly<Record<string, number>> {
  const root = new URL("../", import.meta.url);
  const python = process.env.JAX_PYTHON ?? fileURLToPath(new URL(".venv/bin/python", root));
  if (!existsSync(python)) return {};
  const { stdout, status, stderr } = spawnSync(
    python,
    [fileURLToPath(new URL("bench/jax/communication.py", root))],
    { encoding: "utf8", env: { ...process.env, XLA_FLAGS: "--xla_force_host_platform_device_count=8" } },
  );
  if (status !== 0) {
    console.error(`JAX did not run: ${stderr.split("\n").slice(-3).join(" ")}`);
    return {};
  }
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}");
}

/** The table of bytes. */
export async function communication(): Promise<Report> {
  const xla = xlaBytes();
  const count = (bytes: number | undefined) => bytes?.toLocaleString("en-US") ?? null;
  const rows = [...communicationPrograms, ...layerPrograms].map(({ name, most, perDevice }): Row => {
    const bytes = new CostReport(simplify(perDevice().program)).bytesMoved();
    const other = xla[name];
    return {
      program: name,
      "shardwise, B": count(bytes),
      "XLA, B": count(other),
      "bound, B": count(most),
      verdict: bytes > Math.min(most, other ?? most) ? "more" : "ok",
    };
  });
  return { "bytes sent by each of 8 devices": rows };
}
