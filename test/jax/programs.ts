import { evalShape, np, Tensor } from "shardwise";
import { encode, type HostData, isFloat, partType } from "../../src/ir/dtype.js";
import { type Shape, sizeOf, type TensorType } from "../../src/ir/shape.js";
import { isStoredDType, type StoredArray } from "../../src/train/files/safetensors/safetensorsBytes.js";
import { type FunctionRecord, functionRecords, type OperandSpec, type Params } from "./functions.js";
import { gridRecords } from "./grid.js";
import { Draw } from "./random.js";

/** One call of a function in a program. */
export interface Step {
  readonly record: FunctionRecord;
  /** Which values it reads: the inputs, then the results of earlier steps. */
  readonly args: readonly number[];
  readonly params: Params;
}

/** A tensor as it lies in a file. */
export interface Input {
  readonly type: TensorType;
  readonly data: HostData;
}

/** Calls of functions in a row, for both languages. */
export interface JaxProgram {
  readonly name: string;
  readonly inputs: readonly Input[];
  readonly steps: readonly Step[];
}

const callsPerFunction = 2;
const numChains = 200;

/** A tensor of random values; floats stay a little apart, so that sorting and maxima are the same for both. */
function randomInput({ shape, dtype = "float32", low = -2, high = 2 }: OperandSpec, draw: Draw): Input {
  const numParts = dtype === "complex64" ? 2 : 1;
  const values = Array.from({ length: numParts * sizeOf(shape) }, () => {
    const value = low + draw.next() * (high - low);
    return isFloat(partType(dtype)) ? value : Math.floor(value);
  });
  return { type: { dtype, shape }, data: encode(dtype, values) };
}

/** The last value of a program. */
export function evaluate(program: JaxProgram, inputs: readonly Tensor[]): Tensor {
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

/**
 * Two calls of every function, one for each of its types, chains of them, and the grid of all exported functions.
 *
 * @param only a word that names must contain (`chain` for chains), the exported name of a function, or a part such as `3/8`
 */
export function makePrograms(seed: number, only?: string): JaxProgram[] {
  const singles = functionRecords.flatMap((record, i) => {
    const isTyped = / of (float|bfloat|int|uint|bool|complex64)/.test(record.name);
    return Array.from({ length: isTyped ? 1 : callsPerFunction }, (_, j) =>
      single(record, new Draw(seed * 1_000_003 + i * 101 + j)),
    );
  });
  // Chains are traced while they are drawn, which takes long.
  const [, part, numParts] = /^(\d+)\/(\d+)$/.exec(only ?? "") ?? [];
  const isWhole = only === undefined || part !== undefined;
  const wanted = isWhole || only.startsWith("chain") ? numChains : 0;
  const chains = Array.from({ length: wanted }, (_, i) => chain(new Draw(seed * 7_000_003 + i)));
  const grid = gridRecords(new Draw(seed * 13_000_003)).map((record, i) =>
    single(record, new Draw(seed * 17_000_003 + i)),
  );
  const all = [...singles, ...chains, ...grid];
  if (isWhole) {
    const size = Math.ceil(all.length / Number(numParts ?? 1));
    return all.slice((Number(part ?? 1) - 1) * size).slice(0, size);
  }
  return all.filter(
    ({ name, steps }) => name.includes(only) || steps.some(({ record }) => record.of === only),
  );
}

/** The inputs that gradients are taken of. */
export const wantedInputs = ({ inputs }: JaxProgram): number[] =>
  inputs.flatMap(({ type }, i) => (type.dtype === "float32" ? [i] : []));

/** What the value of a program is multiplied with before it is summed and differentiated. */
export function weightOf(number: number, { shape }: { readonly shape: Shape }): Input {
  return randomInput({ shape, low: -1, high: 1 }, new Draw(number + 17));
}

/** The number whose gradients are compared. */
export function lossOf(program: JaxProgram, weight: Tensor): (...inputs: Tensor[]) => Tensor {
  return (...inputs) => np.sum(evaluate(program, inputs).mul(weight));
}

/** A tensor of the default engine. */
export const toTensor = ({ type, data }: Input): Tensor => Tensor.fromHost(type, data);

/** Elements as they lie in a file. */
export function storedArray({ dtype, shape }: TensorType, data: HostData): StoredArray {
  if (!isStoredDType(dtype)) throw new Error(`files hold no ${dtype}`);
  return { dtype, shape, data };
}

const transforms = ["grad", "jvp", "vmap"] as const;

/** What is compared besides the value: random programs are differentiated, calls of the table get what is drawn. */
export function transformOf(
  { steps, inputs }: JaxProgram,
  number: number,
  seed: number,
): (typeof transforms)[number] | undefined {
  if (steps.every(({ record }) => record.of === undefined)) return "grad";
  const drawn = transforms[(number + seed) % transforms.length];
  // Calls without operands have a scalar that they do not read.
  return drawn === "vmap" && inputs.every(({ type }) => type.shape.length === 0) ? undefined : drawn;
}

/** The direction of a derivative, for the inputs that are differentiated. */
export const tangentOf = (number: number, input: number, { type }: Input): Input =>
  weightOf(number + 31 * input, type);
