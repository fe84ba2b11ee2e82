import { byteSize, type DType, type HostData, viewHost } from "../../ir/dtype.js";
import { range, type Shape, sizeOf } from "../../ir/shape.js";

/** The order that undoes a permutation. */
export function inverse(permutation: readonly number[]): number[] {
  return permutation.map((_, dim) => permutation.indexOf(dim));
}

/** The shape with its dims in another order: dim `i` of the result is dim `permutation[i]`. */
export function permuteShape(shape: Shape, permutation: readonly number[]): number[] {
  return permutation.map((dim) => shape[dim] ?? 1);
}

/** The elements of an array with its dims in another order, bit for bit. */
export function permuteHost(
  dtype: DType,
  data: HostData,
  shape: Shape,
  permutation: readonly number[],
): HostData {
  const bytes = byteSize(dtype);
  // Elements are copied as integers, because copying floats may change the bits of a NaN; those of 8 bytes as two of 4.
  const words = bytes === 8 ? 2 : 1;
  const from = wordsOf(data, bytes / words);
  const to = from.slice();
  const sizes = [...permuteShape(shape, permutation), words];
  const strides = [...permutation.map((dim) => words * sizeOf(shape.slice(dim + 1))), 1];
  // Plain loops copy the last two dims; a counter iterates over the dims before them.
  const [rows = 1, columns = 1] = sizes.slice(-2);
  const [rowStride = 1, columnStride = 1] = strides.slice(-2);
  const outer = sizes.slice(0, -2);
  const index = outer.map(() => 0);
  let source = 0;
  for (let target = 0; target < to.length; ) {
    for (let row = 0; row < rows; row++) {
      const start = source + row * rowStride;
      for (let column = 0; column < columns; column++)
        to[target++] = from[start + column * columnStride] ?? 0;
    }
    for (const dim of range(outer.length).reverse()) {
      const next = (index[dim] ?? 0) + 1;
      const stride = strides[dim] ?? 0;
      if (next < (outer[dim] ?? 1)) {
        index[dim] = next;
        source += stride;
        break;
      }
      index[dim] = 0;
      source -= (next - 1) * stride;
    }
  }
  return viewHost(dtype, to.buffer);
}

function wordsOf({ buffer, byteOffset, byteLength }: HostData, bytes: number) {
  if (bytes === 1) return new Uint8Array(buffer, byteOffset, byteLength);
  if (bytes === 2) return new Uint16Array(buffer, byteOffset, byteLength / 2);
  return new Uint32Array(buffer, byteOffset, byteLength / 4);
}
