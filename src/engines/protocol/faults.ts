/** A way in which a worker can be made to fail, for tests. */
export type FaultKind =
  /** An exception in the step. */
  | "throw"
  /** `process.exit` in the worker, with code 0. */
  | "exit"
  /** A step that never ends. */
  | "hang";

/** Makes one device fail at one step of a program. */
export interface Fault {
  readonly device: number;
  readonly kind: FaultKind;
  /** The name of the program. */
  readonly program: string;
  /** The number of the step. */
  readonly step: number;
}
