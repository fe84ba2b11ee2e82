import { a64Gemm } from "../../compiler/native/gemm/a64Gemm.js";
import {
  assertInBounds,
  type PackingSpace,
  type Product,
  packingBytes,
  planProduct,
} from "../../compiler/native/gemm/gemmPlan.js";
import { divideProduct } from "../../compiler/native/gemm/productParts.js";
import {
  type GemmKernel,
  type GemmTarget,
  type ProductType,
  RECORD_BYTES,
} from "../../compiler/native/gemm/target.js";
import { x64AmxGemm } from "../../compiler/native/gemm/x64AmxGemm.js";
import { x64Gemm } from "../../compiler/native/gemm/x64Gemm.js";
import type { GemmBatch } from "../../compiler/steps.js";
import { getKnown, getOrInsert, zip } from "../../ir/collections.js";
import { InternalError } from "../../ir/errors.js";
import type { CodeMemory, NativeFunction } from "../system/codeMemory.js";
import type { ProductSets } from "../system/instructionSets.js";

/** The kernels for each type of factors, as far as there are any. */
export type ProductTargets = { readonly [T in ProductType]: GemmTarget | undefined };

/** The kernels of an instruction set. */
export function targetsOf({ set, bfloat16 }: ProductSets): ProductTargets {
  const target = { "AVX-512": wide, AVX2: narrow, NEON: a64Gemm }[set];
  return {
    float32: target("float32"),
    float64: target("float64"),
    float16: undefined,
    bfloat16: bfloat16 && { AMX: x64AmxGemm, "AVX-512-BF16": widePairs, "NEON-BF16": pairs }[bfloat16](),
  };
}

const wide = (type: ProductType): GemmTarget => x64Gemm(512, type);
const widePairs = (): GemmTarget => x64Gemm(512, "bfloat16");
const pairs = (): GemmTarget => a64Gemm("bfloat16");
const narrow = (type: ProductType): GemmTarget => x64Gemm(256, type);

/** A product on native addresses. */
export type NativeProduct = (a: number, b: number, c: number) => void;

/** A part of a product for any thread of the process to run: `run(program, A + a, B + b, C + c)`. */
export interface NativePart {
  readonly program: number;
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/**
 * Matrix products in machine code, made for their shapes when they are prepared. One thread prepares and starts the
 * products of an instance, one after the other: they share the memory that operands are packed into, and so do the
 * parts with the same number.
 */
export class NativeGemm {
  private readonly families = new Map<ProductType, KernelFamily>();
  private readonly spaces = new Map<number, PackingSpace>();
  private readonly divided = new Map<string, readonly NativePart[]>();
  /** Runs a product or a part of one: takes a program and the addresses of A, B and C. */
  readonly run: NativeFunction;
  /** The address of `run`, for other threads. */
  readonly runner: number;

  constructor(
    private readonly memory: CodeMemory,
    private readonly targets: ProductTargets,
  ) {
    const [at = 0] = memory.load([this.target("float32").runner()]);
    this.run = memory.bind(at, 4);
    this.runner = at;
  }

  /**
   * Prepares a product; one call computes `batch.count` of it.
   *
   * @returns a function of the native addresses of A, B and C, which does not check them: the caller must
   */
  prepare(type: ProductType, product: Product, batch: GemmBatch = SINGLE): NativeProduct {
    const records = this.records(type, product, batch, this.space(0));
    const { run } = this;
    const program = this.memory.addressOf(records.buffer);
    // The address keeps nothing alive, so the function holds the records themselves.
    return Object.assign((a: number, b: number, c: number) => run(program, a, b, c), { records });
  }

  /**
   * Prepares a product as at most `count` parts that can run at the same time, on any threads. Their records are kept
   * until the code memory is released, because other threads may outlive this one.
   */
  prepareParts(
    type: ProductType,
    product: Product,
    batch: GemmBatch = SINGLE,
    count: number,
  ): readonly NativePart[] {
    const key = JSON.stringify([type, product, batch, count]);
    return getOrInsert(this.divided, key, () =>
      divideProduct(this.target(type), product, batch, count).map(({ a, b, c, ...part }, i) => {
        return { program: this.preparePart(type, part.product, i, part.batch), a, b, c };
      }),
    );
  }

  /** Prepares a product that can run at the same time as those of parts with other numbers; kept as those are. */
  preparePart(type: ProductType, product: Product, part: number, batch: GemmBatch = SINGLE): number {
    const records = this.records(type, product, batch, this.space(part));
    return this.memory.store(new Uint8Array(records.buffer));
  }

  /** The task records of a product that packs its operands into the given space. */
  private records(
    type: ProductType,
    product: Product,
    batch: GemmBatch,
    space: PackingSpace,
  ): BigInt64Array<SharedArrayBuffer> {
    const { m, n, k } = product;
    if (Math.min(m, n, k, batch.count) < 1) {
      throw new InternalError(
        `[NativeGemm] ${batch.count} products of ${m}×${n}×${k}: all must be at least 1`,
      );
    }
    const family = this.family(type);
    const tasks = planProduct(family.target, product, space);
    assertInBounds(family.target, product, space, tasks);
    const functions = family.addresses(tasks.map(({ kernel }) => kernel));
    const words = RECORD_BYTES / 8;
    const records = new BigInt64Array(new SharedArrayBuffer((tasks.length + 2) * RECORD_BYTES));
    const write = (record: number, values: readonly number[]) => {
      records.set(values.map(BigInt), record * words);
    };
    write(0, [batch.count, batch.strideA, batch.strideB, batch.strideC]);
    for (const [i, { args }] of tasks.entries()) write(i + 1, [functions[i] ?? 0, ...args]);
    return records;
  }

  /** The kernels for a type of factors. */
  target(type: ProductType): GemmTarget {
    const target = this.targets[type];
    if (target === undefined) throw new InternalError(`[NativeGemm] there are no kernels for ${type} here`);
    return target;
  }

  private family(type: ProductType): KernelFamily {
    return getOrInsert(this.families, type, () => new KernelFamily(this.memory, this.target(type)));
  }

  /** Where a part packs its operands: products run one after the other, so they share the same space. */
  private space(part: number): PackingSpace {
    return getOrInsert(this.spaces, part, () => {
      const rooms = Object.values(this.targets).flatMap((target) => (target ? [packingBytes(target)] : []));
      const a = Math.ceil(Math.max(...rooms.map((room) => room.a)) / 4096) * 4096;
      const at = this.memory.scratch(a + Math.max(...rooms.map((room) => room.b)));
      return { a: at, b: at + a };
    });
  }
}

const SINGLE: GemmBatch = { count: 1, strideA: 0, strideB: 0, strideC: 0 };

/** The kernels of one target that are loaded so far. */
class KernelFamily {
  private readonly loaded = new Map<string, number>();

  constructor(
    private readonly memory: CodeMemory,
    readonly target: GemmTarget,
  ) {}

  /** The addresses of kernels; new ones are generated and loaded together. */
  addresses(kernels: readonly GemmKernel[]): readonly number[] {
    const keys = kernels.map((kernel) => JSON.stringify(kernel));
    const fresh = new Map(zip(keys, kernels).filter(([key]) => !this.loaded.has(key)));
    if (fresh.size > 0) {
      const addresses = this.memory.load([...fresh.values()].map((kernel) => this.target.kernel(kernel)));
      for (const [key, address] of zip([...fresh.keys()], addresses)) this.loaded.set(key, address);
    }
    return keys.map((key) => getKnown(this.loaded, key));
  }
}
