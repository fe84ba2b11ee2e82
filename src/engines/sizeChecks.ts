import { need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { allocateHost, type HostData } from "../ir/dtype.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { forEachEqn, type Program } from "../ir/program.js";
import { formatType, sizeOf, type TensorType } from "../ir/shape.js";

/** Largest number of elements that the counters of kernels can hold. */
const maxElements = 2 ** 34;

/** Throws if a program has a value with more elements than kernels can count. */
export function checkSizes(program: Program): void {
  forEachEqn(program, ({ op, outs, source }) => {
    const large = outs.find(({ type }) => sizeOf(type.shape) > maxElements);
    if (large === undefined) return;
    const where = source ? ` at ${source.text}` : "";
    throw new ShapeError(
      `[compile] ${op}${where} gives ${formatType(large.type)} of ${sizeOf(large.type.shape)} elements, more than 2^34: split it into parts`,
    );
  });
}

/**
 * Throws unless an array has the element kind and the number of elements of a type.
 *
 * @example
 * ```ts
 * engines.checkHostData({ dtype: "float32", shape: [2] }, Float32Array.of(1, 2), "example"); // undefined
 * ```
 */
export function checkHostData(type: TensorType, data: HostData, caller: string): void {
  need("object", type, "type", "checkHostData");
  need("string", caller, "caller", "checkHostData");
  need("bytes", data, "the data", caller);
  const expected = allocateHost(type.dtype, 0).constructor;
  if (data.length === sizeOf(type.shape) && data.constructor === expected) return;
  throw new ShapeError(
    `[${caller}] ${formatType(type)} needs a ${expected.name} of ${sizeOf(type.shape)} elements, ` +
      `not a ${data.constructor.name} of ${data.length}`,
  );
}

/** More devices than any machine could simulate. */
const maxDevices = 2 ** 16;

/** Throws unless an engine can have this number of devices. */
export function checkDeviceCount(numDevices: number, caller: string, most = maxDevices): void {
  if (Number.isInteger(numDevices) && numDevices >= 1 && numDevices <= most) return;
  throw new ValueError(
    `[${caller}] numDevices must be an integer from 1 to ${most}, not ${describe(numDevices)}`,
  );
}
