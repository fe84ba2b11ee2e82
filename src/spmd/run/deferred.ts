import { nextTurn } from "#platform/system";
import { zip } from "../../ir/collections.js";
import type { TensorType } from "../../ir/shape.js";
import { type DeferredStart, Storage } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";

/** How long calls may be started one after the other before other tasks of the page have their turn, in milliseconds. */
const TURN_MS = 8;

/**
 * Calls that are started later, because the program of one of them is still being compiled. A page must not stand still
 * for that, so a call returns tensors whose values come when it is started. Whatever uses such a tensor, or one that such
 * a call reads, waits its turn, so that everything happens in the order in which it was called.
 */
class DeferredCalls {
  private readonly waiting: DeferredCall[] = [];
  private isStarting = false;

  get last(): DeferredCall | undefined {
    return this.waiting.at(-1);
  }

  add(call: DeferredCall): void {
    this.waiting.push(call);
    if (!this.isStarting) void this.startAll();
  }

  /** Starts all calls up to one of them now. */
  startUpTo(call: DeferredCall): void {
    while (this.waiting.includes(call)) this.waiting.shift()?.begin();
  }

  /** Starts all calls in their order, each when it is prepared. */
  private async startAll(): Promise<void> {
    this.isStarting = true;
    let turn = performance.now();
    // Not in the task that made the call.
    await nextTurn();
    for (let call = this.waiting[0]; call !== undefined; call = this.waiting[0]) {
      try {
        await call.prepare();
      } catch (error) {
        call.refuse(error);
      }
      if (performance.now() - turn > TURN_MS) {
        await nextTurn();
        turn = performance.now();
      }
      this.startUpTo(call);
    }
    this.isStarting = false;
  }
}

const calls = new DeferredCalls();

class DeferredCall implements DeferredStart {
  readonly started: Promise<void>;
  readonly results: readonly Storage[];
  private readonly reserved: readonly Storage[];
  private resolve = () => {};
  private refusal: { readonly error: unknown } | undefined;

  constructor(
    inputs: readonly Tensor[],
    types: readonly TensorType[],
    readonly prepare: () => Promise<void> | undefined,
    private readonly start: () => readonly Storage[],
  ) {
    this.started = new Promise((resolve) => {
      this.resolve = resolve;
    });
    this.results = types.map((type) => new Storage(this, type));
    this.reserved = inputs.flatMap(({ node }) => (node.kind === "array" ? [node.storage] : []));
    for (const storage of this.reserved) storage.reserve();
  }

  startNow(): void {
    calls.startUpTo(this);
  }

  /** Makes its results report an error in the place of values. */
  refuse(error: unknown): void {
    this.refusal = { error };
  }

  begin(): void {
    try {
      const values = Storage.reserved(this.reserved, () => {
        if (this.refusal) throw this.refusal.error;
        return this.start();
      });
      for (const [storage, value] of zip(this.results, values)) storage.settle(value);
    } catch (error) {
      for (const storage of this.results) storage.fail(error);
    }
    this.resolve();
  }
}

/** Whether calls are waiting. */
export function hasDeferred(): boolean {
  return calls.last !== undefined;
}

/** Whether a call with these inputs has to wait for calls before it. */
export function isDeferred(inputs: readonly Tensor[]): boolean {
  return hasDeferred() && inputs.some(({ node }) => node.kind === "array" && node.storage.isAwaited);
}

/**
 * Defers a call, and returns its results.
 *
 * @param prepare what has to happen before it can be started, if anything; if it fails, the results report why
 * @param start starts the call
 */
export function defer(
  inputs: readonly Tensor[],
  types: readonly TensorType[],
  prepare: () => Promise<void> | undefined,
  start: () => readonly Storage[],
): Tensor[] {
  const call = new DeferredCall(inputs, types, prepare, start);
  calls.add(call);
  return call.results.map((storage) => Tensor.stored(storage));
}

/** Waits until all calls that were made so far are started. */
export async function allStarted(): Promise<void> {
  await calls.last?.started;
}
