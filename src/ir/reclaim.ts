import { Ambient } from "./ambient.js";

/**
 * Memory that belongs to unreachable objects is released in two ways: some time after the garbage collector has found
 * them, as everywhere in JavaScript, and immediately when memory is short. The second is what lets ordinary loops run
 * indefinitely: device memory does not make the garbage collector run, and a loop that never leaves its task (without
 * `await`, or awaiting only what is ready) never sees a finalisation callback.
 */

/** Something that releases memory when its holder is unreachable. */
export interface Watch {
  /** Stops watching, because the memory was released in another way. */
  forget(): void;
}

class Entry implements Watch {
  private weak: WeakRef<object> | undefined;

  constructor(
    private strong: object | undefined,
    readonly release: () => void,
  ) {}

  /** Whether the holder was collected. */
  get isGone(): boolean {
    return this.weak !== undefined && this.weak.deref() === undefined;
  }

  /** Lets the holder be collected. */
  weaken(): void {
    if (this.strong) this.weak = new WeakRef(this.strong);
    this.strong = undefined;
  }

  forget(): void {
    this.strong = undefined;
    entries.delete(this);
  }
}

const entries = new Set<Entry>();

/**
 * The latest entries, which still hold their holders: the state of a loop is donated to the next call before it would
 * pay to make weak references to it, each of which costs as much as a small op. They are made for older entries, when
 * memory is short, and when the garbage collector has run.
 */
class Latest {
  private readonly ring: (Entry | undefined)[] = new Array(512).fill(undefined);
  private place = 0;

  add(entry: Entry): void {
    this.ring[this.place]?.weaken();
    this.ring[this.place] = entry;
    this.place = (this.place + 1) % this.ring.length;
  }

  weaken(): void {
    for (const entry of this.ring) entry?.weaken();
    this.ring.fill(undefined);
  }
}

const latest = new Latest();

/** Maximum number of watched holders, whatever their size, before the unreachable ones are looked for. */
const leastHolders = 16_384;

/**
 * Detects that the garbage collector has run, by means of an unreachable object. Registering each holder instead would
 * identify it, but costs as much as a small op.
 */
const collected = new FinalizationRegistry<undefined>(() => {
  sweep();
  latest.weaken();
  collected.register({}, undefined);
});
collected.register({}, undefined);

/** Calls `release` once when `holder` has become unreachable; `release` itself must not refer to the holder. */
export function watch(holder: object, release: () => void): Watch {
  holders.check(numEntries);
  const entry = new Entry(holder, release);
  entries.add(entry);
  // Without a collector nothing could be done about them when memory is short.
  if (provided.get() === undefined) entry.weaken();
  else latest.add(entry);
  return entry;
}

const numEntries = (): number => entries.size;

/** Releases what collected holders held; returns their number. */
function sweep(): number {
  let released = 0;
  for (const entry of entries) {
    if (!entry.isGone || !entries.delete(entry)) continue;
    entry.release();
    released++;
  }
  return released;
}

/** Runs the garbage collector on demand. */
export interface Collector {
  /**
   * Releases objects that the runtime keeps alive until the current task ends because a weak reference was made or
   * read.
   */
  letGo(): void;
  /** Finds everything that is unreachable now. */
  collect(): void;
}

const unkeyed = "what is traced does not depend on when memory is released";

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

/** Installs the runtime's way of collecting on demand; without it only finalisation callbacks release memory. */
export function provideCollector(collector: Collector): void {
  provided.set(collector);
}

/** Releases what unreachable objects hold now; returns their number. */
export function reclaim(): number {
  const collector = provided.get();
  if (collector === undefined || reclaiming.get()) return 0;
  return reclaiming.within(true, () => {
    latest.weaken();
    collector.letGo();
    collector.collect();
    const released = sweep();
    // Dereferencing the others has made the runtime keep them until the task ends.
    collector.letGo();
    return released;
  });
}

/**
 * Decides when to reclaim: at twice what was live the last time, so that at most twice the live memory is retained and
 * the collector's work is amortised over as much allocation.
 */
export class HighWaterMark {
  private mark: number;

  /** @param least how much may be in use before anything is reclaimed */
  constructor(private readonly least: number) {
    this.mark = least;
  }

  /** Reclaims if `used()` has reached the threshold. */
  check(used: () => number): void {
    if (used() < this.mark) return;
    reclaim();
    this.mark = Math.max(this.least, 2 * used());
  }
}

const holders = new HighWaterMark(leastHolders);
