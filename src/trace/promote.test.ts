import { describe, expect, test } from "vitest";
import { type DType, dtypes } from "../ir/dtype.js";
import { promoteTypes, resultType } from "./promote.js";
import { Tensor } from "./tensor.js";

const tensor = (dtype: DType) => Tensor.scalar(0, dtype);

describe("promoteTypes", () => {
  test("does not depend on the order", () => {
    for (const a of dtypes) for (const b of dtypes) expect(promoteTypes(a, b)).toBe(promoteTypes(b, a));
  });

  test.each([
    ["bool", "int32", "int32"],
    ["int32", "uint32", "int32"],
    ["bool", "int8", "int8"],
    ["int8", "uint8", "int16"],
    ["int8", "int16", "int16"],
    ["int8", "uint16", "int32"],
    ["int8", "uint32", "int32"],
    ["uint8", "int16", "int16"],
    ["uint8", "uint16", "uint16"],
    ["uint8", "int32", "int32"],
    ["int16", "uint16", "int32"],
    ["int16", "uint32", "int32"],
    ["uint16", "uint32", "uint32"],
    ["uint16", "float16", "float16"],
    ["int8", "bfloat16", "bfloat16"],
    ["int32", "bfloat16", "bfloat16"],
    ["uint32", "float16", "float16"],
    ["bfloat16", "float16", "float32"],
    ["bfloat16", "float32", "float32"],
    ["float32", "float64", "float64"],
  ] as const)("brings %s and %s to %s", (a, b, result) => {
    expect(promoteTypes(a, b)).toBe(result);
  });
});

describe("resultType", () => {
  test.each([
    ["an integer keeps integers", [tensor("int32"), 2], "int32"],
    ["a fraction makes integers floats", [tensor("int32"), 0.5], "float32"],
    ["a number keeps half-width floats", [tensor("bfloat16"), 0.5], "bfloat16"],
    ["an integer makes bool int32", [tensor("bool"), 1], "int32"],
    ["a boolean changes nothing", [tensor("float16"), true], "float16"],
    ["numbers alone are float32", [1, 2], "float32"],
    ["booleans alone are bool", [true, false], "bool"],
    ["a boolean before a number is no tensor of bool", [true, 2], "float32"],
    ["a number before a boolean neither", [2, true], "float32"],
  ] as const)("%s", (_, operands, result) => {
    expect(resultType(...operands)).toBe(result);
  });
});
