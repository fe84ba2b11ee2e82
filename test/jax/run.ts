/**
 * The differential test against JAX: the same random programs, forward and gradient, in both languages.
 *
 *   npm run test:jax                       # all functions, and chains of them
 *   npm run test:jax -- --only softmax     # programs whose name contains a word
 *   SEED=7 npm run test:jax                # other programs
 *
 * JAX is looked for in JAX_PYTHON, and in .venv/bin/python.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { grad, jit, type Synchronous, type Tensor } from "shardwise";
import { encode, type HostData, isFloat } from "../../src/ir/dtype.js";
import type { TensorType } from "../../src/ir/shape.js";
import {
  encodeSafetensors,
  isStoredDType,
  parseSafetensors,
  type StoredArray,
} from "../../src/train/files/safetensorsBytes.js";
import { differenceFromJax } from "./compare.js";
import {
  evaluate,
  type JaxProgram,
  lossOf,
  makePrograms,
  toTensor,
  wantedInputs,
  weightOf,
} from "./programs.js";

const seed = Number(process.env.SEED ?? 1);

/** Elements as they lie in a file. */
function storedArray({ dtype, shape }: TensorType, data: HostData): StoredArray {
  if (!isStoredDType(dtype)) throw new Error(`files hold no ${dtype}`);
  return { dtype, shape, data };
}

function findPython(): string {
  const candidates = [process.env.JAX_PYTHON, ".venv/bin/python"].filter((path) => path !== undefined);
  for (const path of candidates) {
    if (existsSync(path) && spawnSync(path, ["-c", "import jax"]).status === 0) return path;
  }
  process.stderr.write(
    [
      `No Python with JAX was found (looked at ${candidates.join(", ")}). To install one here:`,
      "",
      "  python3 -m venv .venv && .venv/bin/pip install jax",
      "",
      "or name one: JAX_PYTHON=/path/to/python npm run test:jax",
      "",
    ].join("\n"),
  );
  process.exit(2);
}

/** Results of all programs by name. */
type Results = ReadonlyMap<string, StoredArray>;

interface Evaluated {
  readonly results: Results;
  readonly errors: ReadonlyMap<number, string>;
}

/** The value of a program and its gradients, by name. */
function evaluateAll(program: JaxProgram, number: number): Map<string, Tensor> {
  // Half of the programs run op by op, the other half compiled.
  const compiled = <R>(f: ((...args: Tensor[]) => R) & Synchronous<R>) => (number % 2 === 0 ? f : jit(f));
  const inputs = program.inputs.map(toTensor);
  const value = compiled((...args: Tensor[]) => evaluate(program, args))(...inputs);
  const results = new Map([["value", value]]);
  const wanted = wantedInputs(program);
  if (!isFloat(value.dtype) || wanted.length === 0) return results;
  const loss = lossOf(program, toTensor(weightOf(number, value)));
  const gradients = compiled((...args: Tensor[]) => grad(loss, { argnums: wanted })(...args) as Tensor[])(
    ...inputs,
  );
  wanted.forEach((input, i) => {
    const gradient = gradients[i];
    if (gradient) results.set(`grad/${input}`, gradient);
  });
  return results;
}

async function runHere(programs: readonly JaxProgram[]): Promise<Evaluated> {
  const results = new Map<string, StoredArray>();
  const errors = new Map<number, string>();
  for (const [number, program] of programs.entries()) {
    try {
      const tensors = evaluateAll(program, number);
      for (const [name, tensor] of tensors) {
        const data = encode(tensor.dtype, await tensor.data());
        results.set(`${number}/${name}`, storedArray(tensor.type, data));
      }
    } catch (error) {
      errors.set(number, String(error));
    }
  }
  return { results, errors };
}

function runJax(
  python: string,
  programs: readonly JaxProgram[],
  here: Results,
): Evaluated & { version: string } {
  const folder = mkdtempSync(join(tmpdir(), "shardwise-jax-"));
  const path = (name: string) => join(folder, name);
  const arrays = new Map<string, StoredArray>();
  const json = programs.map((program, number) => {
    program.inputs.forEach(({ type, data }, i) => {
      arrays.set(`${number}/in/${i}`, storedArray(type, data));
    });
    const value = here.get(`${number}/value`);
    const hasGradient = value !== undefined && isFloat(value.dtype);
    if (hasGradient) {
      const { type, data } = weightOf(number, value);
      arrays.set(`${number}/weight`, storedArray(type, data));
    }
    return {
      numInputs: program.inputs.length,
      wanted: hasGradient ? wantedInputs(program) : [],
      steps: program.steps.map(({ record, args, params }) => ({ py: record.py, args, params })),
    };
  });
  try {
    writeFileSync(path("programs.json"), JSON.stringify(json));
    writeFileSync(path("inputs.safetensors"), encodeSafetensors(arrays));
    const script = fileURLToPath(new URL("evaluate.py", import.meta.url));
    const names = ["programs.json", "inputs.safetensors", "outputs.safetensors", "errors.json"];
    const environment = { ...process.env, JAX_PLATFORMS: "cpu" };
    const done = spawnSync(python, [script, ...names.map(path)], {
      env: environment,
      stdio: ["ignore", "inherit", "inherit"],
    });
    if (done.status !== 0) throw new Error(`${python} ended with status ${done.status}`);
    const report: { jax: string; errors: Record<string, string> } = JSON.parse(
      readFileSync(path("errors.json"), "utf8"),
    );
    const { tensors } = parseSafetensors(readFileSync(path("outputs.safetensors")));
    const errors = new Map(Object.entries(report.errors).map(([number, text]) => [Number(number), text]));
    return { results: tensors, errors, version: report.jax };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function main(): Promise<void> {
  const flag = process.argv.indexOf("--only");
  const only = flag >= 0 ? process.argv[flag + 1] : undefined;
  const python = findPython();
  const programs = makePrograms(seed, only);
  const here = await runHere(programs);
  const jax = runJax(python, programs, here.results);
  let numGradients = 0;
  const failures: string[] = [];
  for (const [number, program] of programs.entries()) {
    const { name } = program;
    const [error, theirs] = [here.errors.get(number), jax.errors.get(number)];
    if (error !== undefined || theirs !== undefined) {
      const texts = [error && `here ${error}`, theirs && `JAX ${theirs}`].filter((text) => text);
      failures.push(`${name}: ${texts.join("; ")}`);
      continue;
    }
    for (const [key, want] of jax.results) {
      if (!key.startsWith(`${number}/`)) continue;
      const what = key.slice(`${number}/`.length);
      const got = here.results.get(key);
      if (what !== "value") numGradients++;
      const valueShape = here.results.get(`${number}/value`)?.shape ?? [];
      const wrong = got
        ? await differenceFromJax(program, { number, what, valueShape }, got, want)
        : "is missing here";
      if (wrong !== undefined) failures.push(`${name}: ${what} ${wrong}`);
    }
  }
  for (const failure of failures) process.stdout.write(`✗ ${failure}\n`);
  process.stdout.write(
    `${programs.length} programs and ${numGradients} gradients against JAX ${jax.version} (seed ${seed}): ` +
      `${programs.length - new Set(failures.map((text) => text.split(": ")[0])).size} agree, ${failures.length} differences\n`,
  );
  process.exit(failures.length === 0 ? 0 : 1);
}

await main();
