import { type DType, isComplex, partType, shortName } from "../../../ir/dtype.js";
import type { Float8 } from "../../../ir/ops.js";
import { sizeOf, type TensorType } from "../../../ir/shape.js";

/** A data type as StableHLO writes it, such as `bf16`. */
export function elementText(dtype: DType): string {
  if (isComplex(dtype)) return `complex<${shortName(partType(dtype))}>`;
  return dtype === "bool" ? "i1" : shortName(dtype).replace("u", "ui");
}

/** A type as StableHLO writes it, such as `tensor<4x8xf32>`. */
export function typeText({ dtype, shape }: TensorType): string {
  return `tensor<${[...shape, elementText(dtype)].join("x")}>`;
}

/** A type of float8 elements, which programs only round to, such as `tensor<4x8xf8E5M2>`. */
export function float8Text({ shape }: TensorType, format: Float8): string {
  return `tensor<${[...shape, `f8${format.toUpperCase()}`].join("x")}>`;
}

/** The bits of values without a decimal form (positive infinity, negative infinity, NaN), for every float type. */
const infinities: { readonly [D in DType]?: readonly [string, string, string] } = {
  float32: ["0x7F800000", "0xFF800000", "0x7FC00000"],
  bfloat16: ["0x7F80", "0xFF80", "0x7FC0"],
  float16: ["0x7C00", "0xFC00", "0x7E00"],
  float64: ["0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000"],
};

/** A number as an element of a constant. */
export function numberText(value: number, dtype: DType): string {
  if (dtype === "bool") return value === 0 ? "false" : "true";
  const bits = infinities[dtype];
  if (bits === undefined) return String(value);
  if (Number.isNaN(value)) return bits[2];
  if (!Number.isFinite(value)) return value > 0 ? bits[0] : bits[1];
  const digits = Object.is(value, -0) ? "-0" : String(value);
  const [mantissa = "", exponent] = digits.split("e");
  const pointed = mantissa.includes(".") ? mantissa : `${mantissa}.0`;
  return exponent === undefined ? pointed : `${pointed}e${exponent}`;
}

/** The op that creates a tensor filled with one number. */
export function splatText(value: number, type: TensorType): string {
  const inside = sizeOf(type.shape) === 0 ? "" : numberText(value, type.dtype);
  return `stablehlo.constant dense<${inside}> : ${typeText(type)}`;
}

/** Integers as an attribute: `array<i64: 1, 2>`. */
export function arrayText(numbers: readonly number[]): string {
  return numbers.length === 0 ? "array<i64>" : `array<i64: ${numbers.join(", ")}>`;
}

/** Integers in brackets: `[1, 2]`. */
export function listText(numbers: readonly number[]): string {
  return `[${numbers.join(", ")}]`;
}

/** Rows of integers, all of one length, as a constant attribute: `dense<[[0, 1]]> : tensor<1x2xi64>`. */
export function rowsText(rows: readonly (readonly number[])[], width: number): string {
  const type = `tensor<${rows.length}x${width}xi64>`;
  return rows.length === 0 ? `dense<> : ${type}` : `dense<[${rows.map(listText).join(", ")}]> : ${type}`;
}
