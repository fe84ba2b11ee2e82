/** What the steps of a compiled program cost on a machine, in seconds. */
import type { CollectiveSpec, Step, StepInfo } from "../../compiler/steps.js";

/** A step that computes or moves something by itself. */
export type PlainStep = Exclude<Step, { readonly op: "loop" | "while" | "cond" | "start" | "done" }>;

/** What kind of work a step is, in the words of plans. */
export type PartName = "products" | "kernels" | "moves";

/** The prices of a machine. */
export interface Prices {
  /** The floating-point operations a second that one device reaches at best. */
  readonly peakFlops: number;
  /** Seconds from the call of a program to its first step, and from its last to the caller. */
  readonly call: number;
  /** How many cores the devices share, where devices are threads; without limit where each is a chip of its own. */
  readonly numCores: number;
  /** Whether a device computes while its messages travel. */
  readonly overlaps: boolean;
  /** Whether messages that travel at the same time share one link, so that they take turns on it. */
  readonly takesTurns?: boolean;
  /**
   * Seconds of a step on every device at the same time.
   *
   * @internal
   */
  step(step: PlainStep, info: StepInfo): number;
  /**
   * Seconds of a collective by itself.
   *
   * @internal
   */
  collective(spec: CollectiveSpec): number;
}

/** The kind of work of a step. */
export const partOfStep: { readonly [K in PlainStep["op"]]: PartName } = {
  gemm: "products",
  kernel: "kernels",
  host: "kernels",
  callback: "moves",
  copy: "moves",
  address: "moves",
  axisIndex: "moves",
};
