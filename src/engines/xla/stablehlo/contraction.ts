import { byteSize, type DType, isFloat } from "../../../ir/dtype.js";
import { at, tensorType } from "../../../ir/shape.js";
import { listText } from "./text.js";
import type { Rule } from "./writer.js";

/**
 * The types to multiply in and to sum in. 16-bit floats are multiplied as they are and summed in float32; where an
 * operand type is not even of the kind of the result, float64 holds everything.
 */
function productTypes(from: DType, to: DType): { readonly factor: DType; readonly sum: DType } {
  if (from === to) return { factor: from, sum: to };
  if (!isFloat(from) || !isFloat(to) || to === "float64") return { factor: "float64", sum: "float64" };
  if (byteSize(from) < byteSize(to)) return { factor: from, sum: to };
  return byteSize(from) > byteSize(to) ? { factor: from, sum: from } : { factor: from, sum: "float32" };
}

/** How `dotGeneral` is written: products of float32 are float32, unless the program asks for less. */
export const contractionRules: { readonly [K in "dotGeneral"]: Rule<K> } = {
  dotGeneral: (eqn, write) => {
    const { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype } = eqn.params;
    const given = eqn.ins.map((atom) => write.read(atom));
    const { factor, sum } = productTypes(at(given, 0).type.dtype, dtype);
    const operands = given.map((x) => write.convert(x, factor));
    const batching =
      lhsBatch.length === 0 ? "" : `, batching_dims = ${listText(lhsBatch)} x ${listText(rhsBatch)}`;
    const contracting = `, contracting_dims = ${listText(lhsContract)} x ${listText(rhsContract)}`;
    const precision = factor === "float32" ? ", precision = [HIGHEST, HIGHEST]" : "";
    const type = tensorType(sum, at(eqn.outs, 0).type.shape);
    const product = write.mapped(
      "stablehlo.dot_general",
      operands,
      `${batching}${contracting}${precision}`,
      type,
    );
    return [write.convert(product, dtype)];
  },
};
