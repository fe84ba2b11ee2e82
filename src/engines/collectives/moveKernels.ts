import type { Combine } from "../../compiler/identities.js";
import type { AddressType } from "../../compiler/wasm/addresses.js";
import { ModuleBuilder, sharedMemory } from "../../compiler/wasm/assembler.js";
import { emitInterleaved, prepareProgram } from "../../compiler/wasm/emitInterleaved.js";
import { BASELINE_FEATURES } from "../../compiler/wasm/features.js";
import type { FunctionBody, Local } from "../../compiler/wasm/functionBody.js";
import { fromBfloat16, fromFloat16, toBfloat16, toFloat16 } from "../../compiler/wasm/math.js";
import type { LaneMemoryOp, MemoryOp, VectorOp } from "../../compiler/wasm/opcodes.js";
import { type Vec, VecBuilder } from "../../compiler/wasm/vectorProgram.js";
import { emitVectorLoad, emitVectorStore, STORAGE_BYTES } from "../../compiler/wasm/vectorStorage.js";
import { byteSize, type RealDType } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";

/** The element types that are combined as they are; the 16-bit floats go through float32. */
type Direct = Exclude<RealDType, "bfloat16" | "float16">;

const combineOps: { readonly [D in Direct]: { readonly [C in Combine]: VectorOp } } = {
  float32: { sum: "f32x4.add", max: "f32x4.max", min: "f32x4.min" },
  float64: { sum: "f64x2.add", max: "f64x2.max", min: "f64x2.min" },
  int8: { sum: "i8x16.add", max: "i8x16.max_s", min: "i8x16.min_s" },
  int16: { sum: "i16x8.add", max: "i16x8.max_s", min: "i16x8.min_s" },
  uint8: { sum: "i8x16.add", max: "i8x16.max_u", min: "i8x16.min_u" },
  uint16: { sum: "i16x8.add", max: "i16x8.max_u", min: "i16x8.min_u" },
  int32: { sum: "i32x4.add", max: "i32x4.max_s", min: "i32x4.min_s" },
  uint32: { sum: "i32x4.add", max: "i32x4.max_u", min: "i32x4.min_u" },
  bool: { sum: "v128.or", max: "v128.or", min: "v128.and" },
};

const conversions = {
  bfloat16: { widen: fromBfloat16, narrow: toBfloat16 },
  float16: { widen: fromFloat16, narrow: toFloat16 },
};

const elementAccess: { readonly [bytes: number]: readonly [load: MemoryOp, store: LaneMemoryOp] } = {
  1: ["v128.load8_splat", "v128.store8_lane"],
  2: ["v128.load16_splat", "v128.store16_lane"],
  4: ["v128.load32_zero", "v128.store32_lane"],
  8: ["v128.load64_zero", "v128.store64_lane"],
};

/** Addresses and sizes in bytes; an address above 2 GiB may be given as it is. */
export interface MoveKernels {
  /** Copies `bytes` bytes; the ranges may overlap. */
  copy(target: number, source: number, bytes: number): void;
  /** Copies `rows` rows of `bytes` bytes that lie `targetStride` and `sourceStride` apart. */
  copyRows(
    target: number,
    source: number,
    bytes: number,
    rows: number,
    targetStride: number,
    sourceStride: number,
  ): void;
  /** Sets `bytes` bytes to zero. */
  zero(target: number, bytes: number): void;
  /** Touches every page of the range, so that later writes find it present. */
  touch(start: number, bytes: number): void;
  /** `target = combine(a, b)` over `bytes` bytes; the target may be one of the operands. */
  readonly combine: (dtype: Direct, combine: Combine) => CombineKernel;
  /** `first = second = a + b` over `bytes` bytes of float32. */
  sumTwice(first: number, second: number, a: number, b: number, bytes: number): void;
  /** Widens 16-bit floats to float32; rounds the count up to four. */
  readonly widen: {
    readonly [D in "bfloat16" | "float16"]: (target: number, source: number, n: number) => void;
  };
  /** Rounds float32 to 16-bit floats; rounds the count up to four. */
  readonly narrow: {
    readonly [D in "bfloat16" | "float16"]: (target: number, source: number, n: number) => void;
  };
}

