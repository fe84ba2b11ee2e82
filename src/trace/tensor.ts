/// <reference lib="esnext.disposable" preserve="true" />
import { describe } from "../ir/describe.js";
import {
  allocateHost,
  complexType,
  type DType,
  decode,
  encode,
  type HostData,
  isComplex,
  partType,
} from "../ir/dtype.js";
import { DTypeError, ShapeError, TracerError, ValueError } from "../ir/errors.js";
import { missingAxes, varyingAlong, varyingAxes } from "../ir/infer/varying.js";
import { type Atom, type Literal, newLiteral } from "../ir/program.js";
import { formatType, range, type Shape, sameType, sizeOf, strongType, type TensorType } from "../ir/shape.js";
import type { Builder } from "./builder.js";
import { Complex, partsOfNumber } from "./complexNumber.js";
import { digestOf } from "./digest.js";
import { type ElementValue, formatElements, maxElements, type Nested, nestElements } from "./format.js";
import { currentRuntime } from "./runtime.js";
import { onDevice, place, type Storage } from "./storage.js";

/**
 * What a tensor refers to: a scalar constant, a value of a program being traced, memory on devices, or for complex
 * numbers two tensors of floats.
 */
export type TensorNode =
  | { readonly kind: "literal"; readonly literal: Literal }
  | { readonly kind: "traced"; readonly builder: Builder; readonly atom: Atom }
  | { readonly kind: "array"; readonly storage: Storage }
  | { readonly kind: "complex"; readonly parts: Parts };

/** The real and the imaginary parts of complex numbers. */
export type Parts = readonly [real: Tensor, imag: Tensor];

export type { Nested } from "./format.js";

/** The elements of a tensor as users see them: bfloat16 and float16 are widened, complex ones are pairs of numbers. */
export type TensorData = ReturnType<typeof decode>;

/**
 * A multi-dimensional array. While a function is traced its tensors are placeholders; otherwise they hold memory on an
 * engine's devices, which is released by the garbage collector, by `dispose()` or by `using`.
 *
 * The array methods (`add`, `sum`, `reshape`, …) are those of `np` with this tensor as first argument.
 */
export class Tensor {
  /** The type of the elements. */
  readonly dtype: DType;
  /** The sizes of the dimensions. */
  readonly shape: Shape;
  readonly #type: TensorType;
  readonly #node: TensorNode;

  private constructor(type: TensorType, node: TensorNode) {
    // Only the type checker keeps others from calling this.
    if (typeof node !== "object" || typeof type !== "object" || type === null)
      throw new ValueError(
        "[Tensor] has no public constructor: make tensors with np.array, np.zeros and the like",
      );
    this.dtype = type.dtype;
    this.shape = type.shape;
    this.#type = type;
    this.#node = node;
    Object.defineProperty(this, "values", ownValues);
  }

  /** The data type and the shape, and what tracing knows besides; comparisons do not see the latter. */
  get type(): TensorType {
    return this.#type;
  }

  /** @internal */
  get node(): TensorNode {
    return this.#node;
  }

  /** @internal */
  static traced(builder: Builder, atom: Atom): Tensor {
    return new Tensor(atom.type, { kind: "traced", builder, atom });
  }

  /** @internal */
  static literal(literal: Literal): Tensor {
    return new Tensor(literal.type, { kind: "literal", literal });
  }

  /**
   * @internal A scalar constant that is written into programs as a number.
   *
   * @param weak whether it takes the float type of what it is combined with
   */
  static scalar(value: number | boolean | Complex, dtype: DType, weak = false): Tensor {
    if (isComplex(dtype)) {
      const [re, im] = partsOfNumber(value);
      return Tensor.complex(Tensor.scalar(re, partType(dtype)), Tensor.scalar(im, partType(dtype)));
    }
    if (value instanceof Complex) throw new DTypeError(`${value} is not a valid ${dtype}: use "complex64"`);
    const literal = newLiteral(value, dtype);
    return Tensor.literal(weak ? { ...literal, type: { ...literal.type, weak } } : literal);
  }

  /** @internal */
  static stored(storage: Storage): Tensor {
    const tensor = new Tensor(storage.type, { kind: "array", storage });
    storage.heldBy(tensor);
    return tensor;
  }

  /** @internal A tensor on the host engine. */
  static fromHost(type: TensorType, data: HostData): Tensor {
    const { dtype, shape } = type;
    if (isComplex(dtype)) {
      const part = (k: number) =>
        Tensor.fromHost({ dtype: partType(dtype), shape }, everySecond(data, partType(dtype), k));
      return Tensor.complex(part(0), part(1));
    }
    return Tensor.stored(place(onDevice(currentRuntime().hostEngine), type, data));
  }

