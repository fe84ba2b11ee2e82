import type { GemmStep } from "../../steps.js";
import type { CodeWriter } from "../code.js";

/** The type of the factors of a product; the result has the same type, except that products of bfloat16 are float32. */
export type ProductType = GemmStep["dtype"];

/** One of the factors of a product. */
export type Side = "a" | "b";

/**
 * How a kernel finds the elements of a factor: packed by another kernel, or in place, with the distances in bytes
 * between rows of A (columns of B are adjacent) and between steps along k.
 */
export type FactorLayout = "packed" | { readonly row: number; readonly step: number };

/**
 * Copies adjacent panels, `target[k][pitch(extent)] = source[k][extent]` for each (`packRows`), or transposes adjacent
 * strips, `target[k][pitch(extent)] = source[extent][k]` for each (`packColumns`). If a lane holds several adjacent
 * elements along k, they come from as many rows or columns of the source.
 */
export interface PackKernel {
  readonly kind: "packRows" | "packColumns";
  readonly from: Side;
  readonly extent: number;
  /** Number of elements along k that do not fill a lane, and share it with zeros. */
  readonly leftOver: number;
  /** Number of steps of zeros that follow, so that the kernel that multiplies has whole blocks. */
  readonly zeros: number;
}

/** The steps that a kernel packs after the full ones: one with the remaining elements, and those of zeros. */
export function stepsBehind({ leftOver, zeros }: PackKernel): number {
  return (leftOver > 0 ? 1 : 0) + zeros;
}

/** Multiplies strips of A, `height` rows each, with panels of B, `width` columns each: `C = alpha · A · B + beta · C`. */
export interface MultiplyKernel {
  readonly kind: "multiply";
  readonly height: number;
  readonly width: number;
  readonly a: FactorLayout;
  readonly b: FactorLayout;
  readonly alpha: number;
  readonly beta: number;
  /**
   * The distance in bytes between the rows of A in memory, for a kernel that multiplies one strip and meanwhile prefetches
   * the rows that are packed next, two for each panel of B.
   */
  readonly ahead?: number;
}

/** A machine-code function. */
export type GemmKernel = PackKernel | MultiplyKernel;

/** A call of a kernel that packs `k` full steps; the source is an offset into its factor, the target an address. */
export interface PackTask {
  readonly kind: "pack";
  readonly kernel: PackKernel;
  readonly args: readonly [source: number, stride: number, target: number, k: number, count: number];
}

/**
 * A call of a kernel that multiplies; packed factors are addresses, everything else offsets into its matrix. A kernel that
 * prefetches has the offset of the next strip in A in place of the number of strips.
 */
export interface MultiplyTask {
  readonly kind: "multiply";
  readonly kernel: MultiplyKernel;
  readonly args: readonly [
    ...[a: number, b: number, c: number, cStride: number],
    ...[k: number, strips: number, panels: number],
  ];
}

/** The number of strips that a task multiplies. */
export const numStrips = ({ kernel, args }: MultiplyTask): number =>
  kernel.ahead === undefined ? args[5] : 1;

/** A call of a kernel; distances are in bytes. */
export type GemmTask = PackTask | MultiplyTask;

/** Bytes of a task record: the address of a function and up to seven arguments. */
export const RECORD_BYTES = 64;

/** The kernels of an instruction set for one type of element, and their preferred sizes. */
export interface GemmTarget {
  /** The instruction set as users know it, for example `AVX-512`. */
  readonly name: string;
  readonly type: ProductType;
  /** Bytes of an element of C. */
  readonly size: 4 | 8;
  /** Bytes of an element of A and B before packing. */
  readonly factorBytes: 2 | 4 | 8;
  /**
   * Adjacent elements along k that share a lane of a packed factor and that one step multiplies: several for bfloat16.
   */
  readonly perLane: 1 | 2 | 4;
  /** Elements along k come in multiples of this: packed factors are padded with zeros. */
  readonly depthUnit: number;
  /** Lanes of a vector of a packed factor; packed rows are padded to whole vectors. */
  readonly lanes: number;
  /** Rows and columns of C that stay in registers. */
  readonly rows: number;
  readonly columns: number;
  /**
   * A wider tile of so few rows that those of A fit the L1 cache whatever their distance, and the maximum number of
   * columns of C at which such tiles take less time than packing A; undefined if they never pay.
   */
  readonly flat?:
    | { readonly rows: number; readonly columns: number; readonly maxColumns: number }
    | undefined;
  /** Whether all strips but the last have all rows; otherwise their heights differ by at most one. */
  readonly fullStrips: boolean;
  /** Whether kernels can prefetch the next strip of A, which is then packed just before its first use. */
  readonly prefetches: boolean;
  /**
   * How much is packed at a time, of products with as many steps along k: a strip of A stays in L1 or L2, a block of B in
   * L2, one of A in L3.
   */
  readonly block: { readonly rows: number; readonly columns: number; readonly depth: number };
  /** Limits up to which factors are multiplied in place. */
  readonly direct: {
    /** Maximum distance between rows in bytes, of A and of a transposed A. */
    readonly a: number;
    readonly transposedA: number;
    /** Maximum bytes of B, including the gaps between its rows. */
    readonly b: number;
    /** Maximum number of rows of C for which a larger B is not packed either. */
    readonly rows: number;
  };
  /** The code of a kernel; a listing receives lines from which GNU `as` makes the same bytes. */
  kernel(kernel: GemmKernel, listing?: string[]): Uint8Array<ArrayBuffer>;
  /**
   * The code of `(program, a, b, c)`: runs the task records of a program on the matrices at these addresses.
   *
   * A program is a record with a number of products and the bytes from one to the next of A, of B and of C,
   * then the records of one product, then a record of zeros.
   */
  runner(listing?: string[]): Uint8Array<ArrayBuffer>;
}

/** What writes the code of each kind of kernel with an assembler. */
export interface KernelWriters<Assembler> {
  packRows(code: Assembler, kernel: PackKernel): void;
  packColumns(code: Assembler, kernel: PackKernel): void;
  multiply(code: Assembler, kernel: MultiplyKernel): void;
}

/** The `kernel` of a target. */
export function kernelWith<Assembler extends CodeWriter>(
  NewAssembler: new (listing?: string[]) => Assembler,
  writers: KernelWriters<Assembler>,
): GemmTarget["kernel"] {
  return (kernel, listing) => {
    const code = new NewAssembler(listing);
    if (kernel.kind === "multiply") writers.multiply(code, kernel);
    else writers[kernel.kind](code, kernel);
    return code.finish();
  };
}

/** The element types of a product. */
export type Elements = Pick<GemmTarget, "type" | "size" | "factorBytes">;

/** The sizes of elements of factors and result. */
export function elementsOf(type: ProductType): Elements {
  const size = type === "float64" ? 8 : 4;
  return { type, size, factorBytes: type === "bfloat16" ? 2 : size };
}

/** Bytes of a packed row of `extent` elements. */
export function pitchBytes({ lanes, factorBytes, perLane }: GemmTarget, extent: number): number {
  return Math.ceil(extent / lanes) * lanes * factorBytes * perLane;
}
