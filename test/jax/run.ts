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
import { evalShape, grad, jit, np, Tensor } from "shardwise";
import { decode, encode, type HostData, isFloat, limits, partType } from "../../src/ir/dtype.js";
import { sizeOf, type TensorType } from "../../src/ir/shape.js";
import {
  encodeSafetensors,
  isStoredDType,
  parseSafetensors,
  type StoredArray,
} from "../../src/train/files/safetensors.js";
import { type FunctionRecord, functionRecords, type OperandSpec, type Params } from "./functions.js";
import { Draw } from "./random.js";

interface Step {
  readonly record: FunctionRecord;
  /** Which values it reads: the inputs, then the results of earlier steps. */
  readonly args: readonly number[];
  readonly params: Params;
}

interface Input {
  readonly type: TensorType;
  readonly data: HostData;
}

interface JaxProgram {
  readonly name: string;
  readonly inputs: readonly Input[];
  readonly steps: readonly Step[];
}

const seed = Number(process.env.SEED ?? 1);
const callsPerFunction = 2;
const numChains = 200;

/** Elements as they lie in a file. */
function storedArray({ dtype, shape }: TensorType, data: HostData): StoredArray {
  if (!isStoredDType(dtype)) throw new Error(`files hold no ${dtype}`);
  return { dtype, shape, data };
}

/** A tensor of random values; floats stay a little apart, so that sorting and maxima are the same for both. */
function randomInput({ shape, dtype = "float32", low = -2, high = 2 }: OperandSpec, draw: Draw): Input {
  const numParts = dtype === "complex64" ? 2 : 1;
  const values = Array.from({ length: numParts * sizeOf(shape) }, () => {
    const value = low + draw.next() * (high - low);
    return isFloat(partType(dtype)) ? value : Math.floor(value);
  });
  return { type: { dtype, shape }, data: encode(dtype, values) };
}

function evaluate(program: JaxProgram, inputs: readonly Tensor[]): Tensor {
  const values = [...inputs];
  for (const { record, args, params } of program.steps) {
    const operands = args.map((i) => values[i]).filter((value) => value !== undefined);
    values.push(record.ts(operands, params));
  }
  const last = values.at(-1);
  if (!last) throw new Error("a program without values");
  return last;
}

/** One call of one function. */
function single(record: FunctionRecord, draw: Draw): JaxProgram {
  const { operands, params = {} } = record.call(draw);
  const inputs = operands.map((operand) => randomInput(operand, draw));
  return { name: record.name, inputs, steps: [{ record, args: inputs.map((_, i) => i), params }] };
}

/** Functions in a row, some of them of two earlier values, with a tanh between them to keep values small. */
function chain(draw: Draw): JaxProgram {
  const links = functionRecords.filter((record) => record.chain);
  const joins = functionRecords.filter(({ name }) =>
    ["add", "multiply", "maximum", "arctan2", "where"].includes(name),
  );
  const tanh = functionRecords.find(({ name }) => name === "tanh");
  if (!tanh) throw new Error("tanh is missing");
  const shape = draw.shape();
  const inputs = [randomInput({ shape }, draw), randomInput({ shape }, draw)];
  const steps: Step[] = [];
  const types = inputs.map(({ type }) => type);
  const add = (step: Step) => {
    const program = { name: "", inputs, steps: [...steps, step] };
    const zeros = inputs.map(({ type }) => np.zeros(type.shape));
    const type = evalShape((...args: Tensor[]) => evaluate(program, args))(...zeros) as TensorType;
    if (sizeOf(type.shape) > 600 || sizeOf(type.shape) === 0) return;
    steps.push(step);
    types.push(type);
  };
  for (let i = draw.int(2, 6); i > 0; i--) {
    const latest = types.length - 1;
    const type = types[latest];
    if (!type) break;
    const partner = types.findIndex(({ shape: s }, j) => j < latest && s.join() === type.shape.join());
    if (partner >= 0 && draw.chance(0.4)) {
      add({ record: draw.pick(joins), args: [latest, partner], params: {} });
      continue;
    }
    const link = draw.pick(links);
    if (type.shape.length === 0 || !link.chain) break;
    add({ record: link, args: [latest], params: link.chain(draw, type.shape) });
    if (draw.chance(0.5)) add({ record: tanh, args: [types.length - 1], params: {} });
  }
  const name = steps.map(({ record, args, params }) => {
    const given = Object.keys(params).length > 0 ? ` ${JSON.stringify(params)}` : "";
    return `${record.name}(${args})${given}`;
  });
  return { name: `chain of [${shape}]: ${name.join(" → ")}`, inputs, steps };
}