  /** @internal Complex numbers of two tensors of float32 or float64. */
  static complex(real: Tensor, imag: Tensor): Tensor {
    if (!(real instanceof Tensor) || !(imag instanceof Tensor)) {
      throw new DTypeError(
        `complex numbers are made of two tensors, got ${describe(real)} and ${describe(imag)}`,
      );
    }
    const { dtype } = real;
    if (!sameType(real.type, imag.type) || partType(complexType(dtype)) !== dtype) {
      throw new DTypeError(
        `the parts of complex numbers must both be float32 or both float64, got ${formatType(real.type)} and ${formatType(imag.type)}`,
      );
    }
    const axes = varyingAxes(real.type);
    const type = varyingAlong(real.type, [...axes, ...missingAxes(axes, varyingAxes(imag.type))]);
    return new Tensor(
      { ...strongType(type), dtype: complexType(dtype) },
      { kind: "complex", parts: [real, imag] },
    );
  }

  /** @internal The two parts of complex numbers; undefined for other tensors. */
  get parts(): Parts | undefined {
    return this.node.kind === "complex" ? this.node.parts : undefined;
  }

  /** The number of dimensions. */
  get ndim(): number {
    return this.type.shape.length;
  }

  /** The number of elements. */
  get size(): number {
    return sizeOf(this.type.shape);
  }

  /** @internal The memory behind a concrete tensor; a scalar constant is given memory on first use. */
  storage(caller: string): Storage {
    const { node } = this;
    if (node.kind === "array") return node.storage;
    if (node.kind === "literal") return materialize(node.literal);
    if (node.kind === "complex") {
      throw new DTypeError(`[${caller}] does not take complex numbers, got ${this}: pass x.real and x.imag`);
    }
    throw new TracerError(
      "traced-value",
      `[${caller}] ${this} is a placeholder while its function is being traced and has no values yet: ` +
        "compute with it inside the function, and read values from what the function returns",
    );
  }

  /** The elements in row-major order, once they are computed; for complex numbers both parts alternate. */
  async data(): Promise<TensorData> {
    if (this.parts) {
      const [real, imag] = await Promise.all(this.parts.map((part) => part.data()));
      return interleaved(this.dtype, real ?? [], imag ?? []);
    }
    const host = await this.storage("Tensor.data").download("Tensor.data");
    return decode(this.dtype, host);
  }

  /** The elements as nested arrays of numbers (booleans for bool, {@link Complex} for complex numbers). */
  async js(): Promise<Nested> {
    return nestElements(this.shape, elementIn(this.dtype, await this.data()));
  }

  /** The value of a tensor of one element as a number; complex ones are read with `js()`. */
  async item(): Promise<number> {
    const storage = this.storage("Tensor.item");
    if (this.size !== 1) {
      throw new ShapeError(`[Tensor.item] ${this} has ${this.size} elements: use data() or js()`);
    }
    const [value] = decode(this.dtype, await storage.download("Tensor.item"));
    return value ?? 0;
  }

  /** Waits until the values are computed; throws the error if computing them failed. */
  async ready(): Promise<this> {
    if (this.parts) await Promise.all(this.parts.map((part) => part.ready()));
    else await this.storage("Tensor.ready").ready("Tensor.ready");
    return this;
  }

  /** Releases the memory now instead of when the tensor is garbage-collected. */
  dispose(): void {
    if (this.parts) for (const part of this.parts) part.dispose();
    if (this.node.kind !== "array") return;
    this.node.storage.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** @internal The elements as `data()` gives them, synchronously: blocks the calling thread where the engine can. */
  dataNow(caller: string): TensorData {
    if (this.parts) {
      const [real, imag] = this.parts;
      return interleaved(this.dtype, real.dataNow(caller), imag.dataNow(caller));
    }
    const host = this.storage(caller).readNow(caller);
    if (host) return decode(this.dtype, host).slice();
    throw new ValueError(
      `[${caller}] the values of ${this} are on a device that cannot be read synchronously: use what \`await x.js()\` or \`await x.data()\` returns`,
    );
  }

  /** What `JSON.stringify` writes: the elements as `js()` gives them, waiting for them on the calling thread. */
  toJSON(): Nested {
    return nestElements(this.shape, elementIn(this.dtype, this.dataNow("Tensor.toJSON")));
  }

  /** The type and kind, such as `Tensor f32[4,8]`; values are read with `await tensor.js()`. */
  toString(): string {
    const isTraced = [this, ...(this.parts ?? [])].some(({ node }) => node.kind === "traced");
    return `Tensor ${formatType(this.type)}${isTraced ? " (traced)" : ""}`;
  }

  /** In a template string a scalar is its value, as in `loss ${loss}`, where that can be read without waiting. */
  [Symbol.toPrimitive](hint: string): string {
    if (hint === "string") return this.ndim === 0 ? this.#shown() : this.toString();
    throw new TracerError(
      "traced-value",
      `${this} was used as a JavaScript number: use tensor arithmetic (x.add(y), np.where, lax.cond), or \`await x.item()\` outside of traced functions`,
    );
  }

  /** What `console.log` shows: the type, and the values where they can be read without waiting. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.#shown();
  }

  #shown(): string {
    const values = this.#shownValues();
    if (values === undefined) return this.toString();
    return `${this.toString()}${values.includes("\n") ? "\n" : " "}${values}`;
  }

  /** What Jest copies of a tensor for its report, so that it does not evaluate getters such as `mT`. */
  get [Symbol.for("@jest/serializableProperties")](): readonly string[] {
    return ["dtype", "shape", "values"];
  }

  #shownValues(): string | undefined {
    const { node } = this;
    if (node.kind === "literal") return String(node.literal.value);
    const data = this.#shownData();
    if (data === undefined || typeof data === "string") return data;
    return formatElements(this.shape, elementIn(this.dtype, data));
  }

