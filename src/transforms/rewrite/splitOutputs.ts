/**
 * Splits a program into the part that some of its outputs need and the rest, such as the backward pass of a layer into
 * the gradient of its input and that of its weights. Loops that compute both become two loops.
 */
import { factsOf } from "../../ir/opFacts.js";
import { afterPass } from "../../ir/passes.js";
import { type Atom, type Eqn, makeEqn, newVar, type Program, type Var } from "../../ir/program.js";
import { at, withShape } from "../../ir/shape.js";
import { removeDeadCode, sliceOf } from "./deadCode.js";
import { pick } from "./split.js";

/** A program in two parts. */
export interface Halves {
  /** The same inputs → (…the chosen outputs, …kept). */
  readonly first: Program;
  /** (…kept, …the same inputs) → the other outputs. */
  readonly second: Program;
  /** The values of the first part that the second reads. */
  readonly kept: readonly Var[];
}

/**
 * Splits a program in two. The first part computes the chosen outputs and nothing that they do not need, the second the
 * others from the values that the first passes on.
 *
 * @param chosen which outputs belong to the first part
 */
export function splitOutputs(program: Program, chosen: readonly boolean[]): Halves {
  const { first, second, kept } = halves(program, chosen);
  return {
    first: afterPass("splitOutputs, first", removeDeadCode(first), "traced"),
    second: afterPass("splitOutputs, second", removeDeadCode(second), "traced"),
    kept,
  };
}

function halves(program: Program, chosen: readonly boolean[]): Halves {
  const early = pick(program.outputs, chosen);
  const late = program.outputs.filter((_, i) => !chosen[i]);
  const { front, back } = assign(program, early);
  const definition = new Map(front.flatMap((eqn) => eqn.outs.map((out) => [out.id, eqn] as const)));
  const kept = new Map<number, Var>();
  const again = new Map<number, Eqn>();
  const need = (atom: Atom): void => {
    if (atom.kind !== "var" || kept.has(atom.id) || again.has(atom.id)) return;
    const eqn = definition.get(atom.id);
    if (!eqn) return;
    const cheap = remade(eqn, atom);
    if (!cheap) {
      kept.set(atom.id, atom);
      return;
    }
    again.set(atom.id, cheap);
    cheap.ins.forEach(need);
  };
  // Values that the rest needs and that are not kept are recomputed before it.
  const known = [...program.inputs, ...front.flatMap(({ outs }) => outs)];
  const wanted = removeDeadCode({ inputs: known, eqns: back, outputs: late });
  for (const eqn of wanted.eqns) eqn.ins.forEach(need);
  late.forEach(need);
  const isAgain = (eqn: Eqn) => eqn.outs.flatMap((out) => again.get(out.id) ?? []);
  const list = [...kept.values()];
  return {
    first: { inputs: program.inputs, eqns: front, outputs: [...early, ...list] },
    second: {
      inputs: [...list, ...program.inputs],
      eqns: [...front.flatMap(isAgain), ...wanted.eqns],
      outputs: late,
    },
    kept: list,
  };
}

/** An equation that recomputes a value from another, where that is free. */
function remade(eqn: Eqn, value: Var): Eqn | undefined {
  if (eqn.op === "optimizationBarrier") {
    const place = eqn.outs.findIndex(({ id }) => id === value.id);
    return { ...eqn, ins: [at(eqn.ins, place)], outs: [value] };
  }
  return factsOf(eqn.op).remade ? eqn : undefined;
}

/** The equations that the chosen outputs need, and those that they do not. */
function assign(program: Program, early: readonly Atom[]): { front: Eqn[]; back: Eqn[] } {
  const live = new Set<number>();
  const mark = (atom: Atom) => {
    if (atom.kind === "var") live.add(atom.id);
  };
  early.forEach(mark);
  const front: Eqn[] = [];
  const back: Eqn[] = [];
  for (const eqn of [...program.eqns].reverse()) {
    const used = eqn.outs.map((out) => live.has(out.id));
    if (!used.includes(true)) {
      back.push(eqn);
      continue;
    }
    const parts = used.includes(false) ? splitEqn(eqn, used) : undefined;
    const needed = parts?.front ?? eqn;
    front.push(needed);
    if (parts) back.push(parts.back);
    needed.ins.forEach(mark);
  }
  return { front: front.reverse(), back: back.reverse() };
}

