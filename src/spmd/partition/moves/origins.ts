import type { Eqn } from "../../../ir/program.js";
import { at, range, type Shape, sizeOf } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";
import { emitLocal, type LocalContext } from "../blocks/localOps.js";
import { besides, movedDims } from "../placement/rowValues.js";

/** A value from which another is computed row by row: its rows may be smaller to send. */
export interface Origin {
  readonly operand: Tensor;
  /** For every dim of the value, the corresponding dim of the operand, if any. */
  readonly dims: readonly (number | undefined)[];
  readonly apply: (rows: Tensor) => Tensor;
}

/** What each device's blocks were computed from, row by row: products, and slices and reshapes of products. */
export class Origins {
  private readonly known = new WeakMap<Tensor, Origin>();

  /** What a block was computed from, if known. */
  readonly of = (block: Tensor): Origin | undefined => this.known.get(block);

  /** Records what the result of an equation was computed from. */
  note(eqn: Eqn, operands: readonly Tensor[], result: Tensor, context: LocalContext): void {
    const origin = this.find(eqn, operands, result, context);
    if (origin) this.known.set(result, origin);
  }

  private find(
    eqn: Eqn,
    operands: readonly Tensor[],
    result: Tensor,
    context: LocalContext,
  ): Origin | undefined {
    if (eqn.op === "dotGeneral") return ofProduct(eqn, operands, context);
    const [operand] = operands;
    const before = operand && this.known.get(operand);
    if (before === undefined) return undefined;
    if (eqn.op === "slice") return afterSlice(eqn, before);
    return eqn.op === "reshape" ? afterReshape(eqn, before, result) : undefined;
  }
}

/** The rows of a product are computed from those of its first operand. */
function ofProduct(eqn: Eqn<"dotGeneral">, operands: readonly Tensor[], context: LocalContext): Origin {
  const { lhsBatch, lhsContract } = eqn.params;
  const operand = at(operands, 0);
  const free = range(operand.ndim).filter((d) => !lhsBatch.includes(d) && !lhsContract.includes(d));
  const dims = [...lhsBatch.map(() => undefined), ...free];
  const apply = (rows: Tensor) => at(emitLocal(eqn, [rows, ...operands.slice(1)], context), 0);
  return { operand, dims, apply };
}

function afterSlice(eqn: Eqn<"slice">, { operand, dims, apply }: Origin): Origin {
  const moved = movedDims(eqn);
  const { after } = besides(eqn, [], undefined);
  return {
    operand,
    dims: dims.map((from, d) => (moved.includes(d) ? undefined : from)),
    apply: (rows) => {
      const made = apply(rows);
      return after ? after(made) : made;
    },
  };
}

function afterReshape(eqn: Eqn<"reshape">, { operand, dims, apply }: Origin, { shape }: Tensor): Origin {
  const same = sameDims(at(eqn.ins, 0).type.shape, at(eqn.outs, 0).type.shape);
  return {
    operand,
    dims: same.map((from) => (from === undefined ? undefined : dims[from])),
    apply: (rows) => {
      const made = apply(rows);
      const own = shape.map((n, d) => made.shape[same[d] ?? -1] ?? n);
      return ops.reshape(made, own);
    },
  };
}

/** For every dim of a reshaped tensor, the original dim with the same elements, if there is one. */
function sameDims(from: Shape, to: Shape): (number | undefined)[] {
  const before = (shape: Shape, d: number) => sizeOf(shape.slice(0, d));
  return to.map((n, d) => {
    const found = from.findIndex((m, e) => m === n && n > 1 && before(from, e) === before(to, d));
    return found < 0 ? undefined : found;
  });
}
