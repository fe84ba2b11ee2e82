import type { HostData } from "../../ir/dtype.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { bytesOf, formatType, type TensorType } from "../../ir/shape.js";

/** Elements that were read are kept on the host up to this size, so that looking again needs no copy. */
export const SMALL_BYTES = 1 << 16;

/** A tensor on one device of an XLA engine. */
export class XlaBuffer<A> implements DeviceBuffer {
  /** The array, once the run that makes it was started. */
  array: A | undefined;
  /** Why there is no array. */
  failure: unknown;
  /** Elements of a small tensor that the host has seen. */
  seen: HostData | undefined;
  /** Settles some time after the elements are there. */
  written: Promise<void> = Promise.resolve();
  /** Lets {@link written} settle as soon as they are. */
  hurry: (() => void) | undefined;
  private gone: "released" | "donated" | undefined;
  private readers = 0;

  /**
   * @param owner the engine that made it
   * @param destroy gives an array back
   */
  constructor(
    readonly owner: object,
    readonly type: TensorType,
    readonly device: number,
    private readonly destroy: (buffer: XlaBuffer<A>, array: A | undefined) => void,
  ) {}

  get bytes(): number {
    return bytesOf(this.type);
  }

  /** Throws if the buffer cannot be used any more. */
  check(caller: string): void {
    if (this.gone === undefined) return;
    throw new DisposedError(
      `[${caller}] this buffer of ${formatType(this.type)} on device ${this.device} was ${this.gone} ` +
        "and cannot be used again: keep a copy, or do not donate it",
    );
  }

  /** Keeps the array until {@link endRead}, whatever becomes of the buffer. */
  beginRead(): void {
    this.readers++;
  }

  endRead(): void {
    this.readers--;
    this.settle();
  }

  /** Takes the buffer from its owner; the memory is given back when nothing reads it any more. */
  dispose(how: "released" | "donated"): void {
    this.gone ??= how;
    this.settle();
  }

  /** Gives the array, or says why there will be none. */
  fulfil(array: A | undefined, failure?: unknown): void {
    this.array = array;
    this.failure = failure;
    this.settle();
  }

  private settle(): void {
    const isOver = this.array !== undefined || this.failure !== undefined;
    if (this.gone === undefined || this.readers > 0 || !isOver) return;
    const { array } = this;
    this.array = undefined;
    this.seen = undefined;
    this.destroy(this, array);
  }
}

/** A buffer of this engine that can be used; throws otherwise. */
export function adopt<A>(
  buffer: DeviceBuffer,
  owner: object,
  caller: string,
  is: (buffer: DeviceBuffer) => buffer is XlaBuffer<A>,
): XlaBuffer<A> {
  if (!is(buffer) || buffer.owner !== owner) {
    throw new ValueError(`[${caller}] the buffer of ${formatType(buffer.type)} belongs to another engine`);
  }
  buffer.check(caller);
  return buffer;
}
