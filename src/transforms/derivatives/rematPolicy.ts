import { hasEffects } from "../../ir/effects.js";
import { factsOf } from "../../ir/opFacts.js";
import type { RematPolicy } from "../../ir/ops.js";
import {
  type Eqn,
  hasPrograms,
  mapInnerPrograms,
  type Program,
  someEqn,
  type Var,
} from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { activePrograms } from "./activeBodies.js";
import type { Keep } from "./keep.js";
import type { LinearizeTools } from "./vjpTypes.js";

/** Whether the results of an equation are kept whatever the policy says: host callbacks are not run again. */
function runsOnce(eqn: Eqn): boolean {
  return (eqn.op === "callback" || eqn.op === "while") && hasEffects(eqn);
}

/** Whether a policy keeps the results of an equation for the backward pass. */
function isSaveable(policy: RematPolicy, eqn: Eqn): boolean {
  switch (policy.kind) {
    case "nothing":
      return false;
    case "everything":
      return true;
    case "dots":
      return factsOf(eqn.op).family === "contraction";
    case "dotsWithNoBatchDims":
      if (eqn.op === "raggedDot") return at(eqn.ins, 0).type.shape.length === 2;
      return eqn.op === "dotGeneral" && eqn.params.lhsBatch.length === 0;
    case "names":
      return eqn.op === "name" && policy.names.includes(eqn.params.name);
    case "exceptNames":
      return eqn.op === "name" && !policy.names.includes(eqn.params.name);
    case "either":
      return policy.policies.some((part) => isSaveable(part, eqn));
  }
}

/**
 * The other results of equations one of whose results is kept by name, such as the log-sums of attention: without them
 * the equation would be recomputed, and keeping the named result would be useless.
 */
function besideNamed(program: Program, saveable: readonly Eqn[]): Var[] {
  const named = new Set(
    saveable.flatMap(({ op, ins }) => ins.flatMap((x) => (op === "name" && x.kind === "var" ? [x.id] : []))),
  );
  return program.eqns
    .filter(({ outs }) => outs.length > 1 && outs.some(({ id }) => named.has(id)))
    .flatMap(({ outs }) => outs.filter(({ id }) => !named.has(id)));
}

const keepsSomething = ({ vars, inside }: Keep): boolean => vars.length > 0 || inside.size > 0;

/** Whether a policy keeps all values. */
export function keepsEverything(policy: RematPolicy): boolean {
  return policy.kind === "everything" || (policy.kind === "either" && policy.policies.some(keepsEverything));
}

/** The program with all values kept, including those that an inner remat would not keep. */
export function keepingEverything(program: Program): Program {
  const eqns = program.eqns.map((eqn) => {
    // Saved values are looked up by their equation, so equations that need no change must stay identical.
    if (!someEqn({ eqns: [eqn] }, ({ op }) => op === "remat")) return eqn;
    const changed = mapInnerPrograms(eqn, keepingEverything);
    if (changed.op !== "remat") return changed;
    const params = { ...changed.params, policy: { kind: "everything" } as const };
    return { ...changed, params };
  });
  return { ...program, eqns };
}

/**
 * What a policy keeps of a program, including inside its loops, branches and custom rules.
 *
 * @param active which inputs of the program need a cotangent
 * @param known what is kept already
 */
export function keepOf(
  program: Program,
  policy: RematPolicy,
  active: readonly boolean[],
  tools: LinearizeTools,
  known: readonly Keep[] = [],
): Keep {
  const isKnown = new Set(known.flatMap(({ vars }) => vars.map(({ id }) => id)));
  const saveable = program.eqns.filter((eqn) => runsOnce(eqn) || isSaveable(policy, eqn));
  const vars = [...saveable.flatMap(({ outs }) => outs), ...besideNamed(program, saveable)].filter(
    ({ id }) => !isKnown.has(id),
  );
  const activity = tools.operandActivity(program, active);
  const inside = new Map<Eqn, readonly Keep[]>();
  for (const eqn of program.eqns) {
    if (!hasPrograms(eqn)) continue;
    const flags = activity.get(eqn) ?? eqn.ins.map(() => false);
    const keeps = activePrograms(eqn, flags, tools).map((body, b) => {
      const before = known.flatMap((keep) => keep.inside.get(eqn)?.[b] ?? []);
      return keepOf(body.program, policy, body.active, tools, before);
    });
    // A custom rule runs its own forward pass whether or not any of it is kept; host callbacks run once.
    const isReplayed =
      eqn.op === "customVjp" ? keeps.length > 0 : keeps.some(keepsSomething) || hasEffects(eqn);
    if (isReplayed) inside.set(eqn, keeps);
  }
  return { vars, inside };
}
