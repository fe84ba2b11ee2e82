import { isFloat } from "../../ir/dtype.js";
import { GradientError } from "../../ir/errors.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Atom, Eqn, Program } from "../../ir/program.js";
import { at, type TensorType } from "../../ir/shape.js";
import { atSource, Environment, repeat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { type KeptInside, type Saved, savedInside, savedOuts } from "./keep.js";
import { replayEqn } from "./replay.js";
import { vjpRules } from "./vjpRules.js";

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

/** The functions of this file that rules of ops with inner programs call recursively. */
export interface LinearizeTools {
  readonly linearize: typeof linearize;
  readonly outputActivity: typeof outputActivity;
  readonly operandActivity: typeof operandActivity;
}

interface TapeEntry {
  readonly eqn: Eqn;
  readonly pullback: Linearized["pullback"];
}

/**
 * Evaluates a program in the current trace and returns how to pull cotangents back through it.
 *
 * @param active which inputs need a cotangent
 * @param saved values that need not be recomputed
 */
export function linearize(
  program: Program,
  ins: readonly Tensor[],
  active: readonly boolean[],
  saved: Saved = [],
): Linearized {
  const environment = new Environment(program.inputs, ins);
  const activity = new Activity(program, active);
  const knownOuts = savedOuts(program, saved);
  const tape: TapeEntry[] = [];
  for (const eqn of program.eqns) {
    const operands = environment.read(eqn.ins);
    const flags = activity.visit(eqn);
    const [known, inside] = [knownOuts(eqn), savedInside(saved, eqn)];
    atSource(eqn.source, () => {
      if (flags) {
        const { outs, pullback } = linearizeEqn(eqn, operands, flags, known, inside);
        environment.define(eqn.outs, outs);
        tape.push({ eqn, pullback });
      } else {
        environment.define(eqn.outs, known ?? replayEqn(eqn, operands, [], inside).outs);
      }
    });
  }
  const outs = environment.read(program.outputs);
  return { outs, pullback: (cotangents) => pullBack(program, activity, tape, cotangents) };
}

/** The results of an equation, and how its cotangents are pulled back. */
export function linearizeEqn<K extends OpName>(
  eqn: Eqn<K>,
  ins: readonly Tensor[],
  active: readonly boolean[],
  known: readonly Tensor[] | undefined,
  inside: readonly KeptInside[],
): Linearized {
  const { op, params }: { op: K; params: OpParams[K] } = eqn;
  const rule: VjpRule<K> = vjpRules[op];
  if (rule.kind === "linearize") {
    const { outs, pullback } = rule.linearize(ins, params, active, tools, inside);
    return { outs: known ?? outs, pullback };
  }
  const outs = known ?? repeat(eqn, ins);
  return {
    outs,
    pullback: (cotangents) => {
      if (rule.kind === "unsupported") throw new GradientError(`[grad] ${op}: ${rule.reason}`);
      if (rule.kind === "zero") return ins.map(() => null);
      const cts = cotangents.map((ct, i) => ct ?? ops.zeros(at(outs, i).type));
      const pulls = rule.pull({ ct: at(cts, 0), cts, given: cotangents, active, ins, outs, params });
      return ins.map((_, i) => (active[i] ? (pulls[i]?.() ?? null) : null));
    },
  };
}

function pullBack(
  program: Program,
  activity: Activity,
  tape: readonly TapeEntry[],
  cotangents: readonly TensorCotangent[],
): TensorCotangent[] {
  const sums = new Map<number, Tensor>();
  const accumulate = (atom: Atom, ct: TensorCotangent | undefined) => {
    if (!ct || !activity.has(atom) || atom.kind !== "var") return;
    const sum = sums.get(atom.id);
    sums.set(atom.id, sum ? ops.add(sum, ct) : ct);
  };
  program.outputs.forEach((atom, i) => {
    accumulate(atom, cotangents[i]);
  });
  for (let t = tape.length - 1; t >= 0; t--) {
    const { eqn, pullback } = at(tape, t);
    const cts = eqn.outs.map((out) => sums.get(out.id) ?? null);
    if (cts.every((ct) => ct === null)) continue;
    atSource(eqn.source, () => {
      const pulled = pullback(cts);
      eqn.ins.forEach((atom, i) => {
        accumulate(atom, pulled[i]);
      });
    });
  }
  return program.inputs.map((input) => sums.get(input.id) ?? null);
}

/** Which values of a program change with its active inputs. */
class Activity {
  private readonly ids = new Set<number>();
  /** The values that outputs have a derivative by: not those that only `stopGradient` or a comparison reads. */
  private readonly reaching = new Set<number>();

  constructor({ inputs, eqns, outputs }: Program, active: readonly boolean[]) {
    this.reach(outputs);
    for (const { op, ins, outs } of eqns.toReversed()) {
      if (vjpRules[op].kind !== "zero" && outs.some(({ id }) => this.reaching.has(id))) this.reach(ins);
    }
    inputs.forEach((input, i) => {
      if (active[i] && isFloat(input.type.dtype)) this.ids.add(input.id);
    });
  }

  has(atom: Atom): boolean {
    return atom.kind === "var" && this.ids.has(atom.id);
  }

  private reach(atoms: readonly Atom[]): void {
    for (const atom of atoms) if (atom.kind === "var") this.reaching.add(atom.id);
  }

  /** The activity of an equation's operands, or `undefined` when it needs no differentiation. */
  visit(eqn: Eqn): readonly boolean[] | undefined {
    const flags = eqn.ins.map((atom) => this.has(atom));
    if (!flags.includes(true) || vjpRules[eqn.op].kind === "zero") return undefined;
    const floats = eqn.outs.filter(({ id, type }) => isFloat(type.dtype) && this.reaching.has(id));
    for (const out of floats) this.ids.add(out.id);
    return floats.length > 0 ? flags : undefined;
  }
}

/** Which outputs of a program change with its active inputs. */
export function outputActivity(program: Program, active: readonly boolean[]): boolean[] {
  const activity = new Activity(program, active);
  for (const eqn of program.eqns) activity.visit(eqn);
  return program.outputs.map((atom) => activity.has(atom));
}

/** Which operands of a program's equations change with its active inputs, for equations that need differentiation. */
export function operandActivity(
  program: Program,
  active: readonly boolean[],
): ReadonlyMap<Eqn, readonly boolean[]> {
  const activity = new Activity(program, active);
  return new Map(
    program.eqns.flatMap((eqn) => {
      const flags = activity.visit(eqn);
      return flags ? [[eqn, flags]] : [];
    }),
  );
}

/** What rules of ops with inner programs call. */
export const tools: LinearizeTools = { linearize, outputActivity, operandActivity };
