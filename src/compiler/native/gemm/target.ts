import type { GemmStep } from "../../steps.js";

/** The type of the factors of a product; the result has the same one, but products of bfloat16 are float32. */
export type ProductType = GemmStep["dtype"];

/** One of the factors of a product. */
export type Factor = "a" | "b";

/**
 * How a kernel finds the elements of a factor: packed by another kernel before, or where they lie, with these
 * distances in bytes from row to row of A (columns of B are neighbours) and from step to step along k.
 */
export type FactorLayout = "packed" | { readonly row: number; readonly step: number };

/**
 * Copies panels that lie side by side: `target[k][pitch(width)] = source[k][width]` for each. Where a lane holds
 * several neighbours along k they come from as many rows of the source.
 */
export interface PackRowsKernel {
  readonly kind: "packRows";
  readonly from: Factor;
  readonly width: number;
  /** How many neighbours are left over in the end, and share their lane with zeros. */
  readonly leftOver: number;
  /** How many steps of nothing but zeros follow, so that the kernel that multiplies has whole blocks. */
  readonly zeros: number;
}

/** Transposes strips that lie below each other: `target[k][pitch(height)] = source[height][k]` for each. */
export interface PackColumnsKernel {
  readonly kind: "packColumns";
  readonly from: Factor;
  readonly height: number;
  /** How many neighbours are left over in the end, and share their lane with zeros. */
  readonly leftOver: number;
  /** How many steps of nothing but zeros follow, so that the kernel that multiplies has whole blocks. */
  readonly zeros: number;
}

/** The steps that a kernel packs behind the full ones: one of what is left over, and those of zeros. */
export function stepsBehind({ leftOver, zeros }: PackRowsKernel | PackColumnsKernel): number {
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
}

/** A function of machine code. */
export type GemmKernel = PackRowsKernel | PackColumnsKernel | MultiplyKernel;

/** A call of a kernel that packs `k` full steps; the source is an offset into its factor, the target an address. */
export interface PackTask {
  readonly kind: "pack";
  readonly kernel: PackRowsKernel | PackColumnsKernel;
  readonly args: readonly [source: number, stride: number, target: number, k: number, count: number];
}

/** A call of a kernel that multiplies; packed factors are addresses, everything else offsets into its matrix. */
export interface MultiplyTask {
  readonly kind: "multiply";
  readonly kernel: MultiplyKernel;
  readonly args: readonly [
    ...[a: number, b: number, c: number, cStride: number],
    ...[k: number, strips: number, panels: number],
  ];
}

/** A call of a kernel; distances are in bytes. */
export type GemmTask = PackTask | MultiplyTask;

/** Bytes of a task record: the address of a function and up to seven arguments. */
export const RECORD_BYTES = 64;

/** The kernels of an instruction set for one type of element, and the sizes they like. */
export interface GemmTarget {
  /** The instruction set as users know it, for example `AVX-512`. */
  readonly name: string;
  readonly type: ProductType;
  /** Bytes of an element of C. */
  readonly size: 4 | 8;
  /** Bytes of an element of A and B as they lie. */
  readonly factorBytes: 2 | 4 | 8;
  /** Neighbours along k that share a lane of what is packed, and that one step multiplies: several of bfloat16. */
  readonly perLane: 1 | 2 | 4;
  /** Elements along k come in multiples of this: packed factors are filled up with zeros. */
  readonly depthUnit: number;
  /** Lanes of a vector of a packed factor; packed rows are padded to whole vectors. */
  readonly lanes: number;
  /** Rows and columns of C that stay in registers. */
  readonly rows: number;
  readonly columns: number;
  /**
   * A wider tile of so few rows that those of A find room in the L1 cache however far apart they are, and the most
   * columns of C at which such tiles take less time than packing A; none where those are not worth it.
   */
  readonly flat?:
    | { readonly rows: number; readonly columns: number; readonly mostColumns: number }
    | undefined;
  /** Whether all strips but the last have all rows; else their heights differ by one at most. */
  readonly fullStrips: boolean;
  /** How much is packed at a time: a strip of A stays in the L1 cache, a block of B in L2, one of A in L3. */
  readonly block: { readonly rows: number; readonly columns: number; readonly depth: number };
  /** Up to where factors are multiplied where they lie. */
  readonly direct: {
    /** The longest rows, in bytes, of A and of one that is transposed. */
    readonly a: number;
    readonly transposedA: number;
    /** Rows of B are shorter than this, in bytes, and its columns no longer. */
    readonly b: number;
    /** Or else all strips together pass at most so many bytes of B, with all that lies between its rows. */
    readonly passedB: number;
  };
  /** The code of a kernel; a listing gets what GNU `as` makes the same bytes of. */
  kernel(kernel: GemmKernel, listing?: string[]): Uint8Array<ArrayBuffer>;
  /**
   * The code of `(program, a, b, c)`: runs the task records of a program on the matrices at these addresses.
   *
   * A program is a record with a number of products and the bytes from one to the next of A, of B and of C,
   * then the records of one product, then a record of zeros.
   */
  runner(listing?: string[]): Uint8Array<ArrayBuffer>;
}

/** The elements of a product, whoever computes it. */
export type Elements = Pick<GemmTarget, "type" | "size" | "factorBytes">;

/** How the factors and the result of a product lie. */
export function elementsOf(type: ProductType): Elements {
  const size = type === "float64" ? 8 : 4;
  return { type, size, factorBytes: type === "bfloat16" ? 2 : size };
}

/** Bytes of a packed row of `extent` elements. */
export function pitchBytes({ lanes, factorBytes, perLane }: GemmTarget, extent: number): number {
  return Math.ceil(extent / lanes) * lanes * factorBytes * perLane;
}
