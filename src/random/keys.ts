import { traceKey } from "../ir/ambient.js";
import { describe } from "../ir/describe.js";
import { type DType, isInteger, isUnsigned, needDType } from "../ir/dtype.js";
import { DTypeError, InternalError, ShapeError, ValueError } from "../ir/errors.js";
import type { Program } from "../ir/program.js";
import { at, formatType, rowMajorStrides, type Shape, sizeOf } from "../ir/shape.js";
import { type ShapeLike, toShape } from "../numpy/operands.js";
import { asOneCall, callProgram, isTracing, type Traced, traceFlat } from "../trace/builder.js";
import { typesKey } from "../trace/opKey.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import { currentRuntime } from "../trace/runtime.js";
import { Tensor } from "../trace/tensor.js";

/**
 * A key made from a seed. A key is a `uint32[2]` tensor that fixes everything drawn with it: use it once, and
 * make new ones of it with {@link split} or {@link foldIn}.
 *
 * ```ts
 * const weights = random.normal(random.key(0), [4, 8]);
 * ```
 *
 * @param seed an integer, of which the lowest 32 bits count, or a scalar integer tensor
 *
 * @example
 * ```ts
 * random.key(7); // [0, 7]
 * ```
 */
export function key(seed: number | Tensor): Tensor {
  if (typeof seed === "number") {
    if (!Number.isSafeInteger(seed)) {
      throw new ValueError(`[random.key] seed ${seed} is not an integer from -(2^53 - 1) to 2^53 - 1`);
    }
    const low = Number(BigInt.asUintN(32, BigInt(seed)));
    if (!isTracing()) return Tensor.fromHost({ dtype: "uint32", shape: [2] }, Uint32Array.of(0, low));
    return joinWords(Tensor.scalar(0, "uint32"), Tensor.scalar(low, "uint32"));
  }
  const low = asWord(seed, "random.key", "seed");
  return atOnce([low], (word) => joinWords(Tensor.scalar(0, "uint32"), word));
}

/**
 * Several new keys from one.
 *
 * @param num how many, or the shape in which they are arranged
 * @returns a `uint32[num, 2]` tensor, one key in every row
 *
 * @example
 * ```ts
 * random.split(random.key(0)); // [[1797259609, 2579123966], [928981903, 3453687069]]
 * ```
 */
export function split(parent: Tensor, num: ShapeLike = 2): Tensor {
  checkKey(parent, "random.split");
  const shape = drawnShape(num, "random.split");
  const draw = (words: Tensor) => {
    const [first, second] = hash(words, shape);
    const column = [...shape, 1];
    return ops.concatenate([ops.reshape(first, column), ops.reshape(second, column)], shape.length);
  };
  return atOnce([parent], draw, `random.split [${shape}]`);
}

/**
 * Returns the same key; marks in a program that it is reused on purpose.
 *
 * @example
 * ```ts
 * const key = random.key(0);
 * np.arrayEqual(random.normal(key, [2]), random.normal(random.clone(key), [2])); // true
 * ```
 */
export function clone(parent: Tensor): Tensor {
  checkKey(parent, "random.clone");
  return parent;
}

/**
 * A new key from a key and a number, such as the number of a step or a device. @param data 0 … 2³² − 1
 *
 * @example
 * ```ts
 * random.foldIn(random.key(0), 3); // [2467461003, 3840466878]
 * ```
 */
export function foldIn(parent: Tensor, data: number | Tensor): Tensor {
  checkKey(parent, "random.foldIn");
  if (typeof data === "number" && !(Number.isInteger(data) && data >= 0 && data < 2 ** 32)) {
    throw new ValueError(`[random.foldIn] data ${data} is not an integer from 0 to 2^32 - 1`);
  }
  const word = typeof data === "number" ? newWord(data) : asWord(data, "random.foldIn", "data");
  const hashed = (words: Tensor, counter: Tensor) =>
    joinWords(...ops.threefry2x32(wordOf(words, 0), wordOf(words, 1), Tensor.scalar(0, "uint32"), counter));
  return atOnce([parent, word], hashed, "random.foldIn");
}

/**
 * Uniformly distributed bits as numbers of an unsigned type, uint32 by default.
 *
 * @example
 * ```ts
 * random.bits(random.key(0), [2]); // [4070199207, 4202968722]
 * ```
 */
export function bits(parent: Tensor, shape: ShapeLike = [], dtype: DType = "uint32"): Tensor {
  checkKey(parent, "random.bits");
  const sizes = drawnShape(shape, "random.bits");
  needDType(dtype, "random.bits");
  if (!isUnsigned(dtype)) {
    throw new DTypeError(`[random.bits] gives uint8, uint16 or uint32, not ${dtype}: use random.randint`);
  }
  const drawn = (words: Tensor) => ops.convert(randomWords(words, sizes), dtype);
  return atOnce([parent], drawn, `random.bits ${dtype}[${sizes}]`);
}

