/** The checks of type inference rules and the errors they throw. */
import { describe } from "../describe.js";
import { type DType, isFloat, isInteger } from "../dtype.js";
import { DimError, DTypeError, ShapeError, type ShardwiseError, ValueError } from "../errors.js";
import type { Domain } from "../opFacts.js";
import type { OpName, OpParams } from "../ops.js";
import { at, formatType, type Shape, sameNumbers, type TensorType } from "../shape.js";

/** What type inference needs to know about an operand; every `Atom` has it. */
export interface Operand {
  readonly kind: "var" | "literal";
  readonly type: TensorType;
}

/** Gives the result types of one op, or throws with the rule that its operands break. */
export type TypeRule<K extends OpName> = (
  ins: readonly Operand[],
  params: OpParams[K],
  op: K,
) => TensorType[];

/** A broken rule before the op and its operands are known. */
export class RuleBroken extends Error {
  constructor(
    private readonly make: (message: string) => ShardwiseError,
    private readonly rule: string,
  ) {
    super(rule);
  }

  describe(op: OpName, ins: readonly Operand[]): ShardwiseError {
    const types = ins.map(({ type }) => formatType(type)).join(", ");
    return this.make(`[${op}] ${this.rule}; the operands are (${types})`);
  }
}

/** The ways in which a rule can be broken. */
export const broken = {
  shape: (rule: string) => new RuleBroken((m) => new ShapeError(m), rule),
  dtype: (rule: string) => new RuleBroken((m) => new DTypeError(m), rule),
  dim: (rule: string) => new RuleBroken((m) => new DimError(m), rule),
  value: (rule: string) => new RuleBroken((m) => new ValueError(m), rule),
};

/** Checks how many operands there are. */
export function count(ins: readonly Operand[], n: number): void {
  if (ins.length !== n) throw broken.value(`takes ${n} operands, not ${ins.length}`);
}

/** The type of an operand. */
export function typeOf(ins: readonly Operand[], i: number): TensorType {
  return at(ins, i).type;
}

/** The type of the only operand. */
export function sameAsOperand(ins: readonly Operand[]): TensorType[] {
  count(ins, 1);
  return [typeOf(ins, 0)];
}

/** The shape all operands agree on; scalar literals fit any. */
export function commonShape(ins: readonly Operand[]): Shape {
  const shaped = ins.filter((a) => a.kind === "var");
  const shape = shaped[0]?.type.shape ?? [];
  if (shaped.some(({ type }) => !sameNumbers(type.shape, shape))) {
    throw broken.shape("operands must have the same shape (broadcast them first)");
  }
  return shape;
}

/** The data type all operands agree on. */
export function commonDType(ins: readonly Operand[]): DType {
  const { dtype } = typeOf(ins, 0);
  if (ins.some(({ type }) => type.dtype !== dtype)) {
    throw broken.dtype("operands must have the same data type (convert them first)");
  }
  return dtype;
}

const accepts: { readonly [D in Domain]: (dtype: DType) => boolean } = {
  float: isFloat,
  number: (d) => isFloat(d) || isInteger(d),
  integer: isInteger,
  bits: (d) => isInteger(d) || d === "bool",
  any: () => true,
};

/** Whether an op with this domain is defined for a data type. */
export function isInDomain(dtype: DType, domain: Domain): boolean {
  return accepts[domain](dtype);
}

/** Checks that an op is defined for a data type. */
export function require(dtype: DType, domain: Domain): void {
  if (!isInDomain(dtype, domain)) {
    const wanted = domain === "bits" ? "integers or bool" : `${domain}s`;
    throw broken.dtype(`works on ${wanted}, not on ${dtype}`);
  }
}

/** Checks that a tensor has a dim. */
export function checkDim(dim: number, rank: number): void {
  if (!Number.isInteger(dim) || dim < 0 || dim >= rank) {
    throw broken.dim(`dim ${describe(dim)} is not one of the ${rank} dims 0 … ${rank - 1}`);
  }
}

/** Checks that something is an array of integers of the expected length. */
export function checkWholes(list: readonly number[], what: string, length?: number): void {
  if (!Array.isArray(list)) throw broken.value(`${what} must be an array of numbers, got ${describe(list)}`);
  const items: readonly unknown[] = [...list];
  if (!items.every(Number.isSafeInteger)) {
    throw broken.value(`${what} [${items.map(describe).join(",")}] must be integers`);
  }
  if (length !== undefined && list.length !== length) {
    throw broken.dim(`${what} [${list}] need one entry for each of the ${length} dims`);
  }
}

/** Checks that a number is an integer within bounds. */
export function checkWhole(n: number, what: string, min: number, max: number): void {
  if (Number.isSafeInteger(n) && n >= min && n <= max) return;
  throw broken.value(`${what} ${describe(n)} is not an integer from ${min} to ${max}`);
}

/** Checks that a tensor has dims, each named once. */
export function checkDims(dims: readonly number[], rank: number): void {
  checkWholes(dims, "dims");
  for (const dim of dims) checkDim(dim, rank);
  if (new Set(dims).size !== dims.length) throw broken.dim(`dims [${dims}] name a dim twice`);
}

/** Checks that numbers can be a shape. */
export function checkShape(shape: Shape): void {
  if (!Array.isArray(shape))
    throw broken.shape(`the shape must be an array of sizes, got ${describe(shape)}`);
  for (let d = 0; d < shape.length; d++) {
    const n: unknown = shape[d];
    if (typeof n === "number" && Number.isSafeInteger(n) && n >= 0) continue;
    throw broken.shape(`shape [${[...shape].map(describe)}] must hold integers from 0 to 2^53 - 1`);
  }
}

/** Checks the starts of a slice, one for every dim. */
export function checkStarts(starts: readonly Operand[], rank: number): void {
  if (starts.length !== rank) throw broken.value(`needs one start per dim (${rank}), not ${starts.length}`);
  for (const { type } of starts) {
    if (type.shape.length !== 0 || type.dtype !== "int32") throw broken.dtype("starts must be int32 scalars");
  }
}
