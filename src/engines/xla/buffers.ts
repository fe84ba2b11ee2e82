import type { HostData } from "../../ir/dtype.js";
import type { TensorType } from "../../ir/shape.js";
import { EngineBuffer } from "../shell.js";
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
export class XlaBuffer<A> extends EngineBuffer {
  /** The array, once the run that makes it was started. */
  array: A | undefined;
  /** Why there is no array. */
  failure: unknown;
  /** Elements of a small tensor that the host has seen. */
  seen: HostData | undefined;
  /** The run that makes the elements; they are there where there is none. */
  run: Pick<XlaRun<A>, "done" | "hurry"> | undefined;
  private readers = 0;
  private isGivenBack = false;

  /** @param bytes the memory that it takes */
  constructor(
    owner: object,
    type: TensorType,
    device: number,
    readonly bytes: number,
    private readonly keeper: Keeper<A>,
  ) {
    super(owner, type, device);
  }

  /** Waits until the elements are there; throws what went wrong on the way. */
  async written(): Promise<void> {
    this.run?.hurry?.();
    await this.run?.done;
  }

  /** Keeps the array until {@link endRead}, whatever becomes of the buffer. */
  beginRead(): void {
    this.readers++;
  }

  endRead(): void {
    this.readers--;
    this.settle();
  }

  /** The memory is given back when nothing reads it any more. */
  protected override left(): void {
    this.keeper.left(this);
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
    if (this.isLive || this.readers > 0 || !isOver || this.isGivenBack) return;
    const { array } = this;
    this.isGivenBack = true;
    this.array = undefined;
    this.seen = undefined;
    this.keeper.giveBack(this, array);
  }
}
