import type { HostData } from "../../ir/dtype.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { formatType, type TensorType } from "../../ir/shape.js";
import type { XlaRun } from "./client.js";

/** Elements that were read are kept on the host up to this size, so that looking again needs no copy. */
export const SMALL_BYTES = 1 << 16;

/** Who gives buffers out and takes them back. */
export interface Keeper<A> {
  /** Nobody can use the buffer any more, though a run may still read it. */
  left(buffer: XlaBuffer<A>): void;
  /** Nothing reads the buffer any more. */
  giveBack(buffer: XlaBuffer<A>, array: A | undefined): void;
}

/** A tensor on one device of an XLA engine. */
export class XlaBuffer<A> implements DeviceBuffer {
  /** The array, once the run that makes it was started. */
  array: A | undefined;
  /** Why there is no array. */
  failure: unknown;
  /** Elements of a small tensor that the host has seen. */
  seen: HostData | undefined;
  /** The run that makes the elements; they are there where there is none. */
  run: Pick<XlaRun<A>, "done" | "hurry"> | undefined;
  /** Who saw the buffer last among others, to find it twice. */
  look = 0;
  private gone: "released" | "donated" | undefined;
  private readers = 0;
  private isGivenBack = false;

  /**
   * @param owner the engine that made it
   * @param bytes the memory that it takes
   */
  constructor(
    readonly owner: object,
    readonly type: TensorType,
    readonly device: number,
    readonly bytes: number,
    private readonly keeper: Keeper<A>,
  ) {}

  /** Waits until the elements are there; throws what went wrong on the way. */
  async written(): Promise<void> {
    this.run?.hurry?.();
    await this.run?.done;
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
    if (this.gone === undefined) {
      this.gone = how;
      this.keeper.left(this);
    }
    this.settle();
  }

  /** Gives the array. */
  fulfil(array: A): void {
    this.array = array;
    this.settle();
  }

  /** Says why there will be no array. */
  fail(failure: unknown): void {
    const done = Promise.reject(failure);
    done.catch(() => {});
    this.run = { done };
    this.failure = failure;
    this.settle();
  }

  private settle(): void {
    const isOver = this.array !== undefined || this.failure !== undefined;
    if (this.gone === undefined || this.readers > 0 || !isOver || this.isGivenBack) return;
    const { array } = this;
    this.isGivenBack = true;
    this.array = undefined;
    this.seen = undefined;
    this.keeper.giveBack(this, array);
  }
}

/** The error for a buffer of another engine. */
export function foreignBuffer(buffer: DeviceBuffer, caller: string): ValueError {
  return new ValueError(`[${caller}] the buffer of ${formatType(buffer.type)} belongs to another engine`);
}