function makePrograms(only: string | undefined): JaxProgram[] {
  const singles = functionRecords.flatMap((record, i) => {
    const isTyped = / of (float|bfloat|int|uint|bool|complex64)/.test(record.name);
    return Array.from({ length: isTyped ? 1 : callsPerFunction }, (_, j) =>
      single(record, new Draw(seed * 1_000_003 + i * 101 + j)),
    );
  });
  const chains = Array.from({ length: numChains }, (_, i) => chain(new Draw(seed * 7_000_003 + i)));
  return [...singles, ...chains].filter(({ name }) => only === undefined || name.includes(only));
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

const wantedInputs = ({ inputs }: JaxProgram): number[] =>
  inputs.flatMap(({ type }, i) => (type.dtype === "float32" ? [i] : []));

/** Results of all programs by name. */
type Results = ReadonlyMap<string, StoredArray>;

interface Evaluated {
  readonly results: Results;
  readonly errors: ReadonlyMap<number, string>;
}

function weightOf(number: number, type: TensorType): Input {
  return randomInput({ shape: type.shape, low: -1, high: 1 }, new Draw(number + 17));
}

const toTensor = ({ type, data }: Input) => Tensor.fromHost(type, data);

/** The value of a program and its gradients, by name. */
async function evaluateAll(
  program: JaxProgram,
  number: number,
  inputs: readonly Tensor[],
): Promise<Map<string, Tensor>> {
  // Half of the programs run op by op, the other half compiled.
  const compiled = <R>(f: (...args: Tensor[]) => R) => (number % 2 === 0 ? f : jit(f));
  const value = compiled((...args: Tensor[]) => evaluate(program, args))(...inputs);
  const results = new Map([["value", value]]);
  const wanted = wantedInputs(program);
  if (!isFloat(value.dtype) || wanted.length === 0) return results;
  const weight = toTensor(weightOf(number, value.type));
  const loss = (...args: Tensor[]) => np.sum(evaluate(program, args).mul(weight));
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
      const tensors = await evaluateAll(program, number, program.inputs.map(toTensor));
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

/** A result in float64: what both float32 computations are meant to give. */
async function inFloat64(program: JaxProgram, number: number, what: string): Promise<ArrayLike<number>> {
  const inputs = program.inputs.map((input) => {
    const tensor = toTensor(input);
    return input.type.dtype === "float32" ? tensor.astype("float64") : tensor;
  });
  const results = await evaluateAll(program, number, inputs);
  return (await results.get(what)?.data()) ?? [];
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
      const { type, data } = weightOf(number, { dtype: "float32", shape: value.shape });
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

/**
 * How two arrays differ, or nothing when they agree within the rounding of their type.
 *
 * @param exact the result in float64: where JAX is off by rounding, so may we be
 */
function difference(
  got: StoredArray,
  want: StoredArray,
  isGradient: boolean,
  exact: ArrayLike<number> | undefined,
): string | undefined {
  if (got.dtype !== want.dtype) return `is ${got.dtype}, JAX has ${want.dtype}`;
  if (got.shape.join() !== want.shape.join()) return `has shape [${got.shape}], JAX has [${want.shape}]`;
  const dtype = partType(got.dtype);
  const [a, b] = [Array.from(decode(dtype, got.data)), Array.from(decode(dtype, want.data))];
  const finite = b.filter(Number.isFinite).map(Math.abs);
  const largest = Math.max(0, ...finite);
  const noise = Math.max(0, ...b.map((y, i) => Math.abs(y - (exact?.[i] ?? y))).filter(Number.isFinite));
  // A few roundings of the largest element: both sides add and multiply in another order.
  const slack = isFloat(dtype)
    ? limits(dtype).epsilon * (isGradient ? 400 : dtype === "float32" ? 100 : 2)
    : 0;
  for (let i = 0; i < b.length; i++) {
    const [x, y] = [a[i] ?? 0, b[i] ?? 0];
    if (Object.is(x, y) || x === y) continue;
    const bound = slack * Math.max(Math.abs(y), 0.1 * largest, isGradient ? 0.01 : 0.001) + 4 * noise;
    if (Math.abs(x - y) <= bound) continue;
    return `differs at element ${i}: ${x}, JAX has ${y} (bound ${bound.toPrecision(2)})`;
  }
  return undefined;
}

async function main(): Promise<void> {
  const flag = process.argv.indexOf("--only");
  const only = flag >= 0 ? process.argv[flag + 1] : undefined;
  const python = findPython();
  const programs = makePrograms(only);
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
      const isGradient = what.startsWith("grad");
      if (isGradient) numGradients++;
      let wrong = got ? difference(got, want, isGradient, undefined) : "is missing here";
      // Where float32 loses digits, float64 tells whether both lost the same number of them.
      if (got && wrong !== undefined && want.dtype === "float32") {
        wrong = difference(got, want, isGradient, await inFloat64(program, number, what));
      }
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
