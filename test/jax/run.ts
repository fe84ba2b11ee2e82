/**
 * The differential test against JAX and optax: every exported function on arguments drawn from grids of types, shapes and
 * options, and random programs, computed plainly, compiled, differentiated both ways and mapped, in both languages.
 *
 *   npm run test:jax                       # all functions, and chains of them
 *   npm run test:jax -- np.sort            # one function, or programs whose name contains a word
 *   npm run test:jax -- --seed 7           # other arguments
 *   npm run test:jax -- --wider            # list also what is computed here and refused by JAX
 *   npm run test:jax -- --known            # list also what differs as known.ts says
 *
 * JAX is looked for in JAX_PYTHON, and in .venv/bin/python.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { grad, jit, jvp, np, type Synchronous, type Tensor, vmap } from "shardwise";
import { encode, type HostData, isFloat } from "../../src/ir/dtype.js";
import { at, type TensorType } from "../../src/ir/shape.js";
import {
  encodeSafetensors,
  isStoredDType,
  parseSafetensors,
  type StoredArray,
} from "../../src/train/files/safetensorsBytes.js";
import { differenceFromJax } from "./compare.js";
import { knownDifference } from "./known.js";
import {
  evaluate,
  type Input,
  type JaxProgram,
  lossOf,
  makePrograms,
  toTensor,
  wantedInputs,
  weightOf,
} from "./programs.js";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: "string", default: process.env.SEED ?? "1" },
    wider: { type: "boolean", default: false },
    known: { type: "boolean", default: false },
  },
});
const seed = Number(options.seed);

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
      "  python3 -m venv .venv && .venv/bin/pip install jax optax",
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
  /** By the number of the program and what of it failed, as in `7/grad`. */
  readonly errors: ReadonlyMap<string, string>;
}

const transforms = ["grad", "jvp", "vmap"] as const;

/** What is compared besides the value: random programs are differentiated, calls of the table get what is drawn. */
function transformOf({ steps, inputs }: JaxProgram, number: number): (typeof transforms)[number] | undefined {
  if (steps.every(({ record }) => record.of === undefined)) return "grad";
  const drawn = transforms[(number + seed) % transforms.length];
  // Calls without operands have a scalar that they do not read.
  return drawn === "vmap" && inputs.every(({ type }) => type.shape.length === 0) ? undefined : drawn;
}

/** The direction of a derivative, for the inputs that are differentiated. */
const tangentOf = (number: number, input: number, { type }: Input): Input =>
  weightOf(number + 31 * input, type);

/** What is computed of a program, by name. */
function partsOf(program: JaxProgram, number: number): Map<string, () => [string, Tensor][]> {
  // Half of the programs run op by op, the other half compiled.
  const compiled = <R>(f: ((...args: Tensor[]) => R) & Synchronous<R>) => (number % 2 === 0 ? f : jit(f));
  const inputs = program.inputs.map(toTensor);
  const fn = (...args: Tensor[]) => evaluate(program, args);
  const parts = new Map<string, () => [string, Tensor][]>();
  let value: Tensor | undefined;
  parts.set("value", () => {
    value = compiled(fn)(...inputs);
    return [["value", value]];
  });
  const wanted = wantedInputs(program);
  const transform = transformOf(program, number);
  parts.set("grad", () => {
    if (transform !== "grad" || !value || !isFloat(value.dtype) || wanted.length === 0) return [];
    const loss = lossOf(program, toTensor(weightOf(number, value)));
    const gradients = compiled((...args: Tensor[]) => grad(loss, { argnums: wanted })(...args) as Tensor[]);
    return gradients(...inputs).map((gradient, i) => [`grad/${wanted[i]}`, gradient]);
  });
  parts.set("jvp", () => {
    if (transform !== "jvp" || !value || !isFloat(value.dtype) || wanted.length === 0) return [];
    const chosen = wanted.map((i) => at(inputs, i));
    const along = wanted.map((i) => toTensor(tangentOf(number, i, at(program.inputs, i))));
    const ofChosen = (...xs: Tensor[]) => fn(...inputs.map((x, i) => xs[wanted.indexOf(i)] ?? x));
    return [["jvp", jvp(ofChosen, chosen, along)[1] as Tensor]];
  });
  parts.set("vmap", () => {
    if (transform !== "vmap") return [];
    return [["vmap", compiled(vmap(fn))(...inputs.map((x) => np.stack([x, np.flip(x)])))]];
  });
  return parts;
}

