/**
 * Views of tensors in files: which elements of a file a leaf has, in which order. A view is an offset and one stride for
 * each dim of the leaf, so transposed, split and fused tensors are read and written by the same two functions, and
 * a device's block is read without the rest.
 */
import {
  allocateHost,
  byteSize,
  decode,
  encode,
  type HostData,
  isFloat,
  viewHost,
} from "../../../ir/dtype.js";
import { TreeError } from "../../../ir/errors.js";
import { at, rowMajorStrides, type Shape, sizeOf } from "../../../ir/shape.js";
import type { HostPart } from "../../../trace/storage.js";
import { type ReadRange, withTensorFile } from "./safetensors.js";
import { arrayOf, bytesOf, type StoredDType, storedTypes } from "./safetensorsBytes.js";
import type { FoundTensors } from "./safetensorsFiles.js";
import type { StoredTensor } from "./safetensorsHeader.js";

/** Where the elements of a leaf are in files. */
export interface FileView {
  /** The tensors: one, or one for every index of the leaf's first `numStacked` dims, in row-major order. */
  readonly names: readonly string[];
  readonly numStacked: number;
  /** The shape of each of these tensors. */
  readonly fileShape: Shape;
  /** The element of the file's tensor where the view begins. */
  readonly offset: number;
  /** The distance in the file of neighbours along each dim of the leaf that is not stacked. */
  readonly strides: readonly number[];
}

/** The order that undoes a permutation. */
export function inverse(permutation: readonly number[]): number[] {
  return permutation.map((_, dim) => permutation.indexOf(dim));
}

/** The shape with its dims in another order: dim `i` of the result is dim `permutation[i]`. */
export function permuteShape(shape: Shape, permutation: readonly number[]): number[] {
  return permutation.map((dim) => shape[dim] ?? 1);
}

/** The view of a leaf whose dims have another order in the file: dim `i` there is dim `permutation[i]`. */
export function permutedView(names: readonly string[], shape: Shape, permutation: readonly number[]) {
  const fileShape = permuteShape(shape, permutation);
  const inFile = rowMajorStrides(fileShape);
  const strides = shape.map((_, dim) => at(inFile, permutation.indexOf(dim)));
  return { fileShape, offset: 0, strides, names };
}

/** The largest range that is read at once, in words. */
const maxRange = 2 ** 24;

/** How many words may be read for each one that is needed. */
const maxWaste = 4;

type Words = Uint8Array | Uint16Array | Uint32Array;

/** A run through memory: how often, and how far apart the elements are in the file and in the block. */
interface Loop {
  readonly count: number;
  readonly inFile: number;
  readonly inBlock: number;
}

/** Copies words by nested loops. */
function gather(
  loops: readonly Loop[],
  from: Words,
  to: Words,
  source: number,
  target: number,
  depth = 0,
): void {
  const loop = loops[depth];
  if (!loop) {
    to[target] = from[source] ?? 0;
    return;
  }
  const { count, inFile, inBlock } = loop;
  if (depth === loops.length - 1) {
    if (inFile === 1 && inBlock === 1) to.set(from.subarray(source, source + count), target);
    else for (let i = 0; i < count; i++) to[target + i * inBlock] = from[source + i * inFile] ?? 0;
    return;
  }
  for (let i = 0; i < count; i++)
    gather(loops, from, to, source + i * inFile, target + i * inBlock, depth + 1);
}

/** The loops over the words of a block of a view, the widest stride in the file first. */
function loopsOf(view: FileView, sizes: Shape, words: number): Loop[] {
  const inBlock = rowMajorStrides(sizes);
  const loops = view.strides
    .map((inFile, d) => ({ count: at(sizes, d), inFile: inFile * words, inBlock: at(inBlock, d) * words }))
    .filter(({ count }) => count !== 1)
    .sort((a, b) => b.inFile - a.inFile);
  return merged(words === 1 ? loops : [...loops, { count: words, inFile: 1, inBlock: 1 }]);
}

/** Fewer loops over the same words: a loop that continues where the one inside it ends is one with it. */
function merged(loops: readonly Loop[]): Loop[] {
  const fewer: Loop[] = [];
  for (const loop of loops) {
    const outer = fewer.at(-1);
    const isNext =
      outer && outer.inFile === loop.count * loop.inFile && outer.inBlock === loop.count * loop.inBlock;
    if (isNext) fewer.pop();
    fewer.push(isNext ? { ...loop, count: outer.count * loop.count } : loop);
  }
  return fewer;
}

/** Elements are copied as integers, because copying floats may change the bits of a NaN; those of 8 bytes as two of 4. */
function wordsOf({ buffer, byteOffset, byteLength }: HostData, bytesEach: number) {
  if (bytesEach === 1) return new Uint8Array(buffer, byteOffset, byteLength);
  if (bytesEach === 2) return new Uint16Array(buffer, byteOffset, byteLength / 2);
  return new Uint32Array(buffer, byteOffset, byteLength / 4);
}

