import type { TensorType } from "../../ir/shape.js";
import { EngineBuffer } from "../shell.js";
import type { Allocation, DeviceMemory } from "./deviceMemory.js";

/** A tensor in the memory of one device of a threads engine. */
export class ThreadsBuffer extends EngineBuffer {
  /**
   * @internal
   * @param readyAt the number of the device's command after which the elements are computed
   */
  constructor(
    owner: object,
    type: TensorType,
    device: number,
    /** @internal */
    readonly memory: DeviceMemory,
    /** @internal */
    readonly allocation: Allocation,
    readonly readyAt: number,
  ) {
    super(owner, type, device);
  }

  /** Donated memory becomes a result's, or is freed by the run that took it. */
  protected override left(how: "released" | "donated"): void {
    if (how === "released") this.memory.release(this.allocation);
  }
}
