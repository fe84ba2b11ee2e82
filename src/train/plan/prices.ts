/** The cost of a compiled program's steps on a machine, in seconds. */
import type { CollectiveSpec, Step, StepInfo } from "../../compiler/steps.js";
import type { DeviceSpeed } from "./deviceSpeed.js";

/** A step without a body that is not part of a collective. */
export type PlainStep = Exclude<Step, { readonly op: "loop" | "while" | "cond" | "start" | "done" }>;

/** The kind of work of a step, as plans name it. */
export type PricedWork = (typeof partNames)[number];

/** The kinds of work. */
export const partNames = ["products", "attention", "kernels", "moves"] as const;

/** The prices of a machine. */
export interface Prices {
  /** Peak floating-point operations per second of one device. */
  readonly peakFlops: number;
  /** Seconds from the call of a program to its first step, and from its last to the caller. */
  readonly call: number;
  /** The number of cores that devices share if they are threads; infinite if each is a separate chip. */
  readonly numCores: number;
  /** Whether a device computes while its messages travel. */
  readonly overlaps: boolean;
  /** Whether concurrent messages share one link, so that they are sent one after the other. */
  readonly takesTurns?: boolean;
  /** Set for devices whose compiler fuses: their programs are priced by these figures, and `step` is not used. */
  readonly device?: DeviceSpeed;
  /**
   * Seconds of a step that runs on every device at the same time.
   *
   * @internal
   */
  step(step: PlainStep, info: StepInfo): number;
  /**
   * Seconds of a collective that nothing overlaps.
   *
   * @internal
   */
  collective(spec: CollectiveSpec): number;
}

/** The kind of work of a step. */
export const partOfStep: { readonly [K in PlainStep["op"]]: PricedWork } = {
  gemm: "products",
  kernel: "kernels",
  host: "kernels",
  callback: "moves",
  copy: "moves",
  address: "moves",
  axisIndex: "moves",
};
