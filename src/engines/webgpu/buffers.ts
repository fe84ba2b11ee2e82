import type { HostData } from "../../ir/dtype.js";
import type { TensorType } from "../../ir/shape.js";
import { EngineBuffer } from "../shell.js";
import type { GpuBlock } from "./gpuMemory.js";

/** A tensor in the memory of a GPU. */
export class WebGpuBuffer extends EngineBuffer {
  /** Its memory, once the run that computes it has been recorded. */
  block: GpuBlock | undefined;
  /** Why there is none. */
  failure: unknown;
  /** The elements of a small tensor, kept after they were read. */
  seen: HostData | undefined;

  /**
   * @param bytes the size of its elements
   * @param onLeft called once, when nobody can use it any more
   */
  constructor(
    owner: object,
    type: TensorType,
    device: number,
    readonly bytes: number,
    private readonly onLeft: (buffer: WebGpuBuffer) => void,
  ) {
    super(owner, type, device);
  }

  protected override left(): void {
    this.onLeft(this);
  }
}
