import { getOrInsert } from "../../ir/collections.js";
import { deviceGroups, type MeshShape } from "../../ir/mesh.js";
import { type ControlOp, isCollectiveEqn, isControlEqn } from "../../ir/opFacts.js";
import type { Atom, Eqn, Var } from "../../ir/program.js";
import { at, range } from "../../ir/shape.js";
import { type StatusLayout, status } from "./watch.js";

/** One run of a program: of the function itself, of one iteration of a loop, or of a branch. */
export interface RunFrame {
  readonly layout: StatusLayout;
  /** Where its statuses begin. */
  readonly base: number;
  /** The equation that ran it, and in which iteration; undefined for the function itself. */
  readonly outer?: {
    readonly frame: RunFrame;
    readonly eqn: Eqn<ControlOp>;
    readonly iteration: number | undefined;
  };
}

/** A value in a run on one device. */
export interface Occurrence {
  readonly variable: Var;
  readonly frame: RunFrame;
  /** The device's position in the mesh. */
  readonly position: number;
}

/** A value that is not finite although what it was made from is. */
export interface Culprit extends Occurrence {
  /** The equation that made it; undefined for an argument. */
  readonly eqn: Eqn | undefined;
  readonly status: number;
  /** Whether a result of the function is not finite because of it. */
  readonly reachesResult: boolean;
}

/** An atom in a run on one device. */
interface Read {
  readonly atom: Atom;
  readonly frame: RunFrame;
  readonly position: number;
}

/** Where the values of a program come from. */
interface Definitions {
  readonly inputs: ReadonlyMap<number, number>;
  readonly eqns: ReadonlyMap<number, { readonly eqn: Eqn; readonly index: number; readonly result: number }>;
}

/**
 * Finds the first value, in the order in which equations ran, that is worse than everything it was made from. Those
 * that made a result of the function non-finite come before those whose effect was lost.
 *
 * @param statuses what the watched program returned, for every position of the mesh
 */
export function findCulprit(
  layout: StatusLayout,
  statuses: readonly ArrayLike<number>[],
  mesh: MeshShape,
): Culprit | undefined {
  return new Search(layout, statuses, mesh).find();
}

class Search {
  private readonly definitions = new WeakMap<StatusLayout, Definitions>();
  private readonly groups = new Map<string, readonly (readonly number[])[]>();
  private readonly top: RunFrame;

  constructor(
    layout: StatusLayout,
    private readonly statuses: readonly ArrayLike<number>[],
    private readonly mesh: MeshShape,
  ) {
    this.top = { layout, base: 0 };
  }

  find(): Culprit | undefined {
    const { program } = this.top.layout;
    const results = this.everywhere.flatMap((position) =>
      program.outputs.map((atom): Read => ({ atom, frame: this.top, position })),
    );
    const anywhere = this.everywhere.map((position) => this.all(this.top, position));
    return this.first([this.behind(results)], true) ?? this.first(anywhere, false);
  }

  private get everywhere(): number[] {
    return range(this.statuses.length);
  }

  private first(values: Iterable<Iterable<Occurrence>>, reachesResult: boolean): Culprit | undefined {
    let best: { readonly value: Occurrence; readonly order: readonly number[] } | undefined;
    for (const some of values) {
      for (const value of some) {
        if (!this.isCulprit(value)) continue;
        const order = [...this.order(value), value.position];
        if (!best || isBefore(order, best.order)) best = { value, order };
      }
    }
    if (!best) return undefined;
    const { variable, frame, position } = best.value;
    const eqn = this.definitionsOf(frame.layout).eqns.get(variable.id)?.eqn;
    return { ...best.value, eqn, status: this.statusOf({ atom: variable, frame, position }), reachesResult };
  }

