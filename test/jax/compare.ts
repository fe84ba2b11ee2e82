import { grad, jvp, lax, np, type Tensor, vmap } from "shardwise";
import { type HostTensor, hostTensor } from "../../src/engines/reference/hostTensor.js";
import { decode, isFloat, limits, partType } from "../../src/ir/dtype.js";
import { at, range, type Shape, sizeOf } from "../../src/ir/shape.js";
import { traceFlat } from "../../src/trace/builder.js";
import type { StoredArray } from "../../src/train/files/safetensors/safetensorsBytes.js";
import { type Oracle, oracleFor } from "../support/agreement.js";
import {
  evaluate,
  type Input,
  type JaxProgram,
  lossOf,
  tangentOf,
  toTensor,
  wantedInputs,
  weightOf,
} from "./programs.js";

/** A result of a program: its number, and the result's name and shape. */
export interface Place {
  readonly number: number;
  /** `value`, `grad/1` for the gradient by input 1, `jvp` or `vmap`. */
  readonly what: string;
  /** The shape of the program's value. */
  readonly valueShape: Shape;
}

/**
 * How a result differs from JAX's, or nothing when it does not: both lie within a few roundings of each other, or
 * among what the program gives when the rounding of each of its ops is another one.
 *
 * @param wide a result of 16-bit floats that JAX computes in float32 and rounds once, as it is done here
 */
export async function differenceFromJax(
  program: JaxProgram,
  place: Place,
  got: StoredArray,
  want: StoredArray,
  wide?: StoredArray,
): Promise<string | undefined> {
  const isGradient = place.what === "jvp" || place.what.startsWith("grad/");
  const far = differenceInPlaces(got, want, isGradient);
  if (wide && differenceInPlaces(got, wide, isGradient) === undefined) return undefined;
  if (far === undefined || !isFloat(want.dtype) || got.dtype !== want.dtype) return far;
  if (got.shape.join() !== want.shape.join()) return far;
  const oracle = await oracleOf(program, place);
  for (const [whose, array] of [
    ["it", got],
    ["JAX's", want],
  ] as const) {
    const unexplained = oracle.difference(0, 0, onHost(array));
    if (unexplained !== undefined) return `${far}; of ${whose}, ${unexplained}`;
  }
  return undefined;
}

const onHost = ({ dtype, shape, data }: StoredArray): HostTensor =>
  hostTensor(dtype, shape, Array.from(decode(dtype, data)));

/** How two arrays differ by more than a few roundings of their elements. */
function differenceInPlaces(got: StoredArray, want: StoredArray, isGradient: boolean): string | undefined {
  if (got.dtype !== want.dtype) return `is ${got.dtype}, JAX has ${want.dtype}`;
  if (got.shape.join() !== want.shape.join()) return `has shape [${got.shape}], JAX has [${want.shape}]`;
  const dtype = partType(got.dtype);
  const [a, b] = [Array.from(decode(dtype, got.data)), Array.from(decode(dtype, want.data))];
  const largest = Math.max(0, ...b.filter(Number.isFinite).map(Math.abs));
  // A few roundings of the largest element: both sides add and multiply in another order.
  const slack = isFloat(dtype)
    ? limits(dtype).epsilon * (isGradient ? 400 : dtype === "float32" ? 100 : 2)
    : 0;
  for (let i = 0; i < b.length; i++) {
    const [x, y] = [a[i] ?? 0, b[i] ?? 0];
    if (Object.is(x, y) || x === y) continue;
    const bound = slack * Math.max(Math.abs(y), 0.1 * largest, isGradient ? 0.01 : 0.001);
    if (Math.abs(x - y) <= bound) continue;
    return `differs at element ${i}: ${x}, JAX has ${y} (bound ${bound.toPrecision(2)})`;
  }
  return undefined;
}

/** A complex input as its two parts, which is what a traced program reads. */
function partsOf({ type: { dtype, shape }, data }: Input): HostTensor[] {
  const part = partType(dtype);
  const numbers = Array.from(decode(part, data));
  if (part === dtype) return [hostTensor(dtype, shape, numbers)];
  return [0, 1].map((which) =>
    hostTensor(
      part,
      shape,
      range(sizeOf(shape)).map((i) => numbers[2 * i + which] ?? 0),
    ),
  );
}

/** The judge of a result: its program, as it is traced here, in which every rounding may be another one. */
async function oracleOf(program: JaxProgram, { number, what, valueShape }: Place): Promise<Oracle> {
  const inputs = [...program.inputs, weightOf(number, { shape: valueShape })];
  const parts = inputs.map(partsOf);
  const joined = (tensors: readonly Tensor[]): Tensor[] => {
    const rest = tensors.values();
    const next = (): Tensor => {
      const { value } = rest.next();
      if (!value) throw new Error("an input is missing");
      return value;
    };
    return parts.map((own) => (own.length === 1 ? next() : lax.complex(next(), next())));
  };
  const result = (...tensors: Tensor[]): Tensor => {
    const args = joined(tensors);
    const weight = args.pop();
    const fn = (...xs: Tensor[]) => evaluate(program, xs);
    if (what === "vmap") return vmap(fn)(...args.map((x) => np.stack([x, np.flip(x)])));
    if (what === "jvp") {
      const wanted = wantedInputs(program);
      const along = wanted.map((i) => toTensor(tangentOf(number, i, at(program.inputs, i))));
      const ofChosen = (...xs: Tensor[]) => fn(...args.map((x, i) => xs[wanted.indexOf(i)] ?? x));
      const chosen = wanted.map((i) => at(args, i));
      return jvp(ofChosen, chosen, along)[1] as Tensor;
    }
    if (what === "value" || !weight) return fn(...args);
    const argnums = Number(what.slice("grad/".length));
    return grad(lossOf(program, weight), { argnums })(...args);
  };
  const given = parts.flat();
  const { program: traced, captures } = traceFlat(
    (tensors) => [result(...tensors)],
    given.map(({ type }) => type),
  );
  const captured = await Promise.all(
    captures.map(async (tensor) => hostTensor(tensor.dtype, tensor.shape, Array.from(await tensor.data()))),
  );
  return oracleFor(
    traced,
    { axes: [] },
    [...captured, ...given].map((tensor) => [tensor]),
    { joinsOps: true },
  );
}
