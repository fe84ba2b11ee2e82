import type { HostTensor } from "../../src/engines/reference/hostTensor.js";
import { interpret, interpretSpmd } from "../../src/engines/reference/interpret.js";
import { inferTypes } from "../../src/ir/infer/infer.js";
import type { MeshShape } from "../../src/ir/mesh.js";
import type { OpName, OpParams } from "../../src/ir/ops.js";
import {
  type Atom,
  type Eqn,
  type Literal,
  makeEqn,
  newVar,
  type Program,
  type Var,
} from "../../src/ir/program.js";
import { at, type TensorType } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";

/** Adds an equation to the program being built and gives its results. */
export type Emit = <K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K]) => Var[];

/**
 * Builds a checked program by hand.
 *
 * ```ts
 * buildProgram([type], (emit, x) => emit("neg", [x], {}))
 * ```
 */
export function buildProgram(
  types: readonly TensorType[],
  body: (emit: Emit, ...inputs: Var[]) => readonly Atom[],
): Program {
  const inputs = types.map(newVar);
  const eqns: Eqn[] = [];
  const emit: Emit = (op, ins, params) => {
    const outs = inferTypes(op, ins, params).map(newVar);
    eqns.push(makeEqn<OpName>(op, ins, outs, params));
    return outs;
  };
  const outputs = body(emit, ...inputs);
  return verify({ inputs, eqns, outputs });
}

/** A program of one equation; its inputs are the operands that are no literals. */
function programOf<K extends OpName>(
  op: K,
  operands: readonly (HostTensor | Literal)[],
  params: OpParams[K],
): Program {
  const ins = operands.map((operand) => ("kind" in operand ? operand : newVar(operand.type)));
  const outs = inferTypes(op, ins, params).map(newVar);
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
