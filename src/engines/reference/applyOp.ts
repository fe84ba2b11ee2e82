import { inferTypes } from "../../ir/infer.js";
import type { MeshShape } from "../../ir/mesh.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import { type Literal, makeEqn, newVar, type Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { interpret, interpretSpmd } from "./interpret.js";
import type { HostTensor } from "./tensor.js";

/** A checked program of one equation; its inputs are the operands that are no literals. */
function programOf<K extends OpName>(
  op: K,
  operands: readonly (HostTensor | Literal)[],
  params: OpParams[K],
): Program {
  const ins = operands.map((operand) => ("kind" in operand ? operand : newVar(operand.type)));
  const outs = inferTypes(op, ins, params).map((type) => newVar(type));
  const inputs = ins.filter((atom) => atom.kind === "var");
  return verify({ inputs, eqns: [makeEqn<OpName>(op, ins, outs, params)], outputs: outs });
}

/**
 * Evaluates one op on tensors; literals among the operands stay literals.
 *
 * ```ts
 * const [y] = applyOp("transpose", [x], { permutation: [1, 0] });
 * ```
 */
export function applyOp<K extends OpName>(
  op: K,
  operands: readonly (HostTensor | Literal)[],
  params: OpParams[K],
): HostTensor[] {
  const tensors = operands.filter((operand): operand is HostTensor => !("kind" in operand));
  return interpret(programOf(op, operands, params), tensors);
}

/** Evaluates one op on all devices of a mesh; every operand is a list of blocks, one per device. */
export function applyOpSpmd<K extends OpName>(
  op: K,
  mesh: MeshShape,
  operands: readonly (readonly HostTensor[])[],
  params: OpParams[K],
): HostTensor[][] {
  const first = operands.map((blocks) => at(blocks, 0));
  return interpretSpmd(programOf(op, first, params), mesh, operands);
}
