import { zip } from "../../ir/collections.js";
import type { DType } from "../../ir/dtype.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import {
  type Atom,
  type Eqn,
  type Literal,
  makeEqn,
  mapOperands,
  newVar,
  type Program,
  type SourceLocation,
  type Var,
} from "../../ir/program.js";
import { at, type Shape, type TensorType, tensorType } from "../../ir/shape.js";

/** What a rewritten program may contain. */
export interface RewriteOptions {
  /** Whether matrix products take bfloat16 operands. */
  readonly bfloat16Products?: boolean | undefined;
  /** Whether matrix products take float16 operands. */
  readonly float16Products?: boolean | undefined;
  /**
   * Whether it is for a GPU, which has no steps for products of groups of rows and exchanges of them, and needs many
   * heads and many parts of sums at a time.
   */
  readonly gpu?: boolean | undefined;
  /** Whether attention that machine code computes in one piece is a step; otherwise it is products and a softmax. */
  readonly attentionSteps?: boolean | undefined;
}

/** Rewrites a program: every equation is passed to a rule, which emits others or replaces its results. */
export class Rewriter {
  private readonly eqns: Eqn[] = [];
  private values = new Map<number, Atom>();
  private readonly definitions = new Map<number, Eqn>();
  private source: SourceLocation | undefined;

  /** @param rule what becomes of an equation whose operands are rewritten already */
  constructor(
    private readonly rule: (rewriter: Rewriter, eqn: Eqn) => void,
    readonly options: RewriteOptions = {},
  ) {}

  /** The program with its equations rewritten. */
  program(program: Program): Program {
    for (const eqn of program.eqns) this.eqn(eqn);
    return { inputs: program.inputs, eqns: this.eqns, outputs: program.outputs.map((a) => this.atom(a)) };
  }

  private eqn(eqn: Eqn): void {
    this.source = eqn.source ?? this.source;
    const own = mapOperands(eqn, (a) => this.atom(a));
    this.rule(this, own);
  }

  private atom(atom: Atom): Atom {
    return atom.kind === "var" ? (this.values.get(atom.id) ?? atom) : atom;
  }

  /** Keeps an equation as it is. */
  keep(eqn: Eqn): void {
    this.eqns.push(eqn);
    for (const out of eqn.outs) this.definitions.set(out.id, eqn);
  }

  /** The equation of the rewritten program that computes a value; undefined for inputs and literals. */
  definitionOf(atom: Atom): Eqn | undefined {
    return atom.kind === "var" ? this.definitions.get(atom.id) : undefined;
  }

  /** Emits an equation with the given results. */
  emit<K extends OpName>(op: K, ins: readonly Atom[], outs: readonly Var[], params: OpParams[K]): void {
    this.keep(makeEqn<OpName>(op, ins, outs, params, this.source));
  }

  /** Emits an op with one result of the given type and gives the result. */
  make<K extends OpName>(op: K, ins: readonly Atom[], type: TensorType, params: OpParams[K]): Var {
    const out = newVar(type);
    this.emit(op, ins, [out], params);
    return out;
  }

  /** Replaces a result by an existing value; a literal is broadcast to the result's shape. */
  replace(out: Var, by: Atom): void {
    if (by.kind === "literal" && out.type.shape.length > 0) this.splat(by, out);
    else this.values.set(out.id, by);
  }

  /** Replaces an equation by a program, whose equations are rewritten too. */
  inline(program: Program, { ins, outs }: Eqn): void {
    for (const [input, atom] of zip(program.inputs, ins)) this.replace(input, atom);
    for (const eqn of program.eqns) this.eqn(eqn);
    for (const [out, result] of zip(outs, program.outputs)) this.replace(out, this.atom(result));
  }

  /** Replaces a result by a constant. */
  splat(literal: Literal, out: Var): void {
    this.emit("broadcastInDim", [literal], [out], { shape: out.type.shape, dims: [] });
  }

  /** The value in another data type. */
  convert(x: Atom, dtype: DType): Var {
    return this.make("convert", [x], tensorType(dtype, x.type.shape), { dtype });
  }

  /** The value in another shape. */
  reshape(x: Atom, shape: Shape): Var {
    return this.make("reshape", [x], tensorType(x.type.dtype, shape), { shape });
  }

  /** The value with its dims in another order. */
  transpose(x: Atom, permutation: readonly number[]): Atom {
    if (permutation.every((p, i) => p === i)) return x;
    const shape = permutation.map((d) => at(x.type.shape, d));
    return this.make("transpose", [x], tensorType(x.type.dtype, shape), { permutation });
  }
}
