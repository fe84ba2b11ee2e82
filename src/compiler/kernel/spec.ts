import type { DType } from "../../ir/dtype.js";
import type { Combine } from "../identities.js";
import type { VectorOpCall } from "./vectorOps.js";

/**
 * A kernel as data: a loop nest over `dims`, and what is computed at every point of it.
 *
 * The first `numRows` dims are *row* loops; for every row the remaining *inner* dims are run through once or
 * several times (*phases*), so that a reduction over the inner dims can be used again along them, as in a softmax.
 * The last dim is the one that is vectorised.
 */
export interface KernelSpec {
  readonly dims: readonly number[];
  readonly numRows: number;
  /** The data type behind each argument; accesses name arguments by index. */
  readonly args: readonly DType[];
  /** In an order in which operands come first. */
  readonly nodes: readonly KernelNode[];
  readonly stores: readonly KernelStore[];
  /**
   * Arguments that are filled before the loops: `count` elements of `value`. Threads that share the outermost loop fill
   * as many elements for each of its iterations, in their order.
   */
  readonly fills: readonly { readonly arg: number; readonly count: number; readonly value: number }[];
}

/** The element of an argument that a point of the loop nest refers to: offset + Σ index[d] · strides[d]. */
export interface Access {
  readonly arg: number;
  readonly strides: readonly number[];
  /** 0 if undefined, as in all kernels but those of {@link sumRows}. */
  readonly offset?: number;
}

/** An index read from memory: `clamp(int32, 0, limit − 1) · stride` elements are added to an address. */
export interface Indirection {
  readonly access: Access;
  readonly stride: number;
  readonly limit: number;
}

/** One value at a point of the loop nest; it is constant along the dims that it does not depend on. */
export type KernelNode =
  | { readonly kind: "literal"; readonly dtype: DType; readonly value: number }
  | {
      readonly kind: "load";
      readonly dtype: DType;
      readonly access: Access;
      readonly index?: Indirection | undefined;
    }
  /** Σ index[d] · coefficients[d]. */
  | { readonly kind: "iota"; readonly dtype: DType; readonly coefficients: readonly number[] }
  | {
      readonly kind: "op";
      readonly dtype: DType;
      readonly call: VectorOpCall;
      readonly args: readonly number[];
      /** Which result of the op, for ops with several. */
      readonly result: number;
    }
  /** The combination over all inner dims: one value per row. */
  | { readonly kind: "reduce"; readonly dtype: DType; readonly combine: Combine; readonly arg: number };

/**
 * Where a value is stored; with `combine` it is combined with the old value, with `index` an index selects the place.
 */
export interface KernelStore {
  readonly node: number;
  readonly access: Access;
  readonly combine?: Combine | undefined;
  /** Values whose index is out of range are dropped. */
  readonly index?: Indirection | undefined;
}
