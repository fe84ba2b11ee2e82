import type { HostData } from "../../ir/dtype.js";
import type { TensorType } from "../../ir/shape.js";
import { EngineBuffer } from "../shell.js";
import type { XlaRun } from "./xlaClient.js";

/** Maximum size of elements to cache on the host after reading them, so that reading them again needs no copy. */
export const SMALL_BYTES = 1 << 16;

/** The engine side of a buffer's lifetime. */
export interface Keeper<A> {
  /** The user can no longer use the buffer, though a run may still read it. */
  left(buffer: XlaBuffer<A>): void;
  /** Nothing reads the buffer any more. */
  giveBack(buffer: XlaBuffer<A>, array: A | undefined): void;
}

/** A tensor on one device of an XLA engine. */
export class XlaBuffer<A> extends EngineBuffer {
  /** The array, set once the run that computes it has started. */
  array: A | undefined;
  /** Settles when the run that computes the array has started or failed; undefined if it started at once. */
  queued: Promise<void> | undefined;
  /** Why there is no array. */
  failure: unknown;
  /** Cached elements of a small tensor that the host has read. */
  seen: HostData | undefined;
  /** The run that computes the elements; undefined if they are available already. */
  run: Pick<XlaRun<A>, "done" | "hurry"> | undefined;
  private readers = 0;
  private isGivenBack = false;

  /** @param bytes size of its device memory */
  constructor(
    owner: object,
    type: TensorType,
    device: number,
    readonly bytes: number,
    private readonly keeper: Keeper<A>,
  ) {
    super(owner, type, device);
  }

  /** Waits until the elements are available; throws if computing them failed. */
  async written(): Promise<void> {
    this.run?.hurry?.();
    await this.run?.done;
  }

  /** Keeps the array alive until {@link endRead}, even if the buffer is released meanwhile. */
  beginRead(): void {
    this.readers++;
  }

  endRead(): void {
    this.readers--;
    this.settle();
  }

  /** Releases the memory when nothing reads it any more. */
  protected override left(): void {
    this.keeper.left(this);
    this.settle();
  }

  /** Sets the array. */
  fulfil(array: A): void {
    this.array = array;
    this.settle();
  }

  /** Records why there will be no array. */
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
