import { getKnown, zip } from "./collections.js";
import { describe } from "./describe.js";
import { type DType, isComplex, roundTo } from "./dtype.js";
import { DTypeError, InternalError, ValueError } from "./errors.js";
import { newCounter } from "./identity.js";
import type { OpName, OpParams, ProgramOp } from "./ops.js";
import { at, formatType, type TensorType } from "./shape.js";

/** A value inside a program, defined once: by the program's inputs or by one equation. */
export interface Var {
  readonly kind: "var";
  readonly id: number;
  readonly type: TensorType;
}

/** A scalar constant; as operand of an elementwise op it fits any shape. Booleans are 0 and 1. */
export interface Literal {
  readonly kind: "literal";
  readonly value: number;
  readonly type: TensorType;
}

/** What an equation can read. */
export type Atom = Var | Literal;

/** Where in the user's source an equation was made; the text is computed only on demand. */
export interface SourceLocation {
  readonly text: string;
  /** The module that was running, as its path in the module tree such as `layers/block/mlp`. */
  readonly module?: string | undefined;
}

/** One step of a program: `outs = op(ins, params)`. */
export type Eqn<K extends OpName = OpName> = {
  [P in K]: {
    readonly op: P;
    readonly ins: readonly Atom[];
    readonly outs: readonly Var[];
    readonly params: OpParams[P];
    readonly source?: SourceLocation | undefined;
  };
}[K];

/** The fields of an equation whose op is one of K, for looking up its rule in a table of ops. */
export interface EqnParts<K extends OpName> {
  readonly op: K;
  readonly ins: readonly Atom[];
  readonly outs: readonly Var[];
  readonly params: OpParams[K];
  readonly source?: SourceLocation | undefined;
}

/** A function of tensors as data: equations in an order in which every value is defined before it is used. */
export interface Program {
  readonly inputs: readonly Var[];
  readonly eqns: readonly Eqn[];
  readonly outputs: readonly Atom[];
}

/** The numbers of values; a thread that continues the program of another leaves out those that it has used. */
export const nextValueId = newCounter();

/** A new value, different from all others. */
export function newVar(type: TensorType): Var {
  needReal(type);
  return { kind: "var", id: nextValueId(), type };
}

/** A scalar constant, rounded to its data type. */
export function newLiteral(value: number | boolean, dtype: DType): Literal {
  if (typeof value !== "number" && typeof value !== "boolean") {
    throw new DTypeError(`a scalar must be a number or a boolean, got ${describe(value)}`);
  }
  const type = { dtype, shape: [] };
  needReal(type);
  return { kind: "literal", value: roundTo(dtype, Number(value)), type };
}

/** Programs hold complex numbers as their parts, so that nothing after tracing has to support them. */
function needReal(type: TensorType): void {
  if (!isComplex(type.dtype)) return;
  throw new InternalError(`a program must hold complex numbers as their parts, got ${formatType(type)}`);
}

/** Builds an equation, keeping op and parameters correlated. */
export function makeEqn<K extends OpName>(
  op: K,
  ins: readonly Atom[],
  outs: readonly Var[],
  params: OpParams[K],
  source?: SourceLocation,
): Eqn<K> {
  return { op, ins, outs, params, source };
}

/** The equation with each operand replaced by what `change` returns; the same object if none changes. */
export function mapOperands(eqn: Eqn, change: (atom: Atom) => Atom): Eqn {
  let changed: Atom[] | undefined;
  let i = 0;
  for (const atom of eqn.ins) {
    const other = change(atom);
    if (other !== atom) {
      changed ??= [...eqn.ins];
      changed[i] = other;
    }
    i++;
  }
  return changed ? { ...eqn, ins: changed } : eqn;
}

/** Maps a program inside an equation; the name is that of its parameter. */
type Change = (program: Program, name: string) => Program;

