import type { OpParams } from "../../ir/ops.js";
import { type Atom, newVar, type Program, type Var } from "../../ir/program.js";
import { inline } from "../../trace/builder.js";
import type { Tensor } from "../../trace/tensor.js";
import { sliceOf } from "../rewrite/deadCode.js";
import { inputIndex } from "../rewrite/split.js";

/** A scan with some values computed before the loop. */
export interface Hoisted {
  readonly ins: readonly Tensor[];
  readonly params: OpParams["scan"];
  /** The requested values. */
  readonly values: readonly Tensor[];
}

/**
 * Computes loop-invariant values once and passes them to the loop as constants.
 *
 * @param invariants values of the body that depend only on its constants
 */
export function hoist(
  ins: readonly Tensor[],
  params: OpParams["scan"],
  invariants: readonly Atom[],
): Hoisted {
  const { body, numConsts } = params;
  const consts = { inputs: body.inputs.slice(0, numConsts), eqns: body.eqns };
  const values = inline(sliceOf({ ...consts, outputs: invariants }), ins.slice(0, numConsts));
  const isComputed = (atom: Atom): atom is Var => atom.kind === "var" && inputIndex(body, atom) < 0;
  const found = new Map(
    invariants.flatMap((atom, i) => (isComputed(atom) ? [[atom, values[i]] as const] : [])),
  );
  const vars = [...found.keys()];
  const given = [...found.values()].filter((value) => value !== undefined);
  return {
    ins: [...ins.slice(0, numConsts), ...given, ...ins.slice(numConsts)],
    params: { ...params, numConsts: numConsts + vars.length, body: withInputs(body, numConsts, vars) },
    values,
  };
}

/** The body given some of its values, after its first inputs. */
function withInputs(body: Program, position: number, vars: readonly Var[]): Program {
  const isGiven = new Set(vars.map(({ id }) => id));
  const eqns = body.eqns.flatMap((eqn) => {
    const outs = eqn.outs.map((out) => (isGiven.has(out.id) ? newVar(out.type) : out));
    const isKnown = eqn.outs.length > 0 && eqn.outs.every(({ id }) => isGiven.has(id));
    return isKnown ? [] : [{ ...eqn, outs }];
  });
  const inputs = [...body.inputs.slice(0, position), ...vars, ...body.inputs.slice(position)];
  return { inputs, eqns, outputs: body.outputs };
}
