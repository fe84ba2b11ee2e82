import { allocateHost, type DType, isFloat } from "../../ir/dtype.js";
import type { OpName } from "../../ir/ops.js";
import { makeEqn, newVar, type Program } from "../../ir/program.js";
import { type ScalarFunction, scalarFunctions } from "../../ir/scalarFunctions.js";
import { at, range, sizeOf, type TensorType, tensorType } from "../../ir/shape.js";
import type { HostTensor } from "../reference/hostTensor.js";
import { type Lanes, takeLane } from "../reference/rule.js";
import { type InlineProgram, runNow } from "./compiledProgram.js";

/** The number of elements that go through a kernel at once: few enough that copying them takes negligible time. */
const CHUNK = 512;

/** Ops whose last bits differ between kernels and the interpreter: they invert a root that is rounded already. */
type KernelFunction = ScalarFunction | "rsqrt";

const isFunction = (op: OpName): op is KernelFunction => op === "rsqrt" || Object.hasOwn(scalarFunctions, op);

/**
 * Functions such as e^x for the interpreter, computed by the kernels of compiled programs: a program gives the same
 * bits before and after it is compiled. Functions of float64 agree without it.
 */
export class KernelFunctions {
  private readonly programs = new Map<string, InlineProgram | undefined>();

  /** @param load compiles a program; returns undefined if that is not possible */
  constructor(private readonly load: (program: Program) => InlineProgram | undefined) {}

  /** The result of an equation on all lanes, or undefined if kernels do not compute it. */
  readonly evaluate = (
    op: OpName,
    ins: readonly Lanes[],
    types: readonly TensorType[],
  ): Lanes[] | undefined => {
    if (!isFunction(op)) return undefined;
    const type = at(types, 0);
    if (!isFloat(type.dtype) || type.dtype === "float64") return undefined;
    const program = this.programOf(op, type.dtype, ins.length);
    if (!program) return undefined;
    const rows = at(ins, 0).map((_, lane) => takeLane(ins, lane));
    const first = inChunks(program, at(rows, 0), type);
    const lanes = rows.map((row, lane) => {
      // Devices that hold identical operands share a result.
      const isShared = lane === 0 || row.every((tensor, i) => tensor === at(rows, 0)[i]);
      return isShared ? first : inChunks(program, row, type);
    });
    return lanes.every((tensor) => tensor !== undefined) ? [lanes] : undefined;
  };

  /** Releases the kernels' memory; nothing can be computed afterwards. */
  release(): void {
    for (const program of this.programs.values()) program?.release();
    this.programs.clear();
  }

  private programOf(op: KernelFunction, dtype: DType, numOperands: number): InlineProgram | undefined {
    const key = `${op} ${dtype}`;
    if (!this.programs.has(key)) {
      const type = tensorType(dtype, [CHUNK]);
      const [inputs, out] = [range(numOperands).map(() => newVar(type)), newVar(type)];
      this.programs.set(key, this.load({ inputs, eqns: [makeEqn(op, inputs, [out], {})], outputs: [out] }));
    }
    return this.programs.get(key);
  }
}

/** Runs a program of one chunk over operands of any size; scalars are broadcast. */
function inChunks(
  program: InlineProgram,
  operands: readonly HostTensor[],
  type: TensorType,
): HostTensor | undefined {
  const size = sizeOf(type.shape);
  const data = allocateHost(type.dtype, size);
  const chunks = operands.map(() => ({
    type: tensorType(type.dtype, [CHUNK]),
    data: allocateHost(type.dtype, CHUNK),
  }));
  for (let start = 0; start < size; start += CHUNK) {
    const end = Math.min(start + CHUNK, size);
    operands.forEach((operand, i) => {
      const chunk = at(chunks, i).data;
      if (operand.data.length === size) chunk.set(operand.data.subarray(start, end));
      else chunk.fill(operand.data[0] ?? 0);
    });
    const [[result] = []] =
      runNow(
        program,
        chunks.map((chunk) => [chunk]),
      ) ?? [];
    if (!result) return undefined;
    data.set(result.data.subarray(0, end - start), start);
  }
  return { type, data };
}
