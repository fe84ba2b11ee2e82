import { type HostTensor, hostTensor } from "../../../src/engines/reference/hostTensor.js";
import { type DType, isFloat, isUnsigned } from "../../../src/ir/dtype.js";
import { inferTypes } from "../../../src/ir/infer/infer.js";
import type { MeshShape } from "../../../src/ir/mesh.js";
import type { OpName, OpParams } from "../../../src/ir/ops.js";
import { type Atom, type Literal, makeEqn, newVar, type Program } from "../../../src/ir/program.js";
import { range, type Shape, sizeOf } from "../../../src/ir/shape.js";
import { verify } from "../../../src/ir/verify.js";

/** One program with inputs, to be run on any engine and compared with the reference interpreter. */
export interface EngineCase {
  readonly name: string;
  readonly program: Program;
  readonly mesh: MeshShape;
  /** For every input one block per mesh position. */
  readonly inputs: readonly (readonly HostTensor[])[];
}

/** A mesh without axes: one device. */
export const oneDevice: MeshShape = { axes: [] };

/** Deterministic numbers between −1 and 1 that follow no pattern a kernel could get right by accident. */
export function noise(n: number, seed: number): number[] {
  let state = (seed * 0x9e3779b9 + 0x7f4a7c15) >>> 0;
  return range(n).map(() => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x297a2d39) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 31 - 1;
  });
}

/** What kind of numbers an operand holds. */
export type Fill = "any" | "positive" | "unit" | "small" | "index" | "bits";

/** A tensor of noise: `any` −8 … 8, `positive` 0.05 … 8, `unit` inside −1 … 1, `index` 0 … 3, `bits` all bits. */
export function sample(dtype: DType, shape: Shape, fill: Fill, seed: number): HostTensor {
  const numbers = noise(sizeOf(shape), seed).map((x) => {
    if (dtype === "bool") return x > 0 ? 1 : 0;
    const scaled = {
      any: 8 * x,
      positive: 0.05 + 4 * (x + 1),
      unit: 0.99 * x,
      small: 2 * x,
      index: Math.floor(1.9999 * (x + 1)),
      bits: Math.floor(x * 2 ** 31),
    }[fill];
    if (isFloat(dtype)) return scaled;
    return isUnsigned(dtype) && fill !== "bits" ? Math.abs(Math.trunc(scaled)) : Math.trunc(scaled);
  });
  return hostTensor(dtype, shape, numbers);
}

/** An operand: a tensor, or a scalar that stays a literal. */
export type Operand = HostTensor | Literal;

/** A case of one op on one device. */
export function opCase<K extends OpName>(
  op: K,
  operands: readonly Operand[],
  params: OpParams[K],
): EngineCase {
  return spmdCase(
    op,
    oneDevice,
    operands.map((operand) => ("kind" in operand ? operand : [operand])),
    params,
  );
}

/** A case of one op on the devices of a mesh: every operand is a literal or one block per device. */
export function spmdCase<K extends OpName>(
  op: K,
  mesh: MeshShape,
  operands: readonly (Literal | readonly HostTensor[])[],
  params: OpParams[K],
): EngineCase {
  const inputs: (readonly HostTensor[])[] = [];
  const ins = operands.map((operand): Atom => {
    if ("kind" in operand) return operand;
    const [first] = operand;
    if (first === undefined) throw new RangeError("[spmdCase] an operand needs at least one block");
    inputs.push(operand);
    return newVar(first.type);
  });
  const outs = inferTypes(op, ins, params).map(newVar);
  const program = verify({
    inputs: ins.filter((atom) => atom.kind === "var"),
    eqns: [makeEqn<OpName>(op, ins, outs, params)],
    outputs: outs,
  });
  const types = [...ins, ...outs].map(({ type }) => type);
  const shapes = types.map(({ dtype, shape }) => `${dtype}[${shape}]`).join(" ");
  return { name: `${op} ${shapes}`, program, mesh, inputs };
}
