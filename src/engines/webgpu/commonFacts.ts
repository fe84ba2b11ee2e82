import { at } from "../../ir/shape.js";
import type { GpuFacts } from "./gpu.js";

/** What holds on all of some GPUs: the strictest of each limit, and the features that all have. */
export function commonFacts(facts: readonly GpuFacts[]): Pick<GpuFacts, "limits" | "features"> {
  const [{ limits, features }, ...others] = [at(facts, 0), ...facts.slice(1)];
  const names = Object.keys(limits) as (keyof typeof limits)[];
  const strictest = names.map((name) => {
    const all = facts.map((each) => each.limits[name]);
    // What must be at least so much is stricter if it is more, such as the alignment of offsets.
    return [name, name.startsWith("min") ? Math.max(...all) : Math.min(...all)] as const;
  });
  return {
    limits: Object.fromEntries(strictest) as typeof limits,
    features: features.filter((feature) => others.every((other) => other.features.includes(feature))),
  };
}
