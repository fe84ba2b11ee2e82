import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { joinAxes, varyingAxes } from "../../ir/infer/varying.js";
import type { MeshAxis } from "../../ir/mesh.js";
import type { ProgramOp } from "../../ir/ops.js";
import { type Eqn, forEachEqn, hasPrograms, type Program, someEqn } from "../../ir/program.js";
import { at, formatType, type TensorType, typesOf } from "../../ir/shape.js";
import { boundAxes, checkedAxes } from "../../trace/axes.js";
import { atSource, bind, callProgram, Environment, isTracing, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { flattenArgs, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { cut } from "../rewrite/split.js";
import { extrasOf, Threading } from "../rewrite/threadBodies.js";
import { checksOf, type OpCheck } from "./checkRules.js";
import type { ErrorCategory } from "./checks.js";
import { CheckSiteTable, ErrorValue } from "./errorValue.js";

/** Checks that the function itself makes by `check`. */
export const userChecks: readonly ErrorCategory[] = ["user"];
/** That no op returns NaN. */
export const nanChecks: readonly ErrorCategory[] = ["nan"];
/** That nothing is divided by zero. */
export const divChecks: readonly ErrorCategory[] = ["division"];
/** That every index is in range. */
export const indexChecks: readonly ErrorCategory[] = ["index"];
/** NaN and division by zero. */
export const floatChecks: readonly ErrorCategory[] = [...nanChecks, ...divChecks];
/** Everything that is checked without a `check`. */
export const automaticChecks: readonly ErrorCategory[] = [...floatChecks, ...indexChecks];
/** Everything. */
export const allChecks: readonly ErrorCategory[] = [...automaticChecks, ...userChecks];

/** The number of the first check that failed, then the kept values of every kind of check. */
type State = readonly Tensor[];

/** What all programs of one function share. */
class Checking {
  readonly sites = new CheckSiteTable();
  /** The types of all kept values. */
  readonly kept: TensorType[] = [];
  /**
   * Where the values of a check are kept; checks with values of the same types share them, since only one can be first.
   */
  private readonly offsets = new Map<string, number>();

  constructor(readonly wanted: ReadonlySet<ErrorCategory>) {}

  /** Reserves the values that the checks of a program keep. */
  prepare(program: Program): void {
    forEachEqn(program, (eqn) => {
      for (const { keeps } of checksOf(eqn, this.wanted)) {
        const key = keyOf(keeps);
        if (this.offsets.has(key)) continue;
        this.offsets.set(key, this.kept.length);
        this.kept.push(...keeps);
      }
    });
  }

  /** The initial state, without an error; it may differ along the given axes. */
  start(axes: readonly MeshAxis[]): State {
    const types: readonly TensorType[] = [{ dtype: "int32", shape: [] }, ...this.kept];
    return types.map((type) => ops.pvary(ops.zeros(type), axes));
  }

  /** Whether the equation contains a check of the enabled categories. */
  canFail(eqn: Eqn): boolean {
    return someEqn({ eqns: [eqn] }, (one) => checksOf(one, this.wanted).length > 0);
  }

  /** The state after another check. */
  note(state: State, check: OpCheck, eqn: Eqn, ins: readonly Tensor[], outs: readonly Tensor[]): State {
    const { failed, values } = check.find(ins.map(ops.stopGradient), outs.map(ops.stopGradient));
    const offset = this.offsets.get(keyOf(check.keeps)) ?? 0;
    const code = this.sites.add({
      describe: check.describe,
      offset,
      numKept: values.length,
      source: eqn.source?.text,
    });
    const isFirst = ops.and(ops.compare("eq", at(state, 0), 0), failed);
    return state.map((x, i) => {
      if (i === 0) return ops.select(isFirst, Tensor.scalar(code, "int32"), x);
      const value = values[i - 1 - offset];
      return value ? ops.select(ops.broadcastInDim(isFirst, x.shape, []), value, x) : x;
    });
  }
}

const keyOf = (types: readonly TensorType[]) => types.map(formatType).join();

const isCheck = (eqn: Eqn): boolean => eqn.op === "callback" && eqn.params.kind === "check";

/** The results of a program, and the state after it. */
interface Checked {
  readonly outs: readonly Tensor[];
  readonly state: State;
}

/** Records a program in the current trace with checks after its equations. */
function evaluate(program: Program, ins: readonly Tensor[], before: State, checking: Checking): Checked {
  const environment = new Environment(program.inputs, ins);
  let state = before;
  for (const eqn of program.eqns) {
    const operands = environment.read(eqn.ins);
    atSource(eqn.source, () => {
      if (hasPrograms(eqn) && checking.canFail(eqn)) {
        const inside = checkBodies(eqn, operands, state, checking);
        environment.define(eqn.outs, inside.outs);
        state = inside.state;
        return;
      }
      const outs = isCheck(eqn) ? [] : bind(eqn.op, operands, eqn.params);
      environment.define(eqn.outs, outs);
      for (const check of checksOf(eqn, checking.wanted))
        state = checking.note(state, check, eqn, operands, outs);
    });
  }
  return { outs: environment.read(program.outputs), state };
}

/**
 * Records an equation with bodies, with their checks. The state is carried by loops; other bodies take and return it,
 * and a custom backward rule ignores it.
 */
function checkBodies(eqn: Eqn<ProgramOp>, ins: readonly Tensor[], state: State, checking: Checking): Checked {
  if (eqn.op === "while") return checkWhile(eqn, ins, state, checking);
  if (eqn.op === "shardMap") return checkShardMap(eqn, ins, state, checking);
  const [given, returned] = eqn.op === "scan" ? carried : (["consts", "ys"] as const);
  const { own, added } = new Threading(eqn, ins, { [given]: extrasOf(state) }).apply(
    ({ program }, values) => {
      const { outs, state: after } = evaluate(program, values.own, values.added[given] ?? [], checking);
      return { own: outs, added: { [returned]: after } };
    },
    "checkify",
  );
  return { outs: own, state: added[returned] ?? [] };
}

const carried = ["carry", "carry"] as const;

/** The condition is checked where it is evaluated: before the first iteration and after each. */
function checkWhile(eqn: Eqn<"while">, ins: readonly Tensor[], state: State, checking: Checking): Checked {
  const { condition, numConditionConsts, numBodyConsts } = eqn.params;
  const [consts = [], , carry = []] = cut(ins, numConditionConsts, numBodyConsts);
  const start = evaluate(condition, [...consts, ...carry], state, checking).state;
  const unchecked = { ...eqn, params: { ...eqn.params, condition: withoutChecks(condition) } };
  const threading = new Threading(unchecked, ins, { consts: extrasOf(consts), carry: extrasOf(start) });
  const { own, added } = threading.apply(({ program }, values) => {
    const { outs, state: after } = evaluate(program, values.own, values.added.carry ?? [], checking);
    const next = evaluate(condition, [...(values.added.consts ?? []), ...outs], after, checking);
    return { own: outs, added: { carry: next.state } };
  }, "checkify of while");
  return { outs: own, state: added.carry ?? [] };
}

/** The program without the user's checks, which were made already. */
function withoutChecks(program: Program): Program {
  return { ...program, eqns: program.eqns.filter((eqn) => !isCheck(eqn)) };
}

/** Every device has its own state; of those with an error, the first is reported. */
function checkShardMap(
  eqn: Eqn<"shardMap">,
  ins: readonly Tensor[],
  state: State,
  checking: Checking,
): Checked {
  const { mesh, manual, checked } = eqn.params;
  const axes = mesh.axes.filter(({ name }) => manual.includes(name));
  const names = axes.map(({ name }) => name);
  const { own, added } = new Threading(eqn, ins).apply(
    ({ program }, values) => {
      const start = checking.start(checked ? joinAxes([varyingAxes(at(state, 0).type), axes]) : []);
      const { outs, state: after } = evaluate(program, values.own, start, checking);
      return { own: outs, added: { ys: after.map((x) => ops.reshape(x, [1, ...x.shape])) } };
    },
    "checkify of shardMap",
    state.map(({ shape }) => [names, ...shape.map(() => [])]),
  );
  const ofDevices = added.ys ?? [];
  const failed = ops.convert(ops.compare("ne", at(ofDevices, 0), 0), "int32");
  const first = ops.argmax(failed, 0);
  const isOpen = ops.compare("eq", at(state, 0), 0);
  const merged = ofDevices.map((x, i) => {
    const its = ops.gather(x, first, { dim: 0, batchDims: 0 });
    return ops.select(ops.broadcastInDim(isOpen, its.shape, []), its, at(state, i));
  });
  return { outs: own, state: merged };
}

function readCategories(errors: readonly ErrorCategory[]): ReadonlySet<ErrorCategory> {
  need("list", errors, "errors", "checkify");
  const unknown = errors.find((category) => !allChecks.includes(category));
  if (unknown !== undefined) {
    throw new ValueError(
      `[checkify] errors has ${describe(unknown)}: use userChecks, nanChecks, divChecks, indexChecks, floatChecks, automaticChecks or allChecks`,
    );
  }
  return new Set(errors);
}

/**
 * The function with its checks as one more result: the first that failed, in the order of the program. Checks are those
 * that it makes itself with `check`, and those that `errors` adds to each of its ops. The result can be compiled,
 * differentiated and mapped, and so can functions that it calls.
 *
 * @param errors what is checked, `userChecks` by default: `[...checkify.userChecks, ...checkify.nanChecks]`
 *
 * @example
 * ```ts
 * const [error, y] = checkify.checkify((x: Tensor) => np.log(x), checkify.floatChecks)(np.array(1));
 * y; // 0
 * ```
 */
export function checkify<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  errors: readonly ErrorCategory[] = userChecks,
): (...args: A) => [error: ErrorValue, result: R] {
  need("function", fn, "fn", "checkify");
  const wanted = readCategories(errors);
  return (...args) => {
    const { tensors, structure } = flattenArgs(args, "checkify");
    const traced = traceTree(fn, structure, typesOf(tensors), "checkify");
    const { program, captures, outStructure, target } = traced;
    const checking = new Checking(wanted);
    checking.prepare(program);
    const axes = checkedAxes(boundAxes()).map(({ name, size }) => ({ name, size }));
    const apply = (ins: readonly Tensor[]): Tensor[] => {
      const { outs, state } = evaluate(program, ins, checking.start(axes), checking);
      return [...state, ...outs];
    };
    const ins = [...captures, ...tensors];
    const whole = () => traceFlat(apply, typesOf(ins), "checkify").program;
    const results = isTracing() ? apply(ins) : callProgram(whole(), ins, target);
    const [code, ...rest] = results;
    const [kept = [], outs = []] = cut(rest, checking.kept.length);
    return [
      new ErrorValue(at(code ? [code] : [], 0), kept, checking.sites),
      tree.unflatten<R>(outStructure, outs),
    ];
  };
}