/** Splits an equation of which only some results are needed; undefined where it computes all of them together. */
function splitEqn(eqn: Eqn, used: readonly boolean[]): { front: Eqn; back: Eqn } | undefined {
  if (eqn.op === "optimizationBarrier") {
    const unused = used.map((flag) => !flag);
    const part = (flags: readonly boolean[]) => ({
      ...eqn,
      ins: pick(eqn.ins, flags),
      outs: pick(eqn.outs, flags),
    });
    return { front: part(used), back: part(unused) };
  }
  return eqn.op === "scan" ? splitScan(eqn, used) : undefined;
}

/** The carried values that needed outputs of a loop's body read, directly or from one iteration to the next. */
function neededCarries(eqn: Eqn<"scan">, used: readonly boolean[]): boolean[] {
  const { body, numConsts, numCarry } = eqn.params;
  const wanted = [...used];
  for (;;) {
    const outputs = pick(body.outputs, wanted);
    const trimmed = sliceOf({ ...body, outputs });
    const read = new Set(
      [...trimmed.eqns.flatMap(({ ins }) => ins), ...outputs].flatMap((a) =>
        a.kind === "var" ? [a.id] : [],
      ),
    );
    const missing = wanted.findIndex(
      (flag, c) => c < numCarry && !flag && read.has(at(body.inputs, numConsts + c).id),
    );
    if (missing < 0) return wanted;
    wanted[missing] = true;
  }
}

/**
 * One loop as two: the first stacks what its iterations pass to those of the second, which carries the values that the
 * first does not need.
 */
function splitScan(
  eqn: Eqn<"scan">,
  used: readonly boolean[],
): { front: Eqn<"scan">; back: Eqn<"scan"> } | undefined {
  const { body, length, numConsts, numCarry } = eqn.params;
  const wanted = neededCarries(eqn, used);
  if (!wanted.includes(false)) return undefined;
  const parts = halves(body, wanted);
  const second = removeDeadCode(parts.second);
  const read = new Set(
    [...second.eqns.flatMap(({ ins }) => ins), ...second.outputs].flatMap((a) =>
      a.kind === "var" ? [a.id] : [],
    ),
  );
  const isCarry = (i: number) => i >= numConsts && i < numConsts + numCarry;
  const inFront = body.inputs.map((_, i) => !isCarry(i) || at(wanted, i - numConsts));
  const inBack = body.inputs.map((_, i) => !isCarry(i) || !at(wanted, i - numConsts));
  // Iterations of the second loop also read what the first one carries into the same iteration.
  const carried = body.inputs.filter((input, i) => isCarry(i) && at(inFront, i) && read.has(input.id));
  const handed = [...parts.kept, ...carried];
  const stacked = handed.map(({ type }) => newVar(withShape(type, [length, ...type.shape])));
  const counts = (flags: readonly boolean[]) => ({
    ...eqn.params,
    numConsts,
    numCarry: flags.slice(numConsts, numConsts + numCarry).filter(Boolean).length,
  });
  const front = makeEqn(
    "scan",
    pick(eqn.ins, inFront),
    [...pick(eqn.outs, wanted), ...stacked],
    {
      ...counts(inFront),
      body: {
        inputs: pick(body.inputs, inFront),
        eqns: parts.first.eqns,
        outputs: [...parts.first.outputs, ...carried],
      },
    },
    eqn.source,
  );
  const unwanted = wanted.map((flag) => !flag);
  const back = makeEqn(
    "scan",
    [...pick(eqn.ins, inBack), ...stacked],
    pick(eqn.outs, unwanted),
    {
      ...counts(inBack),
      body: { inputs: [...pick(body.inputs, inBack), ...handed], eqns: second.eqns, outputs: second.outputs },
    },
    eqn.source,
  );
  return { front, back };
}