/** Reads a block of one tensor of a file in ranges that contain little else. */
async function readLoops(
  loops: readonly Loop[],
  source: number,
  target: number,
  read: (start: number, end: number, target?: Words) => Promise<Words>,
  to: Words,
): Promise<void> {
  const needed = loops.reduce((n, { count }) => n * count, 1);
  const range = loops.reduce((n, { count, inFile }) => n + (count - 1) * inFile, 1);
  const [first, ...rest] = loops;
  if (first && rest.length === 0 && first.inFile === 1 && first.inBlock === 1) {
    await read(source, source + range, to.subarray(target, target + range));
    return;
  }
  if (!first || (range <= maxRange && range <= maxWaste * needed)) {
    gather(loops, await read(source, source + range), to, 0, target);
    return;
  }
  for (let i = 0; i < first.count; i++)
    await readLoops(rest, source + i * first.inFile, target + i * first.inBlock, read, to);
}

/**
 * Reads a block of a leaf, by default all of it.
 *
 * @param memory where its elements shall be; memory of its own by default
 * @param type the leaf's; elements of other float types are converted to its dtype
 */
export async function readView(
  view: FileView,
  { tensors }: Pick<FoundTensors, "tensors">,
  { dtype, shape }: { readonly dtype: StoredDType; readonly shape: Shape },
  part: HostPart = { shape, offsets: shape.map(() => 0) },
  memory: Uint8Array = new Uint8Array(sizeOf(part.shape) * byteSize(dtype)),
): Promise<HostData> {
  if (sizeOf(part.shape) === 0) return allocateHost(dtype, 0);
  const numTensors = sizeOf(part.shape.slice(0, view.numStacked));
  const stacked = part.shape.slice(0, view.numStacked);
  const inner = {
    shape: part.shape.slice(view.numStacked),
    offsets: part.offsets.slice(view.numStacked),
  };
  const blockBytes = memory.length / numTensors;
  for (let i = 0; i < numTensors; i++) {
    const found = tensors.get(at(view.names, stackedIndex(i, stacked, part.offsets, shape)));
    if (!found) throw new TreeError(`[readView] no file holds "${view.names[i]}"`);
    const block = memory.subarray(i * blockBytes, (i + 1) * blockBytes);
    await withTensorFile(found.file, (read) => readPart(view, found, read, inner, dtype, block));
  }
  return viewHost(dtype, memory.buffer, memory.byteOffset, memory.length / byteSize(dtype));
}

/** The row-major index in the whole leaf of the i-th stacked tensor of a block. */
function stackedIndex(i: number, sizes: Shape, offsets: readonly number[], shape: Shape): number {
  let [rest, index, scale] = [i, 0, 1];
  for (let d = sizes.length - 1; d >= 0; d--) {
    index += ((rest % at(sizes, d)) + at(offsets, d)) * scale;
    rest = Math.floor(rest / at(sizes, d));
    scale *= at(shape, d);
  }
  return index;
}

/** Reads a block of one tensor of a file. */
async function readPart(
  view: FileView,
  { file, tensor }: { readonly file: string; readonly tensor: StoredTensor },
  read: ReadRange,
  { shape, offsets }: HostPart,
  dtype: StoredDType,
  memory: Uint8Array,
): Promise<void> {
  const bytesEach = (tensor.end - tensor.start) / sizeOf(tensor.shape);
  const words = bytesEach === 8 ? 2 : 1;
  const wordBytes = bytesEach / words;
  const isConverted = tensor.type !== storedTypes[dtype];
  const block = isConverted ? new Uint8Array(sizeOf(shape) * bytesEach) : memory;
  const begin = offsets.reduce((sum, n, d) => sum + n * at(view.strides, d), view.offset);
  const readWords = async (start: number, end: number, target?: Words) => {
    const into = target && new Uint8Array(target.buffer, target.byteOffset, target.byteLength);
    const bytes = await read(tensor.start + start * wordBytes, tensor.start + end * wordBytes, into);
    return wordsOf(bytes, bytesEach);
  };
  const loops = loopsOf(view, shape, words);
  await readLoops(loops, begin * words, 0, readWords, wordsOf(block, bytesEach));
  const array = arrayOf(tensor, block, file);
  if (isConverted) memory.set(bytesOf(encode(dtype, Array.from(decode(array.dtype, array.data)))));
}

/** Whether elements of a file are converted when they are read into a leaf. */
export function isConvertible(from: string, to: StoredDType): boolean {
  return from === to || (isFloat(to) && ["float64", "float32", "bfloat16", "float16"].includes(from));
}

/** Writes the elements of a leaf, without its stacked dims, to their places in a tensor of a file. */
export function writeView(
  view: FileView,
  shape: Shape,
  dtype: StoredDType,
  data: HostData,
  to: HostData,
): void {
  const bytesEach = byteSize(dtype);
  const words = bytesEach === 8 ? 2 : 1;
  const loops = loopsOf(view, shape, words).map(({ count, inFile, inBlock }) => ({
    count,
    inFile: inBlock,
    inBlock: inFile,
  }));
  gather(loops, wordsOf(data, bytesEach), wordsOf(to, bytesEach), 0, view.offset * words);
}
