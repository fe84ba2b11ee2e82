/** What the system calls back later: when the seed says so. */
import { currentRun, type Turns } from "../turns.js";

interface Run {
  readonly turns: Turns;
  /** What is called before the process exits. */
  readonly exits: Set<() => void>;
}

export const nextTurn = (): Promise<void> => currentRun<Run>().turns.moment();

export const backgroundTimer = (action: () => void): (() => void) => currentRun<Run>().turns.later(action);

export function beforeExit(action: () => void): () => void {
  const { exits } = currentRun<Run>();
  exits.add(action);
  return () => void exits.delete(action);
}
