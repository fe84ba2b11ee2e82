import { type DType, roundTo } from "./dtype.js";
import type { OpName, OpParams } from "./ops.js";
import type { TensorType } from "./shape.js";

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

/** Where in the user's source an equation was made; the text is worked out only when asked for. */
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

/** A function of tensors as data: equations in an order in which every value is defined before it is used. */
export interface Program {
  readonly inputs: readonly Var[];
  readonly eqns: readonly Eqn[];
  readonly outputs: readonly Atom[];
}

let nextId = 0;

/** A new value, different from all others. */
export function newVar(type: TensorType): Var {
  return { kind: "var", id: nextId++, type };
}

/** A scalar constant, rounded to its data type. */
export function newLiteral(value: number | boolean, dtype: DType): Literal {
  return { kind: "literal", value: roundTo(dtype, Number(value)), type: { dtype, shape: [] } };
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

/** The programs an equation carries inside, with the names they have in its parameters. */
export function innerPrograms(eqn: Eqn): readonly (readonly [name: string, program: Program])[] {
  switch (eqn.op) {
    case "scan":
    case "remat":
    case "shardMap":
      return [["body", eqn.params.body]];
    case "while":
      return [
        ["condition", eqn.params.condition],
        ["body", eqn.params.body],
      ];
    case "cond":
      return eqn.params.branches.map((branch, i) => [`branch ${i}`, branch] as const);
    case "customVjp":
      return [
        ["body", eqn.params.body],
        ["forward", eqn.params.forward],
        ["backward", eqn.params.backward],
      ];
    default:
      return [];
  }
}

/** The same equation with its inner programs replaced, in the order of {@link innerPrograms}. */
export function mapInnerPrograms(eqn: Eqn, change: (program: Program, name: string) => Program): Eqn {
  switch (eqn.op) {
    case "scan":
      return { ...eqn, params: { ...eqn.params, body: change(eqn.params.body, "body") } };
    case "remat":
      return { ...eqn, params: { ...eqn.params, body: change(eqn.params.body, "body") } };
    case "shardMap":
      return { ...eqn, params: { ...eqn.params, body: change(eqn.params.body, "body") } };
    case "while": {
      const condition = change(eqn.params.condition, "condition");
      return { ...eqn, params: { ...eqn.params, condition, body: change(eqn.params.body, "body") } };
    }
    case "cond": {
      const branches = eqn.params.branches.map((branch, i) => change(branch, `branch ${i}`));
      return { ...eqn, params: { branches } };
    }
    case "customVjp": {
      const body = change(eqn.params.body, "body");
      const forward = change(eqn.params.forward, "forward");
      return {
        ...eqn,
        params: { ...eqn.params, body, forward, backward: change(eqn.params.backward, "backward") },
      };
    }
    default:
      return eqn;
  }
}

/** Calls `visit` for every equation of the program and of the programs inside it. */
export function forEachEqn(program: Program, visit: (eqn: Eqn) => void): void {
  for (const eqn of program.eqns) {
    visit(eqn);
    for (const [, inner] of innerPrograms(eqn)) forEachEqn(inner, visit);
  }
}
