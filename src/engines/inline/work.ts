import { isFloat } from "../../ir/dtype.js";
import { type ControlOp, factsOf, flopsOf, isControlEqn } from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import {
  type Eqn,
  type EqnParts,
  forEachEqn,
  hasPrograms,
  innerPrograms,
  type Program,
  someEqn,
} from "../../ir/program.js";
import { sizeOf } from "../../ir/shape.js";

/**
 * The cost of compiling a program, in elements that the interpreter computes in that time: 2 ms for a program, 0.2 ms
 * for each equation, at 25 to 40 ns for an element. A program of one equation is worth compiling from 64 Ki elements
 * on.
 */
const ELEMENTS = { perProgram: 56 * 1024, perEquation: 8 * 1024 } as const;

/** The cost of compiling a program, in interpreted elements; loop bodies are compiled once. */
export function compilingCost(program: Program): number {
  let cost = ELEMENTS.perProgram;
  forEachEqn(program, () => {
    cost += ELEMENTS.perEquation;
  });
  return cost;
}

/** The number of elements that interpreting a program once computes; the bodies of `while` count once. */
export function interpretedElements(program: Program): number {
  return program.eqns.reduce((sum, eqn) => sum + elementsOf(eqn), 0);
}

/** How often each run of a control-flow op runs its bodies, as far as known. */
const timesRun: { readonly [K in ControlOp]: (params: OpParams[K]) => number } = {
  scan: ({ length }) => length,
  while: () => 1,
  cond: () => 1,
};

function timesOf<K extends ControlOp>({ op, params }: EqnParts<K>): number {
  return timesRun[op](params);
}

function elementsOf(eqn: Eqn): number {
  const inner = innerPrograms(eqn).reduce((sum, [, program]) => sum + interpretedElements(program), 0);
  if (isControlEqn(eqn)) return timesOf(eqn) * inner;
  if (hasPrograms(eqn)) return inner;
  const sizes = [...eqn.ins, ...eqn.outs].map(({ type }) => sizeOf(type.shape));
  if (eqn.op === "dotGeneral") {
    const [left] = eqn.ins;
    const contracted = eqn.params.lhsContract.map((dim) => left?.type.shape[dim] ?? 1);
    return sizeOf(contracted) * (sizes.at(-1) ?? 0);
  }
  if (eqn.op === "raggedDot") return flopsOf(eqn) / 2;
  return Math.max(0, ...sizes);
}

/** Whether a program sums floats, which the interpreter does in float64 and kernels in another order. */
export function addsFloats(program: Program): boolean {
  return someEqn(program, (eqn) => {
    if (!eqn.outs.some(({ type }) => isFloat(type.dtype))) return false;
    if (eqn.op === "scatter") return eqn.params.combine === "add";
    return eqn.op === "reduceSum" || factsOf(eqn.op).family === "contraction";
  });
}
