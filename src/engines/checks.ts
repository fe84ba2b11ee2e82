import { allocateHost, type HostData } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import { forEachEqn, type Program } from "../ir/program.js";
import { formatType, sizeOf, type TensorType } from "../ir/shape.js";

/** Beyond this, counts of kernels overflow. */
const maxElements = 2 ** 34;

/** Throws when a program computes something of more elements than kernels can count. */
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

/** Throws unless an array has the kind and the number of elements of a type. */
export function checkHostData(type: TensorType, data: HostData, caller: string): void {
  const expected = allocateHost(type.dtype, 0).constructor;
  if (data.length === sizeOf(type.shape) && data.constructor === expected) return;
  throw new ShapeError(
    `[${caller}] ${formatType(type)} needs a ${expected.name} of ${sizeOf(type.shape)} elements, ` +
      `not a ${data.constructor.name} of ${data.length}`,
  );
}
