import { getOrInsert } from "../../ir/collections.js";
import { allocateHost } from "../../ir/dtype.js";
import type { Engine } from "../../ir/engine.js";
import { tensorType } from "../../ir/shape.js";
import type { ExecutionTarget } from "../../trace/executionTarget.js";
import { allStarted } from "./deferred.js";

/** The devices that were given programs which call host callbacks, since it was last waited for them. */
const called = new Map<Engine, Set<number>>();

/** Notes that a program which calls host callbacks was started. */
export function noteEffects({ engine, devices }: ExecutionTarget): void {
  // An engine of the calling thread has run it by now.
  if (engine.selfCollecting) return;
  const noted = getOrInsert(called, engine, () => new Set());
  for (const device of devices) if (engine.isAddressable(device)) noted.add(device);
}

/**
 * Waits until all functions that programs started so far call (`debug.print`, `debug.callback`, `ioCallback`) have been
 * called; throws what one of them threw. Waiting for a result of a program waits for its calls as well.
 *
 * @example
 * ```ts
 * const seen: unknown[] = [];
 * jit((x: Tensor) => (debug.callback((y) => seen.push(y), x), x))(np.array([1]));
 * await effectsBarrier();
 * seen.length; // 1
 * ```
 */
export async function effectsBarrier(): Promise<void> {
  await allStarted();
  const waiting = [...called].flatMap(([engine, devices]) =>
    [...devices].map((device) => afterEverything(engine, device)),
  );
  called.clear();
  await Promise.all(waiting);
}

/** Devices do things in order: when a copy has arrived, so has everything that was requested before. */
async function afterEverything(engine: Engine, device: number): Promise<void> {
  const type = tensorType("float32", []);
  const source = engine.upload(type, allocateHost(type.dtype, 1), device);
  const copy = engine.transfer(source, device);
  await engine.ready(copy);
  engine.release(copy);
  engine.release(source);
}
