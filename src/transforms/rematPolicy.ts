import type { RematPolicy } from "../ir/ops.js";
import type { Eqn } from "../ir/program.js";

/** Whether a policy keeps the results of an equation for the backward pass. */
export function isSaveable(policy: RematPolicy, eqn: Eqn): boolean {
  switch (policy.kind) {
    case "nothing":
      return false;
    case "everything":
      return true;
    case "dots":
      return eqn.op === "dotGeneral";
    case "dotsWithNoBatchDims":
      return eqn.op === "dotGeneral" && eqn.params.lhsBatch.length === 0;
    case "names":
      return eqn.op === "name" && policy.names.includes(eqn.params.name);
    case "exceptNames":
      return eqn.op === "name" && !policy.names.includes(eqn.params.name);
    case "either":
      return policy.policies.some((part) => isSaveable(part, eqn));
  }
}