/** `target = combine(a, b)` over a number of bytes. */
export type CombineKernel = (target: number, a: number, b: number, bytes: number) => void;

const PAGE = 4096;

/** The kernels that collectives and copies are made of, as a module that imports `env.memory`. */
export function buildMoveModule(addressType: AddressType = "i32"): Uint8Array<ArrayBuffer> {
  const builder = new ModuleBuilder();
  builder.importMemory(sharedMemory(addressType));
  const addresses = (n: number) => ({ params: new Array<"address">(n).fill("address"), results: [] });
  builder.function(
    addresses(3),
    (f) => f.get(f.param(0)).get(f.param(1)).get(f.param(2)).memoryCopy(),
    "copy",
  );
  builder.function(addresses(6), writeCopyRows, "copyRows");
  builder.function(addresses(2), (f) => f.get(f.param(0)).i32(0).get(f.param(1)).memoryFill(), "zero");
  builder.function(addresses(2), writeTouch, "touch");
  for (const dtype of Object.keys(combineOps) as Direct[]) {
    for (const combine of ["sum", "max", "min"] as const) {
      const op = combineOps[dtype][combine];
      builder.function(addresses(4), (f) => writeCombine(f, op, byteSize(dtype), 1), `${combine}_${dtype}`);
    }
  }
  builder.function(addresses(5), (f) => writeCombine(f, "f32x4.add", 4, 2), "sumTwice");
  for (const [dtype, { widen, narrow }] of Object.entries(conversions)) {
    builder.function(addresses(3), (f) => writeConversion(f, "half", "word", widen), `widen_${dtype}`);
    builder.function(addresses(3), (f) => writeConversion(f, "word", "half", narrow), `narrow_${dtype}`);
  }
  return builder.toBytes();
}

/** Binds the kernels to a memory. */
export function instantiateMoveKernels(module: WebAssembly.Module, memory: WebAssembly.Memory): MoveKernels {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const get = <F>(name: string): F => {
    const found = exports[name];
    if (typeof found !== "function") throw new InternalError(`[threads] the move kernels have no ${name}`);
    return found as F;
  };
  type Convert = (target: number, source: number, n: number) => void;
  return {
    copy: get("copy"),
    copyRows: get("copyRows"),
    zero: get("zero"),
    touch: get("touch"),
    combine: (dtype, combine) => get<CombineKernel>(`${combine}_${dtype}`),
    sumTwice: get("sumTwice"),
    widen: { bfloat16: get<Convert>("widen_bfloat16"), float16: get<Convert>("widen_float16") },
    narrow: { bfloat16: get<Convert>("narrow_bfloat16"), float16: get<Convert>("narrow_float16") },
  };
}

/** `while (counter is not 0) body` */
function whileNotZero(f: FunctionBody, counter: Local, body: () => void): void {
  f.block((out) => {
    f.loop((again) => {
      f.get(counter).op("address.eqz").brIf(out);
      body();
      f.br(again);
    });
  });
}

/** `while (left ≥ step) { body; left −= step }`, unsigned. */
function whileAtLeast(f: FunctionBody, left: Local, step: number, body: () => void): void {
  f.block((out) => {
    f.loop((again) => {
      f.get(left).address(step).op("address.lt_u").brIf(out);
      body();
      f.advance(left, -step);
      f.br(again);
    });
  });
}

