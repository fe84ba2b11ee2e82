/**
 * The differential test against JAX and optax: every exported function on arguments drawn from grids of types, shapes and
 * options, and random programs, computed plainly, compiled, differentiated both ways and mapped, in
 * both languages, here on worker threads and on the reference engine.
 *
 *   npm run test:jax                       # all functions, and chains of them
 *   npm run test:jax -- np.sort            # one function, or programs whose name contains a word
 *   npm run test:jax -- 3/8                # the third eighth of everything
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
import { isFloat } from "../../src/ir/dtype.js";
import { at } from "../../src/ir/shape.js";
import {
  encodeSafetensors,
  parseSafetensors,
  type StoredArray,
} from "../../src/train/files/safetensors/safetensorsBytes.js";
import { differenceFromJax } from "./compare.js";
import { knownDifference } from "./known.js";
import {
  type JaxProgram,
  makePrograms,
  storedArray,
  tangentOf,
  transformOf,
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
const only = positionals[0];

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

/** Runs a command that writes results and errors, and reads them. */
function evaluated(command: string, args: readonly string[], folder: string, env: NodeJS.ProcessEnv) {
  const [outputs, errors] = ["outputs.safetensors", "errors.json"].map((name) => join(folder, name));
  if (outputs === undefined || errors === undefined) throw new Error("two files are named");
  const done = spawnSync(command, [...args, outputs, errors], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (done.status !== 0) throw new Error(`${command} ended with status ${done.status}`);
  const report: { jax?: string; errors: Record<string, string> } = JSON.parse(readFileSync(errors, "utf8"));
  const { tensors } = parseSafetensors(readFileSync(outputs));
  return { results: tensors, errors: new Map(Object.entries(report.errors)), version: report.jax };
}

const engines = ["threads", "reference"] as const;

const fileBeside = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/** What each engine makes of the programs, in a process of its own: an engine is chosen when it is first used. */
function runHere(engine: (typeof engines)[number], folder: string): Evaluated {
  const args = [...process.execArgv, fileBeside("here.ts"), options.seed, only ?? ""];
  return evaluated(process.execPath, args, folder, { SHARDWISE_ENGINE: engine });
}

function runJax(python: string, programs: readonly JaxProgram[], here: Results, folder: string) {
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
      transform: transformOf(program, number, seed) ?? null,
      steps: program.steps.map(({ record, args, params }) => ({ py: record.py, args, params })),
    };
  });
  const [asked, inputs] = [join(folder, "programs.json"), join(folder, "inputs.safetensors")];
  writeFileSync(asked, JSON.stringify(json));
  writeFileSync(inputs, encodeSafetensors(arrays));
  // By default XLA leaves out roundings of 16-bit floats where it joins ops; JAX without jit does not.
  const env = { JAX_PLATFORMS: "cpu", XLA_FLAGS: "--xla_allow_excess_precision=false" };
  return evaluated(python, [fileBeside("evaluate.py"), asked, inputs], folder, env);
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

/** A result that differs: which, as in `grad/1`, and how. */
interface Difference {
  readonly what: string;
  readonly how: string;
}

/** How a program differs from JAX's; what JAX refuses is not compared. */
async function differencesOf(
  program: JaxProgram,
  number: number,
  here: Evaluated,
  jax: Evaluated,
): Promise<Difference[]> {
  const differences: Difference[] = [];
  for (const what of parts) {
    const [error, refusal] = [here, jax].map(({ errors }) => errors.get(`${number}/${what}`));
    if (refusal !== undefined && isBroken(refusal))
      differences.push({ what, how: `cannot be asked of JAX: ${refusal}` });
    else if (error !== undefined && refusal === undefined)
      differences.push({ what, how: `is refused here: ${error}` });
  }
  if (differences.length > 0) return differences;
  const valueShape = here.results.get(`${number}/value`)?.shape ?? [];
  for (const [key, want] of jax.results) {
    if (!key.startsWith(`${number}/`) || key.startsWith(`${number}/wide/`)) continue;
    const what = key.slice(`${number}/`.length);
    const got = here.results.get(key);
    const wide = jax.results.get(`${number}/wide/${what}`);
    const how = got
      ? await differenceFromJax(program, { number, what, valueShape }, got, want, wide)
      : "is missing here";
    if (how !== undefined) differences.push({ what, how });
  }
  return differences;
}

/** How a program differs from JAX's, on which engines, and whether all of it is known. */
async function reportOf(
  program: JaxProgram,
  number: number,
  here: ReadonlyMap<string, Evaluated>,
  jax: Evaluated,
): Promise<{ texts: string[]; isKnown: boolean }> {
  const engines = new Map<string, string[]>();
  const reasons: (string | undefined)[] = [];
  for (const [engine, own] of here) {
    for (const { what, how } of await differencesOf(program, number, own, jax)) {
      const reason = knownDifference(program.name, what);
      const text = `${what} ${how}${reason === undefined ? "" : ` (${reason})`}`;
      engines.set(text, [...(engines.get(text) ?? []), engine]);
      reasons.push(reason);
    }
  }
  const texts = [...engines].map(([text, on]) =>
    on.length === here.size ? text : `on ${on.join()} ${text}`,
  );
  return { texts, isKnown: !reasons.includes(undefined) };
}

async function main(): Promise<void> {
  const python = findPython();
  const programs = makePrograms(seed, only);
  const folder = mkdtempSync(join(tmpdir(), "shardwise-jax-"));
  const counts = { agree: 0, documented: 0, wider: 0 };
  const failures: string[] = [];
  try {
    const here = new Map(engines.map((engine) => [engine, runHere(engine, folder)]));
    const threads = here.get("threads");
    if (!threads) throw new Error("nothing ran on threads");
    const jax = runJax(python, programs, threads.results, folder);
    for (const [number, program] of programs.entries()) {
      const { texts, isKnown } = await reportOf(program, number, here, jax);
      const wider = widerThanJax(number, threads, jax);
      if (options.wider) for (const text of wider) process.stdout.write(`  ${program.name}: ${text}\n`);
      const line = `${program.name}: ${texts.join("; ")}`;
      if (texts.length === 0 && wider.length > 0) counts.wider++;
      else if (texts.length === 0) counts.agree++;
      else if (isKnown) {
        counts.documented++;
        if (options.known) process.stdout.write(`  ${line}\n`);
      } else failures.push(line);
    }
    for (const failure of failures) process.stdout.write(`✗ ${failure}\n`);
    process.stdout.write(
      `${programs.length} programs (${threads.results.size} results on ${engines.join(" and ")}) against JAX ${jax.version} ` +
        `(seed ${seed}): ${counts.agree} agree, ${counts.wider} are computed here and refused by JAX, ` +
        `${counts.documented} differ as documented, ${failures.length} differ\n`,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
  process.exit(failures.length === 0 ? 0 : 1);
}

await main();