  /** Every non-finite value that the given ones were computed from, including themselves. */
  private *behind(start: readonly Read[]): Iterable<Occurrence> {
    const seen = new Set<string>();
    const open = [...start];
    for (let read = open.pop(); read; read = open.pop()) {
      const { atom, frame, position } = read;
      if (atom.kind === "literal" || this.statusOf(read) === status.finite) continue;
      const key = `${position} ${frame.base} ${atom.id}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const value = { variable: atom, frame, position };
      yield value;
      for (const cause of this.causes(value)) open.push(cause);
    }
  }

  /** Every value of a run on one device that is not finite, and of the runs inside it. */
  private *all(frame: RunFrame, position: number): Iterable<Occurrence> {
    const { program } = frame.layout;
    for (const variable of [...program.inputs, ...program.eqns.flatMap(({ outs }) => outs)]) {
      const value = { variable, frame, position };
      if (this.statusOf({ ...value, atom: variable }) !== status.finite) yield value;
    }
    for (const eqn of program.eqns.filter(isControlEqn)) {
      for (const inner of this.runs(eqn, frame, position)) yield* this.all(inner, position);
    }
  }

  private statusOf(read: Read): number {
    let { atom, frame } = read;
    for (;;) {
      if (atom.kind === "literal") return literalStatus(atom.value);
      const slot = frame.layout.slots.get(atom.id);
      if (slot && "offset" in slot) return at(this.statuses, read.position)[frame.base + slot.offset] ?? 0;
      if (slot) {
        atom = slot.like;
        continue;
      }
      const outside = this.outside(atom, frame);
      if (!outside) return status.finite;
      atom = outside.atom;
      frame = outside.frame;
    }
  }

  /** The value outside of a body that an input without a status of its own stands for. */
  private outside(variable: Var, frame: RunFrame): Pick<Read, "atom" | "frame"> | undefined {
    const input = this.definitionsOf(frame.layout).inputs.get(variable.id);
    if (input === undefined || !frame.outer) return undefined;
    const { eqn, frame: surrounding } = frame.outer;
    // The inputs of a watched body are the last operands of its equation.
    const first = eqn.ins.length - frame.layout.program.inputs.length;
    return { atom: at(eqn.ins, first + input), frame: surrounding };
  }

  /** Whether a value is worse than everything it was made from, as an argument always is. */
  private isCulprit(value: Occurrence): boolean {
    const { frame, variable, position } = value;
    const made = this.definitionsOf(frame.layout).eqns.get(variable.id);
    if (!made) return frame.outer === undefined;
    if (isControlEqn(made.eqn) && frame.layout.inner.has(made.eqn)) return false;
    const before = this.causes(value).map((read) => this.statusOf(read));
    return this.statusOf({ atom: variable, frame, position }) > Math.max(status.finite, ...before);
  }

  /** What a value was made from. */
  private causes({ variable, frame, position }: Occurrence): Read[] {
    const made = this.definitionsOf(frame.layout).eqns.get(variable.id);
    if (!made) return this.causesOfInput(variable, frame, position);
    const { eqn, result } = made;
    const operands = eqn.ins.map((atom): Read => ({ atom, frame, position }));
    if (isCollectiveEqn(eqn)) {
      const axes = eqn.params.axes.map(({ name }) => name);
      return this.groupOf(position, axes).flatMap((other) =>
        operands.map((read) => ({ ...read, position: other })),
      );
    }
    if (!isControlEqn(eqn)) return operands;
    const runs = this.runs(eqn, frame, position);
    if (runs.length === 0) return operands;
    const output = (run: RunFrame): Read => ({
      atom: at(run.layout.program.outputs, result),
      frame: run,
      position,
    });
    switch (eqn.op) {
      case "scan": {
        const last = runs.slice(eqn.params.reverse ? 0 : -1).slice(0, 1);
        return (result < eqn.params.numCarry ? last : runs).map(output);
      }
      case "while":
        // Only one iteration is known, so any non-finite value in it may have been carried on from there.
        return [
          ...operands,
          ...runs.flatMap((run) =>
            run.layout.program.eqns.flatMap(({ outs }) =>
              outs.map((atom): Read => ({ atom, frame: run, position })),
            ),
          ),
        ];
      case "cond":
        return runs.map(output);
    }
  }

  private causesOfInput(variable: Var, frame: RunFrame, position: number): Read[] {
    const outside = this.outside(variable, frame);
    const input = this.definitionsOf(frame.layout).inputs.get(variable.id);
    if (!outside || !frame.outer || input === undefined) return [];
    const { eqn, iteration, frame: surrounding } = frame.outer;
    if (eqn.op === "scan" && iteration !== undefined) {
      const { numConsts, numCarry, reverse, length } = eqn.params;
      const before = reverse ? iteration + 1 : iteration - 1;
      const carry = input - numConsts;
      if (carry >= 0 && carry < numCarry && before >= 0 && before < length) {
        const run = iterationOf(eqn, surrounding, before);
        return run ? [{ atom: at(run.layout.program.outputs, carry), frame: run, position }] : [];
      }
    }
    return [{ ...outside, position }];
  }

  /** The runs of an equation's inner programs that have statuses; all iterations of a scan. */
  private runs(eqn: Eqn<ControlOp>, frame: RunFrame, position: number): readonly RunFrame[] {
    const inner = frame.layout.inner.get(eqn);
    if (!inner) return [];
    const base = frame.base + inner.offset;
    const head = at(this.statuses, position)[base] ?? 0;
    switch (eqn.op) {
      case "scan":
        return range(eqn.params.length).flatMap((iteration) => iterationOf(eqn, frame, iteration) ?? []);
      case "while":
        if (head < 0) return [];
        return [{ layout: at(inner.layouts, 0), base: base + 1, outer: { frame, eqn, iteration: head } }];
      case "cond":
        return [
          { layout: at(inner.layouts, head), base: base + 1, outer: { frame, eqn, iteration: undefined } },
        ];
    }
  }

  /** When a value was made: positions of equations and iterations from the outermost program inwards. */
  private order({ variable, frame }: Pick<Occurrence, "variable" | "frame">): number[] {
    const made = this.definitionsOf(frame.layout).eqns.get(variable.id);
    return [...this.startOf(frame), made?.index ?? -1];
  }

  private startOf({ outer }: RunFrame): number[] {
    if (!outer) return [];
    const { eqn, frame, iteration = 0 } = outer;
    const index = frame.layout.program.eqns.indexOf(eqn);
    const isBackwards = eqn.op === "scan" && eqn.params.reverse;
    return [...this.startOf(frame), index, isBackwards ? -iteration : iteration];
  }

  private groupOf(position: number, axes: readonly string[]): readonly number[] {
    const groups = getOrInsert(this.groups, axes.join(), () => deviceGroups(this.mesh, axes));
    return groups.find((group) => group.includes(position)) ?? [position];
  }

  private definitionsOf(layout: StatusLayout): Definitions {
    return getOrInsert(this.definitions, layout, () => {
      const { inputs, eqns } = layout.program;
      const made = eqns.flatMap((eqn, index) =>
        eqn.outs.map(({ id }, result) => [id, { eqn, index, result }] as const),
      );
      return { inputs: new Map(inputs.map(({ id }, i) => [id, i])), eqns: new Map(made) };
    });
  }
}

/** The run of one iteration of a scan. */
function iterationOf(eqn: Eqn<"scan">, frame: RunFrame, iteration: number): RunFrame | undefined {
  const inner = frame.layout.inner.get(eqn);
  if (!inner) return undefined;
  const layout = at(inner.layouts, 0);
  return {
    layout,
    base: frame.base + inner.offset + iteration * layout.size,
    outer: { frame, eqn, iteration },
  };
}

/** Infinite constants are accepted, since masks use them; a NaN constant is blamed on the equation that reads it. */
function literalStatus(value: number): number {
  return Math.abs(value) === Number.POSITIVE_INFINITY ? status.infinite : status.finite;
}

/** Whether one list of numbers precedes another lexicographically. */
function isBefore(a: readonly number[], b: readonly number[]): boolean {
  const different = a.findIndex((n, i) => n !== b[i]);
  if (different < 0) return false;
  return at(a, different) < (b[different] ?? Number.NEGATIVE_INFINITY);
}
