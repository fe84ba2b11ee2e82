/** Questions about shapes and data types, which are answered while tracing. */
import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import {
  byteSize,
  type DType,
  isComplex,
  isDType,
  isFloat,
  isInteger,
  isUnsigned,
  needDType,
  partType,
} from "../../ir/dtype.js";
import { ValueError } from "../../ir/errors.js";
import { at, normalizeDims, sizeOf } from "../../ir/shape.js";
import { Complex } from "../../trace/complexNumber.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { asTensor, type Dims } from "../operands.js";

/**
 * The number of dims.
 *
 * @example
 * ```ts
 * np.ndim(np.zeros([2, 3])); // 2
 * ```
 */
export function ndim(x: TensorLike): number {
  return asTensor(x, "ndim").ndim;
}

/**
 * The sizes of the dims.
 *
 * @example
 * ```ts
 * np.shape(np.zeros([2, 3])); // [2, 3]
 * ```
 */
export function shape(x: TensorLike): readonly number[] {
  return asTensor(x, "shape").shape;
}

/**
 * The number of elements, of all dims or along some.
 *
 * @example
 * ```ts
 * np.size(np.zeros([2, 3])); // 6
 * ```
 */
export function size(x: TensorLike, dim?: Dims): number {
  const tensor = asTensor(x, "size");
  return sizeOf(normalizeDims(dim, tensor.ndim, "size").map((d) => at(tensor.shape, d)));
}

/**
 * Whether a value is a number, a bool, or a tensor without dims.
 *
 * @example
 * ```ts
 * np.isscalar(3); // true
 * ```
 */
export function isscalar(value: unknown): boolean {
  if (value instanceof Tensor) return value.ndim === 0;
  return typeof value === "number" || typeof value === "boolean" || value instanceof Complex;
}

/** Kinds of data types by their names in the array API standard. */
const kinds = {
  bool: (dtype: DType) => dtype === "bool",
  "signed integer": (dtype: DType) => isInteger(dtype) && !isUnsigned(dtype),
  "unsigned integer": isUnsigned,
  integral: isInteger,
  "real floating": isFloat,
  "complex floating": isComplex,
  numeric: (dtype: DType) => dtype !== "bool",
} as const satisfies Record<string, (dtype: DType) => boolean>;

/** A kind of data types: `"integral"`, `"real floating"`, … */
export type DTypeKind = keyof typeof kinds;

/**
 * Whether a data type is another one, or of a kind, or one of several of them.
 *
 * ```ts
 * np.isdtype(x.dtype, "real floating");
 * np.isdtype(x.dtype, ["bool", "int32"]);
 * ```
 *
 * @example
 * ```ts
 * np.isdtype("float32", "real floating"); // true
 * ```
 */
export function isdtype(dtype: DType, kind: DType | DTypeKind | readonly (DType | DTypeKind)[]): boolean {
  needDType(dtype, "isdtype");
  if (typeof kind !== "string") {
    need("list", kind, "kind", "isdtype");
    return kind.some((one) => isdtype(dtype, one));
  }
  if (isDType(kind) && kind !== "bool") return dtype === kind;
  if (Object.hasOwn(kinds, kind)) return kinds[kind](dtype);
  throw new ValueError(
    `[isdtype] ${describe(kind)} is not a data type or a kind: the kinds are ${Object.keys(kinds).join(", ")}`,
  );
}

/** The abstract types of NumPy's hierarchy, by the kinds that lie below them. */
const abstractTypes = {
  generic: ["bool", "numeric"],
  number: ["numeric"],
  integer: ["integral"],
  signedinteger: ["signed integer"],
  unsignedinteger: ["unsigned integer"],
  inexact: ["real floating", "complex floating"],
  floating: ["real floating"],
  complexfloating: ["complex floating"],
} as const satisfies Record<string, readonly DTypeKind[]>;

/** An abstract type of NumPy's hierarchy: `"integer"`, `"floating"`, … */
export type AbstractDType = keyof typeof abstractTypes;

/**
 * Whether a data type is another one or lies below an abstract one: `np.issubdtype(x.dtype, "floating")`.
 *
 * @example
 * ```ts
 * np.issubdtype("bfloat16", "floating"); // true
 * ```
 */
export function issubdtype(dtype: DType, above: DType | AbstractDType): boolean {
  needDType(dtype, "issubdtype");
  if (isDType(above)) return dtype === above;
  if (Object.hasOwn(abstractTypes, above)) return isdtype(dtype, abstractTypes[above]);
  throw new ValueError(
    `[issubdtype] ${describe(above)} is not a data type: use one, or ${Object.keys(abstractTypes).join(", ")}`,
  );
}

/** What {@link canCast} allows: no change, only what keeps every value, a change of width too, or anything. */
export type Casting = "no" | "equiv" | "safe" | "same_kind" | "unsafe";

/**
 * Whether elements of one data type may become another.
 *
 * @example
 * ```ts
 * np.canCast("int32", "float32"); // false
 * ```
 */
export function canCast(from: DType, to: DType, casting: Casting = "safe"): boolean {
  needDType(from, "canCast");
  needDType(to, "canCast");
  switch (casting) {
    case "no":
    case "equiv":
      return from === to;
    case "safe":
      return keepsValues(from, to);
    case "same_kind":
      return keepsValues(from, to) || rankOf(from) <= rankOf(to);
    case "unsafe":
      return true;
    default:
      throw new ValueError(
        `[canCast] ${describe(casting)} is not a kind of cast: use no, equiv, safe, same_kind or unsafe`,
      );
  }
}

/** The place of a data type among the kinds, each of which can hold the ones before it but for their width. */
function rankOf(dtype: DType): number {
  if (dtype === "bool") return 0;
  if (isInteger(dtype)) return isUnsigned(dtype) ? 1 : 2;
  return isFloat(dtype) ? 3 : 4;
}

/** Whether a data type holds every value of another one. */
function keepsValues(from: DType, to: DType): boolean {
  if (from === to || from === "bool") return true;
  if (rankOf(from) > rankOf(to)) return false;
  const [narrow, wide] = [byteSize(partType(from)), byteSize(partType(to))];
  if (!isInteger(from)) return narrow < wide || partType(from) === partType(to);
  // Half of the bits of a float, or more, are its mantissa's; the signed integers need one more than the unsigned.
  if (!isInteger(to)) return 2 * narrow <= wide;
  return rankOf(from) === rankOf(to) ? narrow <= wide : narrow < wide;
}
