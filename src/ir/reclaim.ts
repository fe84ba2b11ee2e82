import { Ambient } from "./ambient.js";

/**
 * Memory that belongs to objects which nothing can reach any more is given back in two ways: some time after the
 * garbage collector has found them, as everywhere in JavaScript, and at once when memory is short. The second is
 * what makes ordinary loops run for ever: device memory does not make the garbage collector run, and a loop that
 * never leaves its task (without `await`, or awaiting only what is ready) never sees a finalisation callback.
 */

/** Something that gives memory back when its holder is unreachable. */
export interface Watch {
  /** Ends the watch, because the memory was given back otherwise. */
  forget(): void;
}

class Entry implements Watch {
  readonly holder: WeakRef<object>;

  constructor(
    holder: object,
    readonly release: () => void,
  ) {
    this.holder = new WeakRef(holder);
  }

  forget(): void {
    entries.delete(this);
  }
}

const entries = new Set<Entry>();

/** So many holders may be watched before the unreachable ones among them are looked for, however small they are. */
const leastHolders = 16_384;

/**
 * Tells that the garbage collector has been at work, by an object that nothing refers to. Watching each holder so
 * would tell of it alone, but costs as much as a small op.
 */
const collected = new FinalizationRegistry<undefined>(() => {
  sweep();
  collected.register({}, undefined);
});
collected.register({}, undefined);

/** Calls `release` once when `holder` has become unreachable; `release` itself must not refer to the holder. */
export function watch(holder: object, release: () => void): Watch {
  holders.check(numEntries);
  const entry = new Entry(holder, release);
  entries.add(entry);
  return entry;
}

const numEntries = (): number => entries.size;

/** Gives back what holders held that were collected; returns how many there were. */
function sweep(): number {
  let released = 0;
  for (const entry of entries) {
    if (entry.holder.deref() !== undefined || !entries.delete(entry)) continue;
    entry.release();
    released++;
  }
  return released;
}

/** What runs the garbage collector at once. */
export interface Collector {
  /** Lets go of objects that the runtime keeps until the current task ends because a weak reference was made. */
  letGo(): void;
  /** Finds everything that is unreachable now. */
  collect(): void;
}

const unkeyed = "what is traced does not depend on when memory is given back";

const provided = new Ambient<Collector | undefined>({
  name: "garbage collector",
  initial: undefined,
  setBy: "provideCollector",
  dependence: { unkeyed },
});

const reclaiming = new Ambient({
  name: "reclaiming",
  initial: false,
  setBy: "reclaim",
  dependence: { unkeyed },
});

/** Provides what the runtime has for collecting on demand; without it only finalisation callbacks give back. */
export function provideCollector(collector: Collector): void {
  provided.set(collector);
}

/** Gives back now what unreachable objects hold; returns how many there were. */
export function reclaim(): number {
  const collector = provided.get();
  if (collector === undefined || reclaiming.get()) return 0;
  return reclaiming.within(true, () => {
    collector.letGo();
    collector.collect();
    const released = sweep();
    // Looking at the others has made the runtime keep them until the task ends.
    collector.letGo();
    return released;
  });
}

/**
 * A mark that tells when to reclaim: at twice of what was live the last time, so that what is retained is at most
 * twice what is live and the collector's work is paid for by as much allocation.
 */
export class HighWaterMark {
  private mark: number;

  /** @param least what may be in use before anything is reclaimed */
  constructor(private readonly least: number) {
    this.mark = least;
  }

  /** Reclaims if `used()` has reached the mark. */
  check(used: () => number): void {
    if (used() < this.mark) return;
    reclaim();
    this.mark = Math.max(this.least, 2 * used());
  }
}

const holders = new HighWaterMark(leastHolders);
