/** Runs the benchmarks' PyTorch programs, where `TORCH_PYTHON` names a Python that has it. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { jit, Tensor, tree } from "shardwise";
import { type DecoderSize, initDecoder, initState, loss, makeStep, makeTokens } from "./decoder.js";

/** What the decoder's program prints. */
export interface TorchResult {
  readonly step_ms: number;
  readonly compile_ms: number;
  /** The losses of the first three steps. */
  readonly losses: readonly number[];
}

/** The time after which a program is given up, in milliseconds. */
const longest = 180_000;

/**
 * What a program of `bench/torch` printed last; null without PyTorch, or where it failed. A program with a compiler
 * gets all cores for it and keeps to the first ones afterwards, others begin with these.
 */
export function runTorch<Result>(
  script: string,
  settings: object,
  cores: number,
  compiles = false,
): Result | null {
  const python = process.env.TORCH_PYTHON;
  if (!python) return null;
  const file = fileURLToPath(new URL(`torch/${script}`, import.meta.url));
  const call: [string, ...string[]] = [python, file, JSON.stringify(settings)];
  const [command, ...args] =
    process.platform === "linux" && !compiles
      ? (["taskset", "-c", `0-${cores - 1}`, ...call] as const)
      : call;
  const start = performance.now();
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: "utf8",
    timeout: longest,
    killSignal: "SIGKILL",
  });
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  if (status === 0) {
    console.error(`    PyTorch, ${script} on ${cores} cores: ${seconds} s`);
    return JSON.parse(stdout.trim().split("\n").at(-1) ?? "null");
  }
  console.error(
    `    PyTorch did not run: ${error?.message ?? stderr.trim().split("\n").at(-1)}, after ${seconds} s`,
  );
  return null;
}

/** The step of a decoder in PyTorch, eager and compiled, from the same parameters and tokens as here. */
export async function torchDecoder(
  size: DecoderSize,
  cores: number,
): Promise<{ readonly eager: TorchResult | null; readonly compiled: TorchResult | null }> {
  if (!process.env.TORCH_PYTHON) return { eager: null, compiled: null };
  const folder = mkdtempSync(join(tmpdir(), "shardwise-torch-"));
  try {
    const [parameters, tokens] = [join(folder, "parameters"), join(folder, "tokens")];
    const shapes: [string, readonly number[]][] = [];
    const data: Promise<Uint8Array>[] = [];
    for (const { path, leaf } of tree.flattenWithPath(initDecoder(size))) {
      if (!(leaf instanceof Tensor)) continue;
      shapes.push([path, leaf.shape]);
      data.push(bytesOf(leaf));
    }
    writeFileSync(parameters, Buffer.concat(await Promise.all(data)));
    writeFileSync(tokens, await bytesOf(makeTokens(size)));
    const run = (compiled: boolean) =>
      runTorch<TorchResult>(
        "decoder.py",
        { ...size, cores, parameters, tokens, shapes, compiled, seconds: 6 },
        cores,
        compiled,
      );
    return { eager: run(false), compiled: run(true) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The largest difference between PyTorch's first losses and those of the same steps here. */
export async function lossDifference(size: DecoderSize, { losses }: TorchResult): Promise<number> {
  const tokens = makeTokens(size);
  const step = makeStep(size);
  const lossOf = jit((state: ReturnType<typeof initState>) => loss(state.params, tokens, size));
  let state = initState(initDecoder(size));
  let worst = 0;
  for (const other of losses) {
    worst = Math.max(worst, Math.abs((await lossOf(state).item()) - other));
    state = step(state, tokens);
  }
  return worst;
}

async function bytesOf(tensor: Tensor): Promise<Uint8Array> {
  const { buffer, byteOffset, byteLength } = await tensor.data();
  return new Uint8Array(buffer, byteOffset, byteLength);
}
