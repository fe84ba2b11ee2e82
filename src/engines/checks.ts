import { allocateHost, type HostData } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import { formatType, sizeOf, type TensorType } from "../ir/shape.js";

/** Throws unless an array has the kind and the number of elements of a type. */
export function checkHostData(type: TensorType, data: HostData, caller: string): void {
  const expected = allocateHost(type.dtype, 0).constructor;
  if (data.length === sizeOf(type.shape) && data.constructor === expected) return;
  throw new ShapeError(
    `[${caller}] ${formatType(type)} needs a ${expected.name} of ${sizeOf(type.shape)} elements, ` +
      `not a ${data.constructor.name} of ${data.length}`,
  );
}
