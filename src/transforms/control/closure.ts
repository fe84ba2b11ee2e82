import { newVar, type Program } from "../../ir/program.js";
import type { Traced } from "../../trace/builder.js";
import { commonTarget, type ExecutionTarget } from "../../trace/executionTarget.js";
import type { Tensor } from "../../trace/tensor.js";

/** Several traced functions with the same leading inputs: everything that any of them captures. */
export interface SharedCaptures {
  readonly captures: readonly Tensor[];
  /** The programs, each with inputs (…captures, …its own arguments). */
  readonly programs: readonly Program[];
  readonly target: ExecutionTarget | undefined;
}

/** Gives functions that are parts of one equation the same captures. */
export function shareCaptures(traced: readonly Traced[]): SharedCaptures {
  const captures = [...new Set(traced.flatMap((t) => t.captures))];
  const programs = traced.map(({ program, captures: own }) => {
    const leading = captures.map((tensor) => {
      const i = own.indexOf(tensor);
      return program.inputs[i] ?? newVar(tensor.type);
    });
    return { ...program, inputs: [...leading, ...program.inputs.slice(own.length)] };
  });
  return { captures, programs, target: commonTarget(traced.map(({ target }) => target)) };
}
