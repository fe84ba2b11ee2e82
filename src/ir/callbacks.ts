import { need } from "./arguments.js";
import type { HostData } from "./dtype.js";
import { ShapeError } from "./errors.js";
import { newCounter } from "./identity.js";
import { at, formatType, sizeOf, type TensorType } from "./shape.js";

/** Elements that a program passes to a host callback. */
export interface HostValue {
  readonly type: TensorType;
  readonly data: HostData;
}

/** What a host callback does with the operands of an equation: returns the elements of results of these types. */
export type HostCall = (ins: readonly HostValue[], results: readonly TensorType[]) => readonly HostData[];

const nextLabel = newCounter();
const registered = new Map<string, WeakRef<HostFunction>>();
const forgotten = new FinalizationRegistry<string>((label) => registered.delete(label));

/**
 * A host callback that programs call. Programs are data and hold it as such: by a label that no other function of this
 * process ever has, which is what their printed form and cache keys show. A program keeps its functions alive; the
 * label goes with the last program that refers to it.
 */
export class HostFunction {
  /** The name and a unique number, such as `print#3`. */
  readonly label: string;

  constructor(
    readonly name: string,
    readonly call: HostCall,
  ) {
    this.label = `${name}#${nextLabel()}`;
    registered.set(this.label, new WeakRef(this));
    forgotten.register(this, this.label);
  }

  /** The function of a label, if this process has one. */
  static labelled(label: string): HostFunction | undefined {
    return registered.get(label)?.deref();
  }

  /** Its form in cache keys. */
  toJSON(): string {
    return this.label;
  }
}

/**
 * Calls a host callback and checks its results: each must have as many elements as its type.
 *
 * @example
 * ```ts
 * const double = { name: "double", call: ([{ data }]) => [data.map((x) => 2 * x)] };
 * const type = { dtype: "float32", shape: [2] };
 * Array.from(engines.callHost(double, [engines.hostTensor("float32", [2], [1, 2])], [type])[0]); // [2, 4]
 * ```
 */
export function callHost(
  fn: HostFunction,
  ins: readonly HostValue[],
  results: readonly TensorType[],
): readonly HostData[] {
  need("object", fn, "fn", "callHost");
  need("function", fn.call, "fn.call", "callHost");
  need("list", ins, "ins", "callHost");
  need("list", results, "results", "callHost");
  const outs = fn.call(ins, results);
  need("list", outs, "the results", fn.name);
  if (outs.length !== results.length) {
    throw new ShapeError(
      `[${fn.name}] the callback returned ${outs.length} results instead of ${results.length}`,
    );
  }
  results.forEach((type, i) => {
    const { length } = at(outs, i);
    if (length === sizeOf(type.shape)) return;
    throw new ShapeError(
      `[${fn.name}] result ${i} has ${length} elements, ${formatType(type)} has ${sizeOf(type.shape)}`,
    );
  });
  return outs;
}
