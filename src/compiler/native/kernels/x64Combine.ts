import { InternalError } from "../../../ir/errors.js";
import type { VectorOp } from "../../wasm/opcodes.js";
import type { Vector } from "../x64/operands.js";
import { isLaneInstruction, laneInstructions, type Operands } from "./x64Lanes.js";
import type { StorageTools } from "./x64Storage.js";

/** `to = op(a, b)` on given registers, where `to` may be one of the operands. */
export function combineVectors(tools: StorageTools, op: VectorOp, to: Vector, a: Vector, b: Vector): void {
  if (!isLaneInstruction(op)) throw new InternalError(`[combineVectors] there is no machine code for ${op}`);
  const given = [a, b];
  const register = (arg: number): Vector => {
    const vector = given[arg];
    if (vector === undefined) throw new InternalError(`[combineVectors] ${op} has two operands`);
    return vector;
  };
  let result = to;
  const operands: Operands = {
    ...{ x: tools.x, isWide: to.bits === 512 },
    isInRegister: () => true,
    dies: () => false,
    ...{ register, any: register },
    result: () => to,
    separateResult: () => {
      result = tools.temporary();
      return result;
    },
    resultIn: register,
    ...{ temporary: tools.temporary, constant: tools.constant },
  };
  laneInstructions[op](operands);
  if (result.id !== to.id) tools.x.vmovups(to, result);
}
