/** What a scenario is: threads that run real protocol code, and what must be true of them. */
import { Failure } from "./machine.js";

/** A run of a scenario, set up on an empty machine. */
export interface ScenarioRun {
  /** The threads by their names; all of them must end, but for those that are daemons. */
  readonly threads: Readonly<Record<string, () => void | Promise<void>>>;
  readonly daemons?: readonly string[];
  /** Whether sleeping until a timeout passes is part of the scenario. */
  readonly timeoutsAreExpected?: boolean;
  /** Throws if the outcome is wrong. */
  check?(): void;
}

/** A scenario in one of its variants. */
export interface Scenario {
  readonly name: string;
  /** Whether all its schedules can be explored. */
  readonly isSmall?: boolean;
  setUp(): ScenarioRun;
}

/** Throws if values differ. */
export function same(actual: unknown, expected: unknown, what: string): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Failure("wrong result", `${what}: ${a}, not ${b}`);
}
