/** The shortest of several runs, in milliseconds. */
export function best(run: () => Promise<unknown>, milliseconds?: number): Promise<number>;

/** The shapes of what a training step takes: inputs and targets, two weights, and both moments of each. */
export const stepShapes: readonly (readonly number[])[];
