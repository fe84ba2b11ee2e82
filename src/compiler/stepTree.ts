import type { Step } from "./steps.js";

/**
 * Step lists are trees: loops and choices hold lists of steps. This is the one place that knows which do, for the
 * steps of a plan and those of a finished program alike.
 */
export type StepLike<S> =
  | { readonly op: "loop"; readonly body: readonly S[] }
  | { readonly op: "while"; readonly condition: readonly S[]; readonly body: readonly S[] }
  | { readonly op: "cond"; readonly branches: readonly (readonly S[])[] }
  | { readonly op: Exclude<Step["op"], "loop" | "while" | "cond"> };

/** The lists of steps inside a step with their names, in the order in which steps are numbered. */
export function namedLists<S extends StepLike<S>>(
  step: S,
): readonly (readonly [name: string, steps: readonly S[]])[] {
  const nest: StepLike<S> = step;
  switch (nest.op) {
    case "loop":
      return [["body", nest.body]];
    case "while":
      return [
        ["condition", nest.condition],
        ["body", nest.body],
      ];
    case "cond":
      return nest.branches.map((branch, i) => [`branch ${i}`, branch] as const);
    default:
      return [];
  }
}

/** The lists of steps inside a step. */
export function innerSteps<S extends StepLike<S>>(step: S): readonly (readonly S[])[] {
  return namedLists(step).map(([, steps]) => steps);
}

/** Calls `visit` for every step in the order in which steps are numbered: a step, then the steps inside it. */
export function forEachStep<S extends StepLike<S>>(steps: readonly S[], visit: (step: S) => void): void {
  for (const step of steps) {
    visit(step);
    for (const inner of innerSteps(step)) forEachStep(inner, visit);
  }
}

/** Whether any of these steps, or of the steps inside them, satisfies a condition. */
export function someStep<S extends StepLike<S>>(steps: readonly S[], matches: (step: S) => boolean): boolean {
  return steps.some((step) => matches(step) || innerSteps(step).some((inner) => someStep(inner, matches)));
}
