import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { type RematPolicy, rematPolicyKinds } from "../../ir/ops.js";
import { type Eqn, makeEqn, mapInnerPrograms, newVar, type Program } from "../../ir/program.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, type TensorType, typesOf } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { flattenCall, traceTree } from "../../trace/trace.js";
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

/**
 * Decides whether the results of an op are kept: its name as programs print it, the types of its operands, and its
 * parameters. It is called once for every equation when the function is traced.
 */
export type RematPolicyFunction = (
  op: string,
  operands: readonly TensorType[],
  params: Readonly<Record<string, unknown>>,
) => boolean;

const rematOptions = schema({
  /** What to keep: a policy, or a function of ops; nothing but the arguments by default. */
  policy: optional<RematPolicy | RematPolicyFunction>("object", checkpointPolicies.nothingSaveable),
  /** Arguments that are not tensors but part of the function; booleans and strings are so anyway. −1 is the last one. */
  staticArgnums: optional("integerOrIntegers"),
});

/** Options of {@link remat}. */
export interface RematOptions extends OptionsOf<typeof rematOptions> {}

/** Throws unless a value is a policy, and so are those it consists of. */
function checkPolicy(policy: RematPolicy, level = 0): void {
  need("object", policy, "policy", "remat");
  if (typeof policy.kind !== "string" || !Object.hasOwn(rematPolicyKinds, policy.kind) || level > 100) {
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
 *
 * @example
 * ```ts
 * grad(remat((x: Tensor) => np.sin(x)))(np.array(0)); // 1
 * ```
 */
export function remat<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options?: RematOptions,
): (...args: A) => R {
  const { policy, staticArgnums } = rematOptions.read(options, "remat");
  need("function", fn, "fn", "remat");
  if (typeof policy !== "function") checkPolicy(policy);
  return (...args) => {
    const { tensors, structure } = flattenCall(args, staticArgnums, "remat");
    const types = tensors.map(({ type }) => type);
    const traced = traceTree(fn, structure, types, "remat");
    const { program, captures, target } = traced;
    const params =
      typeof policy === "function"
        ? { body: nameKept(program, policy), policy: checkpointPolicies.saveOnlyTheseNames(keptName) }
        : { body: program, policy };
    const results = bind("remat", [...captures, ...tensors], params, target);
    return tree.unflatten<R>(traced.outStructure, results);
  };
}

/** The name of values that a function chose to keep. */
const keptName = "kept by policy";

/** The program in which the values that a function chooses, also inside loops and branches, have a name. */
function nameKept(program: Program, isKept: RematPolicyFunction): Program {
  const eqns = program.eqns.flatMap((original): Eqn[] => {
    const eqn = mapInnerPrograms(original, (inner) => nameKept(inner, isKept));
    const { op, ins, outs, params, source } = eqn;
    const isChosen: unknown = isKept(op, typesOf(ins), { ...params });
    if (typeof isChosen !== "boolean") {
      throw new ValueError(`[remat] the policy must return a boolean, it returned ${describe(isChosen)}`);
    }
    if (!isChosen) return [eqn];
    const unnamed = outs.map(({ type }) => newVar(type));
    const names = outs.map((out, i) => makeEqn("name", [at(unnamed, i)], [out], { name: keptName }, source));
    return [{ ...eqn, outs: unnamed }, ...names];
  });
  return { ...program, eqns };
}

/**
 * Gives the tensors of a tree a name that remat policies can refer to.
 *
 * @example
 * ```ts
 * const f = (x: Tensor) => np.sin(checkpointName(np.square(x), "squares"));
 * grad(remat(f, { policy: checkpointPolicies.saveOnlyTheseNames("squares") }))(np.array(0)); // 0
 * ```
 */
export function checkpointName<T>(values: T, name: string): T {
  need("string", name, "name", "checkpointName");
  return tree.map((leaf: Tensor) => ops.name(leaf, name), values);
}