/** {@link bits} without checks, for samplers. */
export function randomWords(words: Tensor, shape: Shape): Tensor {
  return ops.xor(...hash(words, shape));
}

/** 64 random bits per element, as the higher and the lower 32. */
export function hash(words: Tensor, shape: Shape): [Tensor, Tensor] {
  const spread = (i: number) => ops.broadcastInDim(wordOf(words, i), shape, []);
  return ops.threefry2x32(spread(0), spread(1), Tensor.scalar(0, "uint32"), counters(shape));
}

/** Numbers the elements in row-major order, dim by dim, so that every block of a split tensor knows its own. */
function counters(shape: Shape): Tensor {
  const strides = rowMajorStrides(shape);
  const parts = shape.flatMap((n, d) => {
    if (n === 1) return [];
    const steps = ops.iota("uint32", shape, d);
    return [at(strides, d) === 1 ? steps : ops.mul(steps, at(strides, d))];
  });
  const [first, ...rest] = parts;
  return first ? rest.reduce((sum, part) => ops.add(sum, part), first) : ops.full(shape, 0, "uint32");
}

function wordOf(words: Tensor, index: number): Tensor {
  return ops.reshape(ops.sliceDim(words, 0, index, index + 1), []);
}

function joinWords(first: Tensor, second: Tensor): Tensor {
  return ops.concatenate([ops.broadcastInDim(first, [1], []), ops.broadcastInDim(second, [1], [])], 0);
}

/** A number as an operand. Outside of traced functions it is not a constant: each would need its own program. */
function newWord(value: number): Tensor {
  if (isTracing()) return Tensor.scalar(value, "uint32");
  return Tensor.fromHost({ dtype: "uint32", shape: [] }, Uint32Array.of(value));
}

function asWord(value: Tensor, caller: string, what: string): Tensor {
  needTensor(value, what, caller);
  if (value.ndim !== 0 || !isInteger(value.dtype)) {
    throw new ValueError(
      `[${caller}] ${what} must be an integer or an integer scalar, not ${formatType(value.type)}; use vmap for several`,
    );
  }
  return ops.convert(value, "uint32");
}

/** Checks that a tensor is one key. */
export function checkKey(parent: Tensor, caller: string): void {
  if (!(parent instanceof Tensor)) {
    throw new ValueError(
      `[${caller}] expects a key, got ${describe(parent)}: make a key with random.key(seed)`,
    );
  }
  const { dtype, shape } = parent.type;
  if (dtype === "uint32" && shape.length === 1 && shape[0] === 2) return;
  const several = dtype === "uint32" && shape.length > 1 && shape.at(-1) === 2;
  const advice = several ? "use vmap to work with several keys" : "make a key with random.key(seed)";
  throw new ValueError(`[${caller}] expects one key, u32[2], not ${formatType(parent.type)}: ${advice}`);
}

/** Checks a shape that the user gave. */
export function drawnShape(shape: ShapeLike, caller: string): Shape {
  const sizes = toShape(shape, caller);
  if (sizeOf(sizes) > 2 ** 32) {
    throw new ShapeError(`[${caller}] shape [${sizes}] has more than 2^32 elements: draw it in parts`);
  }
  return sizes;
}

/**
 * Runs `fn` on tensors as one program instead of op by op; inside a traced function it is recorded there.
 * Scalar constants stay constants.
 *
 * @param what identifies `fn` up to types and constants, so that it is traced only once
 */
export function atOnce<A extends readonly Tensor[]>(
  ins: readonly [...A],
  fn: (...ins: A) => Tensor,
  what?: string,
): Tensor {
  if (isTracing()) return asOneCall(() => fn(...ins));
  const isConstant = (tensor: Tensor) => tensor.node.kind === "literal";
  const operands = ins.filter((tensor) => !isConstant(tensor));
  const trace = () =>
    traceFlat(
      (args) => {
        const rest = args.values();
        const all: readonly Tensor[] = ins.map((tensor) =>
          isConstant(tensor) ? tensor : (rest.next().value ?? tensor),
        );
        return [fn(...(all as A))];
      },
      operands.map(({ type }) => type),
    );
  if (what !== undefined) {
    return at(
      currentRuntime().run(`${what}${typesKey(ins)} ${traceKey()}`, () => closed(trace(), what), operands),
      0,
    );
  }
  const { program, captures } = trace();
  return at(callProgram(program, [...captures, ...operands]), 0);
}

/** The program of a function that reads nothing but its arguments: captured values would be cached with it. */
function closed({ program, captures }: Traced, what: string): Program {
  if (captures.length > 0) throw new InternalError(`[${what}] reads ${captures[0]} besides its arguments`);
  return program;
}