function writeCopyRows(f: FunctionBody): void {
  const [target, source, bytes, rows] = [f.param(0), f.param(1), f.param(2), f.param(3)];
  const [targetStride, sourceStride] = [f.param(4), f.param(5)];
  const next = () => {
    f.get(target).get(targetStride).op("address.add").set(target);
    f.get(source).get(sourceStride).op("address.add").set(source);
    f.advance(rows, -1);
  };
  // Rows of one word are common (a dim of size one beside the gathered one) and a copy instruction is a call.
  f.get(bytes).address(4).op("address.eq");
  f.if(
    () =>
      whileNotZero(f, rows, () => {
        f.get(target).get(source).memory("i32.load").memory("i32.store");
        next();
      }),
    () =>
      whileNotZero(f, rows, () => {
        f.get(target).get(source).get(bytes).memoryCopy();
        next();
      }),
  );
}

function writeTouch(f: FunctionBody): void {
  const [start, bytes] = [f.param(0), f.param(1)];
  whileAtLeast(f, bytes, PAGE, () => {
    f.get(start).get(start).memory("i32.load").memory("i32.store");
    f.advance(start, PAGE);
  });
}

function writeCombine(f: FunctionBody, op: VectorOp, size: number, numTargets: 1 | 2): void {
  const targets = numTargets === 1 ? [f.param(0)] : [f.param(0), f.param(1)];
  const [a, b, left] = [f.param(numTargets), f.param(numTargets + 1), f.param(numTargets + 2)];
  const value = f.local("v128");
  const values = [value, f.local("v128"), f.local("v128"), f.local("v128")];
  const step = 16 * values.length;
  const advance = (bytes: number) => {
    for (const local of [...targets, a, b]) f.advance(local, bytes);
  };
  const loadVector = (from: Local, i: number) => f.get(from).memory("v128.load", 16 * i);
  // A sum begins with 0, as in the reference engine and in XLA: that of negative zeros is 0. Locals begin as zeros.
  const zero = op === "f32x4.add" || op === "f64x2.add" ? f.local("v128") : undefined;
  const combineInto = (target: Local) => {
    f.vector(op);
    if (zero) f.get(zero).vector(op);
    f.set(target);
  };
  whileAtLeast(f, left, step, () => {
    values.forEach((one, i) => {
      loadVector(a, i);
      loadVector(b, i);
      combineInto(one);
    });
    for (const target of targets) {
      values.forEach((one, i) => {
        f.get(target)
          .get(one)
          .memory("v128.store", 16 * i);
      });
    }
    advance(step);
  });
  const access = elementAccess[size];
  if (access === undefined) throw new InternalError(`[threads] no tail for elements of ${size} bytes`);
  const [load, store] = access;
  whileAtLeast(f, left, size, () => {
    f.get(a).memory(load).get(b).memory(load);
    combineInto(value);
    for (const target of targets) f.get(target).get(value).laneMemory(store, 0);
    advance(size);
  });
}

/** Loops over four elements at a time. */
function fourByFour(f: FunctionBody, targetStep: number, sourceStep: number, body: () => void): void {
  const [target, source, n] = [f.param(0), f.param(1), f.param(2)];
  f.get(n).address(3).op("address.add").address(-4).op("address.and").set(n);
  whileAtLeast(f, n, 4, () => {
    body();
    f.advance(target, targetStep);
    f.advance(source, sourceStep);
  });
}

type Storage = "half" | "word";

/** Converts elements from one storage to another, four at a time. */
function writeConversion(
  f: FunctionBody,
  from: Storage,
  to: Storage,
  convert: (b: VecBuilder, x: Vec) => Vec,
): void {
  const [target, source] = [f.param(0), f.param(1)];
  const b = new VecBuilder(BASELINE_FEATURES);
  const prepared = prepareProgram(f, b.finish([convert(b, b.input(0))]));
  fourByFour(f, 4 * STORAGE_BYTES[to], 4 * STORAGE_BYTES[from], () => {
    emitInterleaved(f, prepared, 1, {
      input(_slot, _copy, local) {
        emitVectorLoad(f.get(source), from);
        f.set(local);
      },
      output: (_index, _copy, local) => emitVectorStore(f.get(target).get(local), to),
    });
  });
}
