import type { DeviceBuffer } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { formatType, type TensorType } from "../../ir/shape.js";
import type { Allocation } from "./deviceMemory.js";

/** A tensor in the memory of one device of a threads engine. */
export class ThreadsBuffer implements DeviceBuffer {
  private held: Allocation | undefined;

  /**
   * @param readyAt the number of the device's command after which the elements are there
   * @param owner the pool of the engine that made it
   */
  constructor(
    readonly type: TensorType,
    readonly device: number,
    allocation: Allocation,
    readonly readyAt: number,
    private readonly owner: object,
  ) {
    this.held = allocation;
  }

  /** The memory, unless it was released or donated. */
  get allocation(): Allocation | undefined {
    return this.held;
  }

  /** Whether it lives in the engine with this pool. */
  belongsTo(owner: object): boolean {
    return this.owner === owner;
  }

  /** Takes the memory away: the buffer cannot be used any more. */
  take(): Allocation | undefined {
    const { held } = this;
    this.held = undefined;
    return held;
  }
}

/** A buffer that still has its memory. */
export interface LiveBuffer {
  readonly type: TensorType;
  readonly device: number;
  readonly allocation: Allocation;
  readonly readyAt: number;
}

/** A buffer of this engine that still has its memory; throws otherwise. */
export function adoptBuffer(buffer: DeviceBuffer, owner: object, caller: string): LiveBuffer {
  if (!(buffer instanceof ThreadsBuffer) || !buffer.belongsTo(owner)) {
    throw new ValueError(`[${caller}] the buffer of ${formatType(buffer.type)} belongs to another engine`);
  }
  const { type, device, allocation, readyAt } = buffer;
  if (allocation === undefined) {
    throw new DisposedError(`[${caller}] the buffer of ${formatType(type)} was released or donated before`);
  }
  return { type, device, allocation, readyAt };
}