/** The parameters of every op with inner programs, with each of those mapped. */
const changeBodies: { readonly [K in ProgramOp]: (params: OpParams[K], change: Change) => OpParams[K] } = {
  scan: (p, change) => ({ ...p, body: change(p.body, "body") }),
  while: (p, change) => ({
    ...p,
    condition: change(p.condition, "condition"),
    body: change(p.body, "body"),
  }),
  cond: (p, change) => ({ ...p, branches: p.branches.map((b, i) => change(b, `branch ${i}`)) }),
  remat: (p, change) => ({ ...p, body: change(p.body, "body") }),
  customVjp: (p, change) => ({
    ...p,
    body: change(p.body, "body"),
    forward: change(p.forward, "forward"),
    backward: change(p.backward, "backward"),
  }),
  shardMap: (p, change) => ({ ...p, body: change(p.body, "body") }),
};

/** Whether the op carries programs inside. */
export function isProgramOp(op: OpName): op is ProgramOp {
  return Object.hasOwn(changeBodies, op);
}

/** Whether the equation carries programs inside. */
export function hasPrograms(eqn: Eqn): eqn is Eqn<ProgramOp> {
  return isProgramOp(eqn.op);
}

/** The same equation with its inner programs replaced, in the order of {@link innerPrograms}. */
export function mapInnerPrograms(eqn: Eqn, change: Change): Eqn {
  return hasPrograms(eqn) ? withChangedBodies(eqn, change) : eqn;
}

function withChangedBodies<K extends ProgramOp>(eqn: Eqn<K>, change: Change): Eqn<K> {
  const { op, ins, outs, params, source }: EqnParts<K> = eqn;
  return makeEqn(op, ins, outs, changeBodies[op](params, change), source);
}

/** The parameters of an op with its inner programs replaced by others, in the order of {@link innerPrograms}. */
export function withPrograms<K extends ProgramOp>(
  op: K,
  params: OpParams[K],
  programs: readonly Program[],
): OpParams[K] {
  let next = 0;
  return changeBodies[op](params, () => at(programs, next++));
}

/** The programs an equation carries inside, with the names they have in its parameters. */
export function innerPrograms(eqn: Eqn): readonly (readonly [name: string, program: Program])[] {
  const found: (readonly [string, Program])[] = [];
  mapInnerPrograms(eqn, (program, name) => {
    found.push([name, program]);
    return program;
  });
  return found;
}

/**
 * Walks a program from its inputs to its outputs, and returns what the outputs stand for.
 *
 * @param inputs what the inputs stand for
 * @param literal what a constant stands for
 * @param apply what the results of an equation stand for, given its operands
 */
export function evaluateProgram<T>(
  program: Program,
  inputs: readonly T[],
  literal: (literal: Literal) => T,
  apply: (eqn: Eqn, operands: readonly T[]) => readonly T[],
): T[] {
  const values = new Map<number, T>();
  const define = (vars: readonly Var[], given: readonly T[]): void => {
    for (const [{ id }, value] of zip(vars, given)) values.set(id, value);
  };
  const read = (atom: Atom): T => (atom.kind === "literal" ? literal(atom) : getKnown(values, atom.id));
  define(program.inputs, inputs);
  for (const eqn of program.eqns) define(eqn.outs, apply(eqn, eqn.ins.map(read)));
  return program.outputs.map(read);
}

/**
 * Calls `visit` for every equation of the program and of the programs inside it.
 *
 * @example
 * ```ts
 * const ops: string[] = [];
 * engines.forEachEqn(makeProgram((x: Tensor) => x.mul(x))(np.array([1, 2])), (eqn) => ops.push(eqn.op));
 * ops; // ["mul"]
 * ```
 */
export function forEachEqn(program: Program, visit: (eqn: Eqn) => void): void {
  if (!Array.isArray(program?.eqns) || typeof visit !== "function") {
    throw new ValueError("[forEachEqn] needs a program and a function of its equations");
  }
  for (const eqn of program.eqns) {
    visit(eqn);
    for (const [, inner] of innerPrograms(eqn)) forEachEqn(inner, visit);
  }
}

/** Whether one of these equations, or of those in the programs inside them, satisfies the predicate. */
export function someEqn({ eqns }: Pick<Program, "eqns">, isSuch: (eqn: Eqn) => boolean): boolean {
  return eqns.some((eqn) => isSuch(eqn) || innerPrograms(eqn).some(([, inner]) => someEqn(inner, isSuch)));
}
