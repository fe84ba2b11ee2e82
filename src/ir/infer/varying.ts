import { isFloat } from "../dtype.js";
import type { MeshAxis } from "../mesh.js";
import type { AxisOp, OpName, OpParams, ProgramOp } from "../ops.js";
import type { Program } from "../program.js";
import { at, type TensorType } from "../shape.js";

/**
 * Inside a shard map with the replication check every type says along which axes the value may differ from device to
 * device. A value that is equal along an axis and is combined with one that is not is marked by `pvary`, whose
 * transpose is a sum: a value that all devices share gets the sum of their cotangents. The sum of a varying value
 * transposes to `pvary`. JAX's `check_vma` works the same way.
 */
interface Operand {
  readonly kind: "var" | "literal";
  readonly type: TensorType;
}

type Axes = readonly MeshAxis[];

const none: Axes = [];

/** The axes along which a value of this type may differ. */
export function varyingAxes({ varying }: TensorType): Axes {
  return varying ?? none;
}

/** Whether a value of this type may differ along the named axis. */
export function varies(type: TensorType, name: string): boolean {
  return varyingAxes(type).some((axis) => axis.name === name);
}

/** The axes of `wanted` that are not among `given`. */
export function missingAxes(given: Axes, wanted: Axes): MeshAxis[] {
  return wanted.filter(({ name }) => !given.some((axis) => axis.name === name));
}

/** Whether none of the operands may differ along any axis. */
export function nothingVaries(ins: readonly Operand[]): boolean {
  for (const { type } of ins) if (type.varying !== undefined) return false;
  return true;
}

/** Whether two types may differ along the same axes. */
export function varyAlike(a: TensorType, b: TensorType): boolean {
  if (a.varying === b.varying) return true;
  const [one, other] = [varyingAxes(a), varyingAxes(b)];
  return one.length === other.length && missingAxes(one, other).length === 0;
}

/** All axes of some lists, each once. */
export function joinAxes(lists: readonly Axes[]): Axes {
  let all = none;
  for (const axes of lists) {
    const more = missingAxes(all, axes);
    if (more.length > 0) all = [...all, ...more];
  }
  return all;
}

/** The type of a value that may differ along exactly these axes. */
export function varyingAlong(type: TensorType, axes: Axes): TensorType {
  if (axes.length === 0 && !type.varying) return type;
  const { varying: _, ...equal } = type;
  return axes.length === 0 ? equal : { ...equal, varying: axes };
}

/** Along which axes the results of an op may differ. */
type Rule<K extends OpName> = (ins: readonly Operand[], params: OpParams[K]) => readonly Axes[];

const union = (ins: readonly Operand[]): Axes => joinAxes(ins.map(({ type }) => varyingAxes(type)));
const of = (atoms: readonly Operand[]): Axes[] => atoms.map(({ type }) => varyingAxes(type));

const reduced: Rule<"psum" | "pmax" | "pmin"> = (ins, { axes }) => [missingAxes(axes, union(ins))];
const kept: Rule<OpName> = (ins) => [union(ins)];

/** The ops whose results do not simply differ along the axes of all operands. */
const specialRules: {
  readonly [K in AxisOp | ProgramOp | "pvary" | "optimizationBarrier" | "callback"]: Rule<K>;
} = {
  psum: reduced,
  pmax: reduced,
  pmin: reduced,
  allGather: kept,
  psumScatter: kept,
  ppermute: kept,
  allToAll: kept,
  raggedAllToAll: kept,
  axisIndex: () => [none],
  pvary: (ins, { over }) => [joinAxes([union(ins), over])],
  optimizationBarrier: of,
  // Operands of host callbacks have no cotangents, so nothing has to be marked.
  callback: (ins, { results }) => results.map(() => union(ins)),
  scan: (_, { body, numConsts, numCarry }) => [
    ...of(body.inputs.slice(numConsts, numConsts + numCarry)),
    ...of(body.outputs.slice(numCarry)),
  ],
  while: (_, { body, numBodyConsts }) => of(body.inputs.slice(numBodyConsts)),
  cond: (_, { branches }) => of(at(branches, 0).outputs),
  remat: (_, { body }) => of(body.outputs),
  customVjp: (_, { body }) => of(body.outputs),
  shardMap: (_, { body, manual }) =>
    of(body.outputs).map((axes) => axes.filter(({ name }) => !manual.includes(name))),
};

const rules: { readonly [K in OpName]?: Rule<K> } = specialRules;

/**
 * Whether the results of an op are equal on all devices when its operands are; inner programs and `pvary` make them
 * differ.
 */
export function keepsEqual(op: OpName): boolean {
  return op !== "pvary" && !Object.hasOwn(bodyInputs, op) && op !== "shardMap";
}

/** Along which axes each result of an op may differ. */
export function resultVarying<K extends OpName>(
  op: K,
  ins: readonly Operand[],
  params: OpParams[K],
  numResults: number,
): readonly Axes[] {
  const rule: Rule<K> | undefined = rules[op];
  if (rule) return rule(ins, params);
  const all = union(ins);
  return Array.from({ length: numResults }, () => all);
}

type Inputs<K extends OpName> = (params: OpParams[K]) => readonly Operand[];

/** The operands as inputs of inner programs; a shard map's blocks vary in any case. */
const bodyInputs: { readonly [K in Exclude<ProgramOp, "shardMap">]: Inputs<K> } = {
  scan: ({ body }) => body.inputs,
  while: ({ condition, body, numConditionConsts }) => [
    ...condition.inputs.slice(0, numConditionConsts),
    ...body.inputs,
  ],
  cond: ({ branches }) => [scalarIndex, ...sharedInputs(branches)],
  remat: ({ body }) => body.inputs,
  customVjp: ({ body }) => body.inputs,
};

const scalarIndex: Operand = { kind: "literal", type: { dtype: "int32", shape: [] } };

function sharedInputs(branches: readonly Program[]): readonly Operand[] {
  return at(branches, 0).inputs.map(({ kind, type }, i) => ({
    kind,
    type: varyingAlong(type, joinAxes(branches.map(({ inputs }) => varyingAxes(at(inputs, i).type)))),
  }));
}

const inputsOf: { readonly [K in OpName]?: Inputs<K> } = bodyInputs;

/** Whether no operand needs a mark, because nothing they are combined with may differ. */
export function needNoMarks(op: OpName, ins: readonly Operand[]): boolean {
  return inputsOf[op] === undefined && nothingVaries(ins);
}

/** Along which axes each operand must be marked as differing before the op takes it. */
export function operandVarying<K extends OpName>(
  op: K,
  ins: readonly Operand[],
  params: OpParams[K],
): readonly Axes[] {
  const inputs: Inputs<K> | undefined = inputsOf[op];
  if (inputs) return of(inputs(params));
  if (rules[op]) return of(ins);
  const all = union(ins);
  // Only floats have cotangents, and those of constants are not used.
  return ins.map(({ kind, type }) => (kind === "var" && isFloat(type.dtype) ? all : varyingAxes(type)));
}
