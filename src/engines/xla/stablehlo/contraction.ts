import { byteSize, type DType, isFloat } from "../../../ir/dtype.js";
import { attentionBackwardProgram, attentionProgram } from "../../../ir/expansions/attention.js";
import { raggedDotProgram } from "../../../ir/expansions/ragged.js";
import type { OpsOf } from "../../../ir/opFacts.js";
import type { Attention, OpParams } from "../../../ir/ops.js";
import type { Program } from "../../../ir/program.js";
import { at, range, type TensorType, tensorType, typesOf } from "../../../ir/shape.js";
import { fusedAttention, fusedAttentionBackward, hasFusedAttention } from "./fusedAttention.js";
import { listText } from "./text.js";
import { type HloValue, names, type Rule, signature, type Writer } from "./writer.js";

/**
 * The types in which to multiply and accumulate. 16-bit floats are multiplied as they are and accumulated in float32;
 * if an operand and the result are of different kinds, float64 represents both.
 */
function productTypes(from: DType, to: DType): { readonly factor: DType; readonly sum: DType } {
  if (from === to) return { factor: from, sum: to };
  if (!isFloat(from) || !isFloat(to) || to === "float64") return { factor: "float64", sum: "float64" };
  if (byteSize(from) < byteSize(to)) return { factor: from, sum: to };
  return byteSize(from) > byteSize(to) ? { factor: from, sum: from } : { factor: from, sum: "float32" };
}

/** Uses the devices' kernel if there is one for these types, else the equivalent program of smaller ops. */
function attention<K extends "attention" | "attentionBackward">(
  fused: (operands: readonly HloValue[], params: Attention, write: Writer) => HloValue[],
  programOf: (params: Attention, types: readonly TensorType[]) => Program,
): Rule<K> {
  return ({ ins, params }, write) => {
    const operands = ins.map((atom) => write.read(atom));
    const [query, key] = [at(operands, 0).type, at(operands, 1).type];
    if (write.fuses("attention") && hasFusedAttention(query, key, params)) {
      return fused(operands, params, write);
    }
    return write.inline(programOf(params, typesOf(operands)), operands, write.equation);
  };
}

/** XLA's own product of groups of rows, whose sizes must not be negative. */
function raggedDot(
  operands: readonly HloValue[],
  { ragged, dtype, precision }: OpParams["raggedDot"],
  { shape }: TensorType,
  write: Writer,
): HloValue {
  const [x, y, sizes] = [at(operands, 0), at(operands, 1), at(operands, 2)];
  const { factor, sum } = productTypes(x.type.dtype, dtype);
  const rank = x.type.shape.length - 2;
  const [batch, contracted] = [listText(range(rank)), listText([ragged === "rows" ? rank + 1 : rank])];
  const dims = [
    ...(rank === 0 ? [] : [`lhs_batching_dimensions = ${batch}`, `rhs_batching_dimensions = ${batch}`]),
    `lhs_contracting_dimensions = ${contracted}`,
    `rhs_contracting_dimensions = ${contracted}`,
    `lhs_ragged_dimensions = ${listText([rank])}`,
    ...(ragged === "rows" ? [`rhs_group_dimensions = ${listText([rank])}`] : []),
  ];
  const exact = factor === "float32" ? (precision ?? write.precision).toUpperCase() : "DEFAULT";
  const none = write.splat(0, "int32", sizes.type.shape);
  const counts = write.same("stablehlo.maximum", [sizes, none], sizes.type);
  const factors = [write.convert(x, factor), write.convert(y, factor), counts];
  const type = tensorType(sum, shape);
  const text =
    `"chlo.ragged_dot"(${names(factors)}) <{precision_config = [#chlo<precision ${exact}>, #chlo<precision ${exact}>], ` +
    `ragged_dot_dimension_numbers = #chlo.ragged_dot<${dims.join(", ")}>}> : ${signature(factors, [type])}`;
  return write.convert(write.define(text, type), dtype);
}

/** Lowers products: float32 products are exact float32, unless the program asks for less precision. */
export const contractionRules: { readonly [K in OpsOf<"contraction">]: Rule<K> } = {
  attention: attention(fusedAttention, attentionProgram),
  attentionBackward: attention(fusedAttentionBackward, attentionBackwardProgram),
  raggedDot: ({ ins, outs, params }, write) => {
    const operands = ins.map((atom) => write.read(atom));
    const types = operands.map(({ type }) => type);
    if (write.fuses("raggedDot") && isFloat(at(types, 0).dtype)) {
      return [raggedDot(operands, params, at(outs, 0).type, write)];
    }
    return write.inline(raggedDotProgram(params, types), operands, write.equation);
  },
  dotGeneral: (eqn, write) => {
    const { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype } = eqn.params;
    const exact = (eqn.params.precision ?? write.precision).toUpperCase();
    const given = eqn.ins.map((atom) => write.read(atom));
    const { factor, sum } = productTypes(at(given, 0).type.dtype, dtype);
    const operands = given.map((x) => write.convert(x, factor));
    const batching =
      lhsBatch.length === 0 ? "" : `, batching_dims = ${listText(lhsBatch)} x ${listText(rhsBatch)}`;
    const contracting = `, contracting_dims = ${listText(lhsContract)} x ${listText(rhsContract)}`;
    const precision = factor === "float32" ? `, precision = [${exact}, ${exact}]` : "";
    const type = tensorType(sum, at(eqn.outs, 0).type.shape);
    const product = write.mapped(
      "stablehlo.dot_general",
      operands,
      `${batching}${contracting}${precision}`,
      type,
    );
    const hasOneTerm = lhsContract.every((dim) => at(at(given, 0).type.shape, dim) === 1);
    const result = write.convert(hasOneTerm ? write.sumOfOne(product) : product, dtype);
    if (lhsBatch.length === 0)
      write.madeByProduct(result, at(given, 0).type.shape.length - lhsContract.length);
    return [result];
  },
};
