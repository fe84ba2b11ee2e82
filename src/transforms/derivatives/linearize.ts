import { isFloat } from "../../ir/dtype.js";
import { GradientError } from "../../ir/errors.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Atom, Eqn, Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { atSource, Environment, repeat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { type KeptInside, type Saved, savedInside, savedOuts } from "./keep.js";
import { replayEqn } from "./replay.js";
import { vjpRules } from "./vjpRules.js";
import type { Linearized, LinearizeTools, TensorCotangent, VjpRule } from "./vjpTypes.js";

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
