import { type DType, decode, encode, type HostData } from "../ir/dtype.js";
import { ShapeError, TracerError } from "../ir/errors.js";
import { type Atom, type Literal, newLiteral } from "../ir/program.js";
import { formatType, type Shape, sizeOf, type TensorType } from "../ir/shape.js";
import type { Builder } from "./builder.js";
import { formatElements, type Nested, nestElements } from "./format.js";
import { currentRuntime } from "./runtime.js";
import { onDevice, place, type Storage } from "./storage.js";

/** What stands behind a tensor: a scalar constant, a value of a program being traced, or memory on devices. */
export type TensorNode =
  | { readonly kind: "literal"; readonly literal: Literal }
  | { readonly kind: "traced"; readonly builder: Builder; readonly atom: Atom }
  | { readonly kind: "array"; readonly storage: Storage };

export type { Nested } from "./format.js";

/** The elements of a tensor as users see them: bfloat16 and float16 are widened. */
export type TensorData = ReturnType<typeof decode>;

/**
 * A multi-dimensional array. While a function is traced its tensors are placeholders; otherwise they hold
 * memory on an engine's devices, which is given back by the garbage collector, by `dispose()` or by `using`.
 *
 * The array methods (`add`, `sum`, `reshape`, …) are those of `np` with this tensor as first argument.
 */
export class Tensor {
  readonly type: TensorType;
  /** @internal */
  readonly node: TensorNode;

  private constructor(type: TensorType, node: TensorNode) {
    this.type = type;
    this.node = node;
  }

  /** @internal */
  static traced(builder: Builder, atom: Atom): Tensor {
    return new Tensor(atom.type, { kind: "traced", builder, atom });
  }

  /** @internal */
  static literal(literal: Literal): Tensor {
    return new Tensor(literal.type, { kind: "literal", literal });
  }

  /** @internal A scalar constant that is written into programs as a number. */
  static scalar(value: number | boolean, dtype: DType): Tensor {
    return Tensor.literal(newLiteral(value, dtype));
  }

  /** @internal */
  static stored(storage: Storage): Tensor {
    const tensor = new Tensor(storage.type, { kind: "array", storage });
    storage.heldBy(tensor);
    return tensor;
  }

  /** @internal A tensor on the host engine. */
  static fromHost(type: TensorType, data: HostData): Tensor {
    return Tensor.stored(place(onDevice(currentRuntime().hostEngine), type, data));
  }

  /** The sizes of the dimensions. */
  get shape(): Shape {
    return this.type.shape;
  }

  /** The type of the elements. */
  get dtype(): DType {
    return this.type.dtype;
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
    throw new TracerError(
      "traced-value",
      `[${caller}] ${this} is a placeholder while its function is being traced and has no values yet: ` +
        "compute with it inside the function, and read values from what the function returns",
    );
  }

  /** The elements in row-major order, once they are computed. */
  async data(): Promise<TensorData> {
    const host = await this.storage("Tensor.data").download("Tensor.data");
    return decode(this.dtype, host);
  }

  /** The elements as nested arrays of numbers (booleans for bool). */
  async js(): Promise<Nested> {
    const data = await this.data();
    return nestElements(this.shape, (i) => (this.dtype === "bool" ? data[i] !== 0 : (data[i] ?? 0)));
  }

  /** The value of a tensor of one element as a number. */
  async item(): Promise<number> {
    const storage = this.storage("Tensor.item");
    if (this.size !== 1) {
      throw new ShapeError(`[Tensor.item] ${this} has ${this.size} elements: use data() or js()`);
    }
    const [value] = decode(this.dtype, await storage.download("Tensor.item"));
    return value ?? 0;
  }

  /** Waits until the values are computed; throws what went wrong while computing them. */
  async ready(): Promise<this> {
    await this.storage("Tensor.ready").ready("Tensor.ready");
    return this;
  }

  /** Gives the memory back now instead of when the tensor is collected. */
  dispose(): void {
    if (this.node.kind !== "array") return;
    this.node.storage.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** The type and kind, such as `Tensor f32[4,8]`; values are read with `await tensor.js()`. */
  toString(): string {
    return `Tensor ${formatType(this.type)}${this.node.kind === "traced" ? " (traced)" : ""}`;
  }

  [Symbol.toPrimitive](hint: string): string {
    if (hint === "string") return this.toString();
    throw new TracerError(
      "traced-value",
      `${this} was used as a JavaScript number: use tensor arithmetic (x.add(y), np.where, lax.cond), or \`await x.item()\` outside of traced functions`,
    );
  }

  /** What `console.log` shows: the type, and the values where they can be read without waiting. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    const values = this.shownValues();
    if (values === undefined) return this.toString();
    return `${this.toString()}${values.includes("\n") ? "\n" : " "}${values}`;
  }

  private shownValues(): string | undefined {
    const { node } = this;
    if (node.kind === "literal") return String(node.literal.value);
    if (node.kind === "traced" || node.storage.released || !node.storage.hasValues) return undefined;
    const host = node.storage.peek("Tensor");
    if (host === undefined) return "(being computed: await it.ready())";
    const data = decode(this.dtype, host);
    return formatElements(this.shape, (i) => (this.dtype === "bool" ? data[i] !== 0 : (data[i] ?? 0)));
  }
}

function materialize(literal: Literal): Storage {
  const { hostEngine } = currentRuntime();
  const { dtype } = literal.type;
  const data = encode(dtype, [literal.value]);
  return place(onDevice(hostEngine), literal.type, data);
}
