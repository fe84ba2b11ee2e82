import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import type { RematPolicy } from "../../ir/ops.js";
import { checkOptions } from "../../ir/options.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { type Argnums, flattenCall, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";

/** Which intermediate values {@link remat} keeps for the backward pass; the others are recomputed. */
export const checkpointPolicies = {
  nothingSaveable: { kind: "nothing" },
  everythingSaveable: { kind: "everything" },
  /** Results of matrix products. */
  dotsSaveable: { kind: "dots" },
  /** Results of matrix products without batch dims: those with weights, not those of attention. */
  dotsWithNoBatchDimsSaveable: { kind: "dotsWithNoBatchDims" },
  /** Values marked by {@link checkpointName} with one of these names. */
  saveOnlyTheseNames: (...names: string[]): RematPolicy => ({ kind: "names", names }),
  /** Values marked by {@link checkpointName} with any other name. */
  saveAnyNamesButThese: (...names: string[]): RematPolicy => ({ kind: "exceptNames", names }),
  /** What either of the policies keeps. */
  saveFromBothPolicies: (...policies: RematPolicy[]): RematPolicy => ({ kind: "either", policies }),
} as const satisfies Record<string, RematPolicy | ((...args: never[]) => RematPolicy)>;

/** Options of {@link remat}. */
export interface RematOptions {
  /** What to keep; nothing but the arguments by default. */
  readonly policy?: RematPolicy;
  /** Arguments that are not tensors but part of the function; booleans and strings are so anyway. −1 is the last one. */
  readonly staticArgnums?: Argnums;
}

const policyKinds: { readonly [K in RematPolicy["kind"]]: true } = {
  nothing: true,
  everything: true,
  dots: true,
  dotsWithNoBatchDims: true,
  names: true,
  exceptNames: true,
  either: true,
};

/** Throws unless a value is a policy, and so are those it consists of. */
function checkPolicy(policy: RematPolicy, level = 0): void {
  need("object", policy, "policy", "remat");
  if (typeof policy.kind !== "string" || !Object.hasOwn(policyKinds, policy.kind) || level > 100) {
    throw new ValueError(`[remat] ${describe(policy)} is not a policy: use one of checkpointPolicies`);
  }
  if (policy.kind === "names" || policy.kind === "exceptNames")
    need("strings", policy.names, "the names of a policy", "remat");
  if (policy.kind !== "either") return;
  need("list", policy.policies, "the policies of a policy", "remat");
  for (const one of policy.policies) checkPolicy(one, level + 1);
}

/**
 * The same function, whose intermediate values are recomputed in the backward pass instead of being kept: less memory
 * for more arithmetic.
 */
export function remat<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options: RematOptions = {},
): (...args: A) => R {
  checkOptions<RematOptions>(options, { policy: true, staticArgnums: true }, "remat");
  const { policy = checkpointPolicies.nothingSaveable, staticArgnums } = options;
  need("function", fn, "fn", "remat");
  checkPolicy(policy);
  return (...args) => {
    const { tensors, structure } = flattenCall(args, staticArgnums, "remat");
    const types = tensors.map(({ type }) => type);
    const traced = traceTree(fn, structure, types, "remat");
    const { program: body, captures, target } = traced;
    const results = bind("remat", [...captures, ...tensors], { body, policy }, target);
    return tree.unflatten<R>(traced.outStructure, results);
  };
}

/** Gives the tensors of a tree a name that remat policies can refer to. */
export function checkpointName<T>(values: T, name: string): T {
  need("string", name, "name", "checkpointName");
  return tree.map((leaf: Tensor) => ops.name(leaf, name), values);
}
