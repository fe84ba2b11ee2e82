/** What rules of derivatives take and return. */
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Eqn, Program } from "../../ir/program.js";
import type { TensorType } from "../../ir/shape.js";
import type { Tensor } from "../../trace/tensor.js";
import type { KeptInside, Saved } from "./keep.js";

/** The derivative of a scalar by some value; `null` stands for zeros, which are not computed. */
export type TensorCotangent = Tensor | null;

/** A function's results, and the map from their cotangents to those of its arguments. */
export interface Linearized {
  readonly outs: readonly Tensor[];
  readonly pullback: (cotangents: readonly TensorCotangent[]) => TensorCotangent[];
}

/**
 * How an op is differentiated:
 * * `pull`: from the cotangents of its results to a thunk for each operand (called where it is needed);
 * * `linearize`: ops with inner programs also choose what the forward pass keeps;
 * * `zero`: the results do not change with the operands (almost everywhere);
 * * `unsupported`: there is no derivative, and the reason says what to do instead.
 *
 * Tangents of an op that has a program of smaller ops are those of the program.
 */
export type VjpRule<K extends OpName> =
  | { readonly kind: "pull"; readonly pull: Pull<K>; readonly programOf?: ProgramOf<K> }
  | { readonly kind: "linearize"; readonly linearize: LinearizeRule<K>; readonly programOf?: ProgramOf<K> }
  | { readonly kind: "zero" }
  | { readonly kind: "unsupported"; readonly reason: string };

/** The program of smaller ops that an op stands for. */
export type ProgramOf<K extends OpName> = (params: OpParams[K], types: readonly TensorType[]) => Program;

/** What a `pull` rule is given. */
export interface PullContext<K extends OpName> {
  /** The cotangent of the first result. */
  readonly ct: Tensor;
  readonly cts: readonly Tensor[];
  /** The original cotangents: `null` where a result has none. */
  readonly given: readonly TensorCotangent[];
  /** Which operands need a cotangent. */
  readonly active: readonly boolean[];
  readonly ins: readonly Tensor[];
  readonly outs: readonly Tensor[];
  readonly params: OpParams[K];
}

/** Gives for every operand a function that computes its cotangent, or `null` where it has none. */
export type Pull<K extends OpName> = (context: PullContext<K>) => readonly ((() => Tensor) | null)[];

/** Differentiates an op with inner programs, some of whose values may be known. */
export type LinearizeRule<K extends OpName> = (
  ins: readonly Tensor[],
  params: OpParams[K],
  active: readonly boolean[],
  tools: LinearizeTools,
  known: readonly KeptInside[],
) => Linearized;

/** The functions of `linearize.ts`, which rules of ops with inner programs call recursively. */
export interface LinearizeTools {
  linearize(program: Program, ins: readonly Tensor[], active: readonly boolean[], saved?: Saved): Linearized;
  outputActivity(program: Program, active: readonly boolean[]): boolean[];
  operandActivity(program: Program, active: readonly boolean[]): ReadonlyMap<Eqn, readonly boolean[]>;
}
