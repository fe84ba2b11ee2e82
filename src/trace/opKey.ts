import { ValueError } from "../ir/errors.js";
import type { OpName, OpParams } from "../ir/ops.js";
import { isProgramOp } from "../ir/program.js";
import type { Tensor } from "./tensor.js";

/**
 * A key that two applications of ops share only if their programs are equal: op, parameters, types of the operands and
 * scalar constants. Ops with inner programs have none.
 */
export function opKey<K extends OpName>(
  op: K,
  ins: readonly Tensor[],
  params: OpParams[K],
): string | undefined {
  if (isProgramOp(op)) return undefined;
  return `${op}${hasFields(params) ? paramsKey(op, params) : ""}${typesKey(ins)}`;
}

/** Parameters are plain data; anything else, which callers without type checking may pass, has no key. */
function paramsKey(op: OpName, params: object): string {
  try {
    return JSON.stringify(params);
  } catch {
    const names = Object.keys(params).join(", ");
    throw new ValueError(`[${op}] its parameters (${names}) must be numbers, strings and arrays of them`);
  }
}

function hasFields(params: object): boolean {
  for (const _ in params) return true;
  return false;
}

/** The part of a key that distinguishes operands: types, and the values of scalar constants. */
export function typesKey(ins: readonly Tensor[]): string {
  let key = "";
  for (const { node, type } of ins) {
    key += ` ${type.dtype}${type.weak ? "?" : ""}[${type.shape.join()}]`;
    if (node.kind === "literal") key += Object.is(node.literal.value, -0) ? "=-0" : `=${node.literal.value}`;
  }
  return key;
}