async function runHere(programs: readonly JaxProgram[]): Promise<Evaluated> {
  const results = new Map<string, StoredArray>();
  const errors = new Map<string, string>();
  for (const [number, program] of programs.entries()) {
    for (const [part, compute] of partsOf(program, number)) {
      try {
        for (const [name, tensor] of compute()) {
          const data = encode(tensor.dtype, await tensor.data());
          results.set(`${number}/${name}`, storedArray(tensor.type, data));
        }
      } catch (error) {
        errors.set(`${number}/${part}`, String(error).slice(0, 300));
      }
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
    const wanted = hasGradient ? wantedInputs(program) : [];
    if (hasGradient) {
      const { type, data } = weightOf(number, value);
      arrays.set(`${number}/weight`, storedArray(type, data));
    }
    for (const i of wanted) {
      const { type, data } = tangentOf(number, i, at(program.inputs, i));
      arrays.set(`${number}/tangent/${i}`, storedArray(type, data));
    }
    return {
      numInputs: program.inputs.length,
      wanted,
      transform: transformOf(program, number) ?? null,
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
    return { results: tensors, errors: new Map(Object.entries(report.errors)), version: report.jax };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const parts = ["value", "grad", "jvp", "vmap"] as const;

/** Python's errors about a program that is wrong by itself, such as a misspelt name: it compares nothing. */
const isBroken = (error: string) =>
  /^(ModuleNotFound|Import|Name|Attribute|Syntax|Indentation)Error/.test(error);

/** What is computed here and refused by JAX: types that its functions do not take, mostly. */
function widerThanJax(number: number, here: Evaluated, jax: Evaluated): string[] {
  return parts.flatMap((part) => {
    const error = jax.errors.get(`${number}/${part}`);
    const isWider = error !== undefined && !here.errors.has(`${number}/${part}`);
    return isWider ? [`${part} is refused by JAX: ${error}`] : [];
  });
}

/** How a program differs from JAX's; what JAX refuses is not compared. */
async function differencesOf(
  program: JaxProgram,
  number: number,
  here: Evaluated,
  jax: Evaluated,
): Promise<string[]> {
  const differences: string[] = [];
  for (const part of parts) {
    const [error, refusal] = [here, jax].map(({ errors }) => errors.get(`${number}/${part}`));
    if (refusal !== undefined && isBroken(refusal))
      differences.push(`${part} cannot be asked of JAX: ${refusal}`);
    else if (error !== undefined && refusal === undefined)
      differences.push(`${part} is refused here: ${error}`);
  }
  if (differences.length > 0) return differences;
  const valueShape = here.results.get(`${number}/value`)?.shape ?? [];
  for (const [key, want] of jax.results) {
    if (!key.startsWith(`${number}/`)) continue;
    const what = key.slice(`${number}/`.length);
    const got = here.results.get(key);
    const wrong = got ? await differenceFromJax(program, { number, what, valueShape }, got, want) : undefined;
    if (wrong !== undefined) differences.push(`${what} ${wrong}`);
  }
  return differences;
}

async function main(): Promise<void> {
  const python = findPython();
  const programs = makePrograms(seed, positionals[0]);
  const here = await runHere(programs);
  const jax = runJax(python, programs, here.results);
  const counts = { agree: 0, documented: 0, wider: 0 };
  const failures: string[] = [];
  for (const [number, program] of programs.entries()) {
    const differences = await differencesOf(program, number, here, jax);
    const reason = knownDifference(program.name);
    const wider = widerThanJax(number, here, jax);
    if (options.wider) for (const text of wider) process.stdout.write(`  ${program.name}: ${text}\n`);
    if (differences.length === 0 && wider.length > 0) counts.wider++;
    else if (differences.length === 0) counts.agree++;
    else if (reason !== undefined) {
      counts.documented++;
      if (options.known) process.stdout.write(`  ${program.name}: ${differences.join("; ")} (${reason})\n`);
    } else failures.push(`${program.name}: ${differences.join("; ")}`);
  }
  for (const failure of failures) process.stdout.write(`✗ ${failure}\n`);
  process.stdout.write(
    `${programs.length} programs (${here.results.size} results) against JAX ${jax.version} (seed ${seed}): ` +
      `${counts.agree} agree, ${counts.wider} are computed here and refused by JAX, ` +
      `${counts.documented} differ as documented, ${failures.length} differ\n`,
  );
  process.exit(failures.length === 0 ? 0 : 1);
}

await main();
