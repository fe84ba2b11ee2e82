/**
 * Ops with bodies, described once: which groups their operands and results form, and which groups each body takes and
 * returns. Passes that analyse or rewrite bodies read this description instead of knowing scan, while and cond one by
 * one; `flow` carries facts through bodies, and `transforms/rewrite/threadBodies.ts` threads values through them.
 */
import type { Spec } from "./mesh.js";
import type { OpParams, ProgramOp } from "./ops.js";
import { type Program, withPrograms } from "./program.js";
import { at } from "./shape.js";

/**
 * What a group of operands or results is for:
 * * `index` and `decision` choose what runs: the branch of a cond, another iteration of a while;
 * * `conditionConsts`, `consts` and `args` are the same in every run of a body; `args` have cotangents of their own;
 * * `carry` goes from one iteration to the next, `xs` and `ys` are one slice of a stack in each iteration of a scan (ys
 *   are plain results of ops without iterations);
 * * `residuals` and `cotangents` occur only in custom derivatives.
 */
export type Group = (typeof allGroups)[number];

const allGroups = [
  "index",
  "decision",
  "conditionConsts",
  "consts",
  "args",
  "carry",
  "xs",
  "ys",
  "residuals",
  "cotangents",
] as const;

/** Values by group. */
export type Groups<T> = { readonly [G in Group]?: readonly T[] };

/** The number of values in each group. */
export type GroupSizes = { readonly [G in Group]?: number };

/** A program inside an equation. */
export interface Body {
  readonly program: Program;
  /** `main` computes results; `forward` does so where the op is differentiated with its own rule. */
  readonly kind: "main" | "condition" | "forward" | "backward";
  readonly inputs: readonly Group[];
  readonly outputs: readonly Group[];
}

/** The description of an op with bodies. */
export interface OpBodies {
  /** The groups of operands, in order. */
  readonly operands: readonly Group[];
  /** The groups of results, in order. */
  readonly results: readonly Group[];
  readonly sizes: GroupSizes;
  /** The bodies in the order of `innerPrograms`. */
  readonly bodies: readonly Body[];
}

/** An op with bodies and its parameters, which describe it. */
export interface BodyOp<K extends ProgramOp> {
  readonly op: K;
  readonly params: OpParams[K];
}

/** An op that runs one of its programs once, on all of its operands but the first ones. */
function called(programs: readonly Program[], operands: readonly Group[]): OpBodies {
  const { inputs, outputs } = at(programs, 0);
  return {
    operands,
    results: ["ys"],
    sizes: { index: 1, consts: inputs.length, ys: outputs.length },
    bodies: programs.map((program) => ({ program, kind: "main", inputs: ["consts"], outputs: ["ys"] })),
  };
}

const descriptions: { readonly [K in ProgramOp]: (params: OpParams[K]) => OpBodies } = {
  scan: ({ body, numConsts, numCarry }) => ({
    operands: ["consts", "carry", "xs"],
    results: ["carry", "ys"],
    sizes: {
      consts: numConsts,
      carry: numCarry,
      xs: body.inputs.length - numConsts - numCarry,
      ys: body.outputs.length - numCarry,
    },
    bodies: [{ program: body, kind: "main", inputs: ["consts", "carry", "xs"], outputs: ["carry", "ys"] }],
  }),
  while: ({ condition, body, numConditionConsts, numBodyConsts }) => ({
    operands: ["conditionConsts", "consts", "carry"],
    results: ["carry"],
    sizes: {
      conditionConsts: numConditionConsts,
      consts: numBodyConsts,
      carry: body.outputs.length,
      decision: 1,
    },
    bodies: [
      {
        program: condition,
        kind: "condition",
        inputs: ["conditionConsts", "carry"],
        outputs: ["decision"],
      },
      { program: body, kind: "main", inputs: ["consts", "carry"], outputs: ["carry"] },
    ],
  }),
  cond: ({ branches }) => called(branches, ["index", "consts"]),
  remat: ({ body }) => called([body], ["consts"]),
  shardMap: ({ body }) => called([body], ["consts"]),
  customVjp: ({ body, forward, backward, numCaptures, numResiduals }) => ({
    operands: ["consts", "args"],
    results: ["ys"],
    sizes: {
      consts: numCaptures,
      args: body.inputs.length - numCaptures,
      ys: body.outputs.length,
      residuals: numResiduals,
      cotangents: backward.outputs.length,
    },
    bodies: [
      { program: body, kind: "main", inputs: ["consts", "args"], outputs: ["ys"] },
      { program: forward, kind: "forward", inputs: ["consts", "args"], outputs: ["ys", "residuals"] },
      {
        program: backward,
        kind: "backward",
        inputs: ["consts", "residuals", "ys"],
        outputs: ["cotangents"],
      },
    ],
  }),
};

/** The description of an equation's operands, results and bodies. */
export function bodiesOf<K extends ProgramOp>({ op, params }: BodyOp<K>): OpBodies {
  return descriptions[op](params);
}

