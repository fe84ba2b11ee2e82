import { allocateHost, type HostData } from "../../ir/dtype.js";
import { at, rowMajorStrides, type Shape, sameNumbers, sizeOf, tensorType } from "../../ir/shape.js";
import { type HostTensor, zeros } from "./hostTensor.js";

/** Which elements of a row-major array a loop over dims visits: where it starts and its step along each dim. */
export interface Strided {
  readonly offset: number;
  readonly strides: readonly number[];
}

/** Elements as raw bits: one kind of array per width, so that copying is exact and loops stay monomorphic. */
type Bits = Uint8Array | Uint16Array | Int32Array | Float64Array;

function bitsOf(data: HostData): Bits {
  const { buffer, byteOffset, length } = data;
  if (data instanceof Float32Array || data instanceof Uint32Array)
    return new Int32Array(buffer, byteOffset, length);
  if (data instanceof Int16Array) return new Uint16Array(buffer, byteOffset, length);
  return data instanceof Int8Array ? new Uint8Array(buffer, byteOffset, length) : data;
}

/** The window on a block of a tensor: it begins at `starts` and steps by `steps` along each dim. */
export function windowAt(shape: Shape, starts: readonly number[], steps?: readonly number[]): Strided {
  const strides = rowMajorStrides(shape);
  return {
    offset: strides.reduce((offset, stride, d) => offset + stride * at(starts, d), 0),
    strides: steps ? strides.map((stride, d) => stride * at(steps, d)) : strides,
  };
}

/** Copies a block of the given shape from one window to another. */
export function copyWindow(
  shape: Shape,
  source: HostData,
  from: Strided,
  target: HostData,
  to: Strided,
): void {
  if (sizeOf(shape) === 0) return;
  const [input, output] = [bitsOf(source), bitsOf(target)];
  const last = shape.length - 1;
  if (last < 0) {
    output[to.offset] = input[from.offset] as number;
    return;
  }
  const [length, fromStep, toStep] = [at(shape, last), at(from.strides, last), at(to.strides, last)];
  const copyFrom = (dim: number, fromStart: number, toStart: number): void => {
    if (dim === last) {
      for (let i = 0; i < length; i++)
        output[toStart + i * toStep] = input[fromStart + i * fromStep] as number;
      return;
    }
    const [fromStride, toStride] = [at(from.strides, dim), at(to.strides, dim)];
    for (let i = 0; i < at(shape, dim); i++) {
      copyFrom(dim + 1, fromStart + i * fromStride, toStart + i * toStride);
    }
  };
  copyFrom(0, from.offset, to.offset);
}

/** A tensor of the elements that a window on `x` selects. */
export function readWindow(x: HostTensor, shape: Shape, window: Strided): HostTensor {
  const data = allocateHost(x.type.dtype, sizeOf(shape));
  copyWindow(shape, x.data, window, data, { offset: 0, strides: rowMajorStrides(shape) });
  return { type: tensorType(x.type.dtype, shape), data };
}

/** Writes a whole tensor through a window on `target`; only for arrays that are still being filled. */
export function writeWindow(target: HostData, window: Strided, block: HostTensor): void {
  const { shape } = block.type;
  copyWindow(shape, block.data, { offset: 0, strides: rowMajorStrides(shape) }, target, window);
}

/** The block of `x` that begins at `starts`. */
export function readBlock(x: HostTensor, starts: readonly number[], shape: Shape): HostTensor {
  return sameNumbers(shape, x.type.shape) ? x : readWindow(x, shape, windowAt(x.type.shape, starts));
}

/** The tensor with its dims in another order. */
export function transposed(x: HostTensor, permutation: readonly number[]): HostTensor {
  if (permutation.every((p, i) => p === i)) return x;
  const strides = rowMajorStrides(x.type.shape);
  const shape = permutation.map((d) => at(x.type.shape, d));
  return readWindow(x, shape, { offset: 0, strides: permutation.map((d) => at(strides, d)) });
}

/** The tensors concatenated along `dim`. */
export function concatenated(blocks: readonly HostTensor[], dim: number): HostTensor {
  const first = at(blocks, 0);
  const total = blocks.reduce((size, { type }) => size + at(type.shape, dim), 0);
  const shape = first.type.shape.map((n, d) => (d === dim ? total : n));
  const result = zeros(tensorType(first.type.dtype, shape));
  let start = 0;
  for (const block of blocks) {
    const starts = shape.map((_, d) => (d === dim ? start : 0));
    writeWindow(result.data, windowAt(shape, starts), block);
    start += at(block.type.shape, dim);
  }
  return result;
}

/** The tensor cut along `dim` into `parts` blocks of one size. */
export function splitAlong(x: HostTensor, dim: number, parts: number): HostTensor[] {
  const shape = x.type.shape.map((n, d) => (d === dim ? n / parts : n));
  return Array.from({ length: parts }, (_, part) => {
    const starts = shape.map((n, d) => (d === dim ? part * n : 0));
    return readBlock(x, starts, shape);
  });
}