  /** The elements if they can be read, what to show while they are computed, or undefined if there are none. */
  #shownData(): TensorData | string | undefined {
    const { node } = this;
    if (node.kind === "literal") return decode(this.dtype, encode(this.dtype, [node.literal.value]));
    if (node.kind === "complex") {
      const [real, imag] = node.parts.map((part) => part.#shownData());
      if (real === undefined || typeof real === "string") return real;
      return imag === undefined || typeof imag === "string" ? imag : interleaved(this.dtype, real, imag);
    }
    if (node.kind === "traced" || !node.storage.hasValues) return undefined;
    if (node.storage.released) return "(released)";
    try {
      const host = node.storage.peek("Tensor");
      return host === undefined ? "(being computed: await it.ready())" : decode(this.dtype, host);
    } catch (error) {
      // Printing a tensor must not fail because its engine was closed or failed: that is what is being debugged.
      return `(${error instanceof Error ? error.message : error})`;
    }
  }
}

/**
 * What makes tensors with equal values equal, and others different, for everything that reads own enumerable
 * properties of objects, next to `dtype` and `shape`: the comparisons of test libraries, `structuredClone` and
 * `postMessage`. Without it all tensors of a type would look alike, as their values are private.
 */
const ownValues: PropertyDescriptor & ThisType<Tensor> = {
  enumerable: true,
  get() {
    const { node } = this;
    if (node.kind === "array" && !node.storage.hasValues) return null;
    const data = this.dataNow("Tensor");
    return this.size > maxElements ? tokenOf(this.shape, this.dtype, data) : data;
  },
};

/** The most recently used tokens of {@link tokenOf}. */
const recentTokens = new Map<string, symbol>();

/** More than a comparison needs at a time. */
const numRecentTokens = 64;

/** Loops over elements look these up once: under Jest each use of a global takes a microsecond. */
const { isNaN: isNan, NaN: nan } = Number;

/**
 * Stands for many elements in a comparison, where each would take microseconds and a line of the diff: a symbol that is
 * the same for the same elements. Symbols cannot be cloned, so no clone can lack the elements.
 */
function tokenOf(shape: Shape, dtype: DType, data: TensorData): symbol {
  // NaN has many bit patterns, which comparisons treat as one.
  for (let i = 0; i < data.length; i++) if (isNan(data[i])) data[i] = nan;
  const shown = formatElements(shape, elementIn(dtype, data)).replace(/\s+/g, " ");
  const text = `${data.length} elements, digest ${digestOf(data)}, read by \`await x.data()\`: ${shown}`;
  const token = recentTokens.get(text) ?? Symbol(text);
  recentTokens.delete(text);
  recentTokens.set(text, token);
  for (const oldest of recentTokens.keys()) {
    if (recentTokens.size <= numRecentTokens) break;
    recentTokens.delete(oldest);
  }
  return token;
}

/** Every second element, from the first or the second on. */
function everySecond(data: HostData, dtype: DType, first: number): HostData {
  const part = allocateHost(dtype, data.length / 2);
  for (let i = 0; i < part.length; i++) part[i] = data[2 * i + first] ?? 0;
  return part;
}

/** The interleaved parts of complex numbers. */
function interleaved(dtype: DType, real: ArrayLike<number>, imag: ArrayLike<number>): TensorData {
  return decode(
    dtype,
    encode(
      dtype,
      range(2 * real.length).map((i) => (i % 2 === 0 ? real : imag)[Math.floor(i / 2)] ?? 0),
    ),
  );
}

/** How the element at a row-major index is shown. */
export function elementIn(dtype: DType, data: ArrayLike<number>): (index: number) => ElementValue {
  if (isComplex(dtype)) return (i) => new Complex(data[2 * i] ?? 0, data[2 * i + 1] ?? 0);
  return (i) => (dtype === "bool" ? data[i] !== 0 : (data[i] ?? 0));
}

function materialize(literal: Literal): Storage {
  const { hostEngine } = currentRuntime();
  const { dtype } = literal.type;
  const data = encode(dtype, [literal.value]);
  return place(onDevice(hostEngine), literal.type, data);
}