/** Changes the specs of a shard map along with its operands and results. */
type ChangeSpecs = (
  inSpecs: readonly Spec[],
  outSpecs: readonly Spec[],
) => Pick<OpParams["shardMap"], "inSpecs" | "outSpecs">;

const resized: {
  readonly [K in ProgramOp]: (params: OpParams[K], sizes: GroupSizes, specs: ChangeSpecs) => OpParams[K];
} = {
  scan: (p, { consts = 0, carry = 0 }) => ({ ...p, numConsts: consts, numCarry: carry }),
  while: (p, { conditionConsts = 0, consts = 0 }) => ({
    ...p,
    numConditionConsts: conditionConsts,
    numBodyConsts: consts,
  }),
  cond: (p) => p,
  remat: (p) => p,
  shardMap: (p, _, specs) => ({ ...p, ...specs(p.inSpecs, p.outSpecs) }),
  customVjp: (p, { consts = 0 }) => ({ ...p, numCaptures: consts }),
};

/** The parameters with other bodies, for groups of other sizes. */
export function withBodies<K extends ProgramOp>(
  { op, params }: BodyOp<K>,
  programs: readonly Program[],
  sizes: GroupSizes,
  specs: ChangeSpecs = (inSpecs, outSpecs) => ({ inSpecs, outSpecs }),
): OpParams[K] {
  return resized[op](withPrograms(op, params, programs), sizes, specs);
}

/** Splits a list by groups. */
export function groupsOf<T>(order: readonly Group[], sizes: GroupSizes, list: readonly T[]): Groups<T> {
  const groups: { [G in Group]?: readonly T[] } = {};
  let start = 0;
  for (const group of order) {
    const end = start + (sizes[group] ?? 0);
    groups[group] = list.slice(start, end);
    start = end;
  }
  return groups;
}

/** The number of flags that are set in each group. */
export function countGroups(
  order: readonly Group[],
  sizes: GroupSizes,
  flags: readonly boolean[],
): GroupSizes {
  const groups = groupsOf(order, sizes, flags);
  return Object.fromEntries(order.map((group) => [group, groups[group]?.filter(Boolean).length ?? 0]));
}

/** Changes every value of some groups. */
export function mapGroups<T, U>(groups: Groups<T>, change: (value: T, group: Group) => U): Groups<U> {
  const changed: { [G in Group]?: readonly U[] } = {};
  for (const group of allGroups) {
    const values = groups[group];
    if (values) changed[group] = values.map((value) => change(value, group));
  }
  return changed;
}

/** Values of groups as one list; in every group those of the first record come before those of the next. */
export function inGroups<T>(order: readonly Group[], ...records: readonly Groups<T>[]): T[] {
  return order.flatMap((group) => records.flatMap((record) => record[group] ?? []));
}

/** Facts about the values of an op with bodies. */
export interface Flow<T> {
  /** About its operands as the bodies see them: those about carries hold in every iteration. */
  readonly ins: readonly T[];
  readonly outs: readonly T[];
  /** About what chooses a branch or ends a loop; they are joined to those about all results. */
  readonly deciders: readonly T[];
}

/**
 * Carries facts about operands through an op's bodies to its results. What is known about a carry grows until another
 * iteration adds nothing.
 *
 * @param run from facts about the inputs of a body to those about its outputs
 * @param join the least fact that includes two others
 */
export function flow<K extends ProgramOp, T>(
  eqn: BodyOp<K>,
  ins: readonly T[],
  run: (program: Program, ins: readonly T[]) => readonly T[],
  join: (a: T, b: T) => T,
  isSame: (a: T, b: T) => boolean = Object.is,
): Flow<T> {
  const { operands, results, sizes, bodies } = bodiesOf(eqn);
  const ran = bodies.filter(({ kind }) => kind === "main" || kind === "condition");
  for (let given = groupsOf(operands, sizes, ins); ; ) {
    const found: { [G in Group]?: readonly T[] } = {};
    for (const { program, inputs, outputs } of ran) {
      const outs = groupsOf(outputs, sizes, run(program, inGroups(inputs, given)));
      for (const group of outputs) {
        const own = outs[group] ?? [];
        found[group] = found[group]?.map((fact, i) => join(fact, at(own, i))) ?? own;
      }
    }
    const deciders = [...(given.index ?? []), ...(found.decision ?? [])];
    const decided = (fact: T): T => deciders.reduce((known, decider) => join(known, decider), fact);
    const carry = given.carry?.map((fact, i) => join(fact, decided(at(found.carry ?? [], i)))) ?? [];
    if (carry.every((fact, i) => isSame(fact, at(given.carry ?? [], i)))) {
      const outs = inGroups(results, { carry, ys: found.ys?.map(decided) ?? [] });
      return { ins: inGroups(operands, given), outs, deciders };
    }
    given = { ...given, carry };
  }
}
