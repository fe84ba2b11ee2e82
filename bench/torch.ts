/** Runs the benchmarks' PyTorch programs, where `TORCH_PYTHON` names a Python that has it. */
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Tensor, tree } from "shardwise";
import { onCores, ownCores } from "./cores.js";
import { type DecoderSize, initDecoder, makeTokens } from "./decoder.js";

/** What the decoder's program says of itself. */
export interface TorchResult {
  readonly compile_ms: number;
  /** The losses of the first steps. */
  readonly losses: readonly number[];
}

/** The time after which a program is given up, in milliseconds. */
const longest = 240_000;

const commandOf = (python: string, script: string, settings: object): [string, ...string[]] => [
  python,
  fileURLToPath(new URL(`torch/${script}`, import.meta.url)),
  JSON.stringify(settings),
];

const lastLine = (text: string) => text.trim().split("\n").at(-1) ?? "";

/**
 * What a program of `bench/torch` printed last; null without PyTorch, or where it failed.
 *
 * @param cores how many cores it may use; all by default
 */
export function runTorch<Result>(script: string, settings: object, cores?: number): Result | null {
  const python = process.env.TORCH_PYTHON;
  if (!python) return null;
  const [command, ...args] = onCores(ownCores().slice(0, cores), commandOf(python, script, settings));
  const start = performance.now();
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: "utf8",
    timeout: longest,
    killSignal: "SIGKILL",
  });
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  if (status === 0) {
    console.error(`    PyTorch, ${script}: ${seconds} s`);
    return JSON.parse(lastLine(stdout));
  }
  console.error(`    PyTorch did not run: ${error?.message ?? lastLine(stderr)}, after ${seconds} s`);
  return null;
}

/** A decoder that PyTorch trains, one step at a time. */
export class TorchDecoder {
  /** What it says when it can take steps; null if it has failed. */
  readonly ready: Promise<TorchResult | null>;
  private readonly lines: AsyncIterator<string>;
  private errors = "";

  constructor(private readonly child: ChildProcessWithoutNullStreams) {
    this.lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.stderr.on("data", (text) => {
      this.errors = `${this.errors}${text}`.slice(-1000);
    });
    // Writing to a program that has ended fails.
    child.stdin.on("error", () => {});
    this.ready = this.nextLine().then((line) => (line === null ? null : JSON.parse(line)));
  }

  /** Takes a step. */
  async step(): Promise<void> {
    this.child.stdin.write("\n");
    if ((await this.nextLine()) === null) throw new Error("PyTorch ended while it was measured");
  }

  close(): void {
    this.child.kill("SIGKILL");
  }

  private async nextLine(): Promise<string | null> {
    const deadline = setTimeout(() => this.close(), longest);
    const { value, done } = await this.lines.next();
    clearTimeout(deadline);
    if (!done) return value;
    console.error(`    PyTorch did not run: ${lastLine(this.errors)}`);
    return null;
  }
}

/** The step of a decoder in PyTorch, from the same parameters and tokens as here. */
export interface TorchDecoders {
  /** Compiles from the beginning, on all cores; then it runs on the first of them. */
  readonly compiled: TorchDecoder;
  /** Starts it without a compiler. */
  startEager(): TorchDecoder;
  /** Ends the compiled one, and removes the files of both. */
  close(): void;
}

/**
 * Starts to compile the step of a decoder, which takes up to minutes: with those of others at the same time, on all
 * cores. Undefined without PyTorch.
 */
export async function startTorchDecoders(
  size: DecoderSize,
  cores: number,
): Promise<TorchDecoders | undefined> {
  const python = process.env.TORCH_PYTHON;
  if (!python) return undefined;
  const files = await writeInputs(initDecoder(size), makeTokens(size));
  const commandFor = (compiled: boolean) =>
    commandOf(python, "decoder.py", { ...size, ...files.settings, cores, compiled });
  const start = ([command, ...args]: readonly [string, ...string[]]) =>
    new TorchDecoder(spawn(command, args));
  const compiled = start(commandFor(true));
  return {
    compiled,
    startEager: () => start(onCores(ownCores().slice(0, cores), commandFor(false))),
    close() {
      compiled.close();
      files.remove();
    },
  };
}

/** Writes parameters and tokens to files, which `bench/torch/inputs.py` reads. */
export async function writeInputs(
  params: unknown,
  tokens: Tensor,
): Promise<{ readonly settings: object; remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), "shardwise-torch-"));
  const settings = { parameters: join(folder, "parameters"), tokens: join(folder, "tokens") };
  const shapes: [string, readonly number[]][] = [];
  writeFileSync(settings.parameters, "");
  for (const { path, leaf } of tree.flattenWithPath(params)) {
    if (!(leaf instanceof Tensor)) continue;
    shapes.push([path, leaf.shape]);
    writeFileSync(settings.parameters, await bytesOf(leaf), { flag: "a" });
  }
  writeFileSync(settings.tokens, await bytesOf(tokens));
  return {
    settings: { ...settings, shapes },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

async function bytesOf(tensor: Tensor): Promise<Uint8Array> {
  const { buffer, byteOffset, byteLength } = await tensor.data();
  return new Uint8Array(buffer, byteOffset, byteLength);
}
