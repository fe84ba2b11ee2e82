/** What a seed decides while a simulated page and its worker run. */
export interface Conditions {
  /** Milliseconds until the next message arrives. */
  delay(): number;
  /** Whether the worker ends before it takes the message that has arrived. */
  dies(): boolean;
  /** A host callback was called; throws if the plan says so. */
  called(): void;
}

const state: { conditions: Conditions | undefined } = { conditions: undefined };

export function enterConditions(conditions: Conditions): void {
  state.conditions = conditions;
}

export function conditions(): Conditions {
  if (state.conditions === undefined) throw new Error("nothing is simulated");
  return state.conditions;
}
