/** The types of attention's results, and the errors of its operands. */
import { isFloat, sumType } from "../dtype.js";
import { type Attention, type AttentionExtra, attentionExtras, type OpParams } from "../ops.js";
import { at, formatType, type Shape, sameNumbers, sameType, type TensorType, tensorType } from "../shape.js";
import { broken, checkWhole, commonDType, count, type Operand, require, typeOf } from "./inferChecks.js";

/** The number of operands before the extras. */
export const attentionOperands = { attention: 3, attentionBackward: 6 } as const;

interface Sizes {
  readonly batch: number;
  readonly length: number;
  readonly keyLength: number;
  readonly heads: number;
}

/** What an extra must be: its data type, its shape, and whether sizes of 1 stand for all. */
type ExtraType = readonly [dtype: "float" | "bool" | "int32" | "uint32", shape: Shape, repeats: boolean];

function extraType(name: AttentionExtra, { batch, length, keyLength, heads }: Sizes): ExtraType {
  switch (name) {
    case "bias":
      return ["float", [batch, heads, length, keyLength], true];
    case "mask":
      return ["bool", [batch, heads, length, keyLength], true];
    case "querySegments":
    case "queryPositions":
      return ["int32", [batch, length], false];
    case "keySegments":
    case "keyPositions":
      return ["int32", [batch, keyLength], false];
    case "sinks":
      return ["float", [batch, heads], true];
    case "dropoutKeys":
      return ["uint32", [batch, heads, 2], false];
    case "logSumsCotangent":
      return ["float", [batch, heads, length], false];
  }
}

function checkExtra(name: AttentionExtra, type: TensorType, sizes: Sizes): void {
  const [dtype, shape, repeats] = extraType(name, sizes);
  const isTyped = dtype === "float" ? isFloat(type.dtype) : type.dtype === dtype;
  const fits =
    type.shape.length === shape.length &&
    type.shape.every((n, d) => n === shape[d] || (n === 1 && repeats && !(name === "sinks" && d === 1)));
  if (isTyped && fits) return;
  const ones = repeats ? " (sizes may be 1)" : "";
  throw broken.shape(`${name} must be ${dtype} [${shape}]${ones}, not ${formatType(type)}`);
}

/** Checks the parameters and the operands beyond the first ones. */
function checkExtras(op: keyof typeof attentionOperands, ins: readonly Operand[], params: Attention): void {
  const { extras = [], window, softcap, dropoutRate, scale } = params;
  const first = attentionOperands[op];
  count(ins, first + extras.length);
  const order = extras.map((name) => attentionExtras.indexOf(name));
  if (order.some((place, i) => place < 0 || (i > 0 && place <= at(order, i - 1)))) {
    throw broken.value(`extras must be some of ${attentionExtras.join(", ")}, in this order`);
  }
  for (const side of ["Segments", "Positions"] as const) {
    if (extras.includes(`query${side}`) !== extras.includes(`key${side}`)) {
      throw broken.value(`query${side} and key${side} belong together`);
    }
  }
  if (!Number.isFinite(scale)) throw broken.value(`the scale must be finite, not ${scale}`);
  for (const n of window ?? []) checkWhole(n, "a side of the window", -1, 2 ** 31 - 1);
  if (softcap !== undefined && !(softcap > 0 && Number.isFinite(softcap))) {
    throw broken.value(`the softcap must be positive, not ${softcap}`);
  }
  if (dropoutRate !== undefined && !(dropoutRate > 0 && dropoutRate < 1)) {
    throw broken.value(`the dropout rate must lie between 0 and 1, not ${dropoutRate}`);
  }
  if ((dropoutRate !== undefined) !== extras.includes("dropoutKeys")) {
    throw broken.value("a dropout rate and keys for it belong together");
  }
  const [batch = 0, length = 0, heads = 0] = typeOf(ins, 0).shape;
  const sizes = { batch, length, keyLength: at(typeOf(ins, 1).shape, 1), heads };
  extras.forEach((name, i) => {
    checkExtra(name, typeOf(ins, first + i), sizes);
  });
}

/** The types of the first two results: the query's, and the log-sums of the softmax. */
function mixedTypes(ins: readonly Operand[]): [mixed: TensorType, logSums: TensorType] {
  const [query, key, value] = [typeOf(ins, 0), typeOf(ins, 1), typeOf(ins, 2)];
  const main = ins.slice(0, 3);
  const dtype = commonDType(main);
  require(dtype, "float");
  const [batch = 0, length = 0, heads = 0, headSize = 0] = query.shape;
  const [keyBatch, keyLength = 0, keyHeads = 0, keySize] = key.shape;
  if (main.some(({ type }) => type.shape.length !== 4)) throw broken.dim("needs operands of 4 dims");
  if (!sameNumbers(key.shape, value.shape)) throw broken.shape("key and value must have one shape");
  if (keyBatch !== batch || keySize !== headSize) {
    throw broken.shape("query and key must agree in the batch (dim 0) and the size of heads (dim 3)");
  }
  if (keyLength === 0 || keyHeads === 0) throw broken.shape("needs at least one key and one head");
  if (heads % keyHeads !== 0) {
    throw broken.shape(
      `${heads} query heads cannot share ${keyHeads} key heads (${heads} / ${keyHeads} = ${heads / keyHeads})`,
    );
  }
  return [tensorType(dtype, query.shape), tensorType(sumType(dtype), [batch, heads, length])];
}

/** The types of the results of `attention`. */
export function attentionTypes(ins: readonly Operand[], params: Attention): TensorType[] {
  if (params.extras?.includes("logSumsCotangent")) {
    throw broken.value("only the backward pass takes the cotangent of the log-sums");
  }
  if (ins.length < 3) count(ins, 3);
  const types = mixedTypes(ins);
  checkExtras("attention", ins, params);
  return types;
}

/** The types of the results of `attentionBackward`. */
export function attentionBackwardTypes(
  ins: readonly Operand[],
  params: OpParams["attentionBackward"],
): TensorType[] {
  if (ins.length < 6) count(ins, 6);
  const [mixed, logSums] = mixedTypes(ins);
  const { extras = [], wants = [] } = params;
  checkExtras("attentionBackward", ins, params);
  const [sums, ct, out] = [typeOf(ins, 3), typeOf(ins, 4), typeOf(ins, 5)];
  if (!sameType(sums, logSums)) throw broken.shape(`the log-sums must be ${formatType(logSums)}`);
  if (!sameType(ct, mixed) || !sameType(out, mixed)) {
    throw broken.shape("the result and its cotangent must have the type of the query");
  }
  const wanted = wants.map((name) => {
    if (!extras.includes(name)) throw broken.value(`no ${name} to give a cotangent of`);
    const { dtype, shape } = typeOf(ins, attentionOperands.attentionBackward + extras.indexOf(name));
    return tensorType(dtype, [...logSums.shape.slice(0, 2), ...shape.slice(2)]);
  });
  return [...ins.slice(0, 3).map(({ type: { dtype, shape } }) => tensorType(dtype, shape)), ...wanted];
}
