import type { OpParams, ProgramOp } from "../../ir/ops.js";
import type { Eqn, Program } from "../../ir/program.js";
import { cut } from "../rewrite/split.js";
import type { LinearizeTools } from "./linearize.js";

/** A program inside an equation whose values the backward pass may need. */
export interface Body {
  readonly program: Program;
  /** Which of its inputs need a cotangent. */
  readonly active: readonly boolean[];
}

type Bodies<K extends ProgramOp> = (
  params: OpParams[K],
  active: readonly boolean[],
  tools: LinearizeTools,
) => readonly Body[];

const bodies: { readonly [K in ProgramOp]: Bodies<K> } = {
  scan: (params, active, tools) => [
    { program: params.body, active: activityInScan(params, active, tools).activeIn },
  ],
  // Loops without a known length are not differentiated in reverse.
  while: () => [],
  cond: ({ branches }, active) => branches.map((program) => ({ program, active: active.slice(1) })),
  remat: ({ body }, active) => [{ program: body, active }],
  // Where the result is differentiated, the rule replaces the function; the rule itself is not differentiated.
  customVjp: ({ forward }, active) =>
    active.includes(true) ? [{ program: forward, active: active.map(() => false) }] : [],
  shardMap: ({ body }, active) => [{ program: body, active }],
};

/**
 * The programs inside an equation that run in the forward pass.
 *
 * @param active which operands of the equation need a cotangent
 */
export function bodiesOf<K extends ProgramOp>(
  { op, params }: Eqn<K>,
  active: readonly boolean[],
  tools: LinearizeTools,
): readonly Body[] {
  const rule: Bodies<K> = bodies[op];
  return rule(params, active, tools);
}

/** Which inputs and outputs of a scan's body need a cotangent. */
export interface ScanActivity {
  readonly constActive: readonly boolean[];
  readonly carryActive: readonly boolean[];
  readonly yActive: readonly boolean[];
  /** Constants, carry and scanned operands. */
  readonly activeIn: readonly boolean[];
}

/** A carry is active when it starts active or becomes so after some iterations. */
export function activityInScan(
  { body, numConsts, numCarry }: OpParams["scan"],
  active: readonly boolean[],
  { outputActivity }: LinearizeTools,
): ScanActivity {
  const [constActive = [], initActive = [], xsActive = []] = cut(active, numConsts, numCarry);
  let carryActive = [...initActive];
  for (;;) {
    const activeIn = [...constActive, ...carryActive, ...xsActive];
    const out = outputActivity(body, activeIn);
    const next = carryActive.map((flag, i) => flag || (out[i] ?? false));
    if (next.every((flag, i) => flag === carryActive[i])) {
      return { constActive, carryActive, yActive: out.slice(numCarry), activeIn };
    }
    carryActive = next;
  }
}
