/** Which accesses of different threads have met: one directly after the other at the same word. */
import type { Site } from "./transform.js";

export class Transitions {
  private readonly places = new Set<number>();
  private readonly pairs = new Set<string>();
  private last = new Map<number, { readonly thread: number; readonly site: number }>();

  /** Begins a run, whose words are others. */
  begin(): void {
    this.last = new Map();
  }

  add(thread: number, site: number, location: number): void {
    const before = this.last.get(location);
    this.last.set(location, { thread, site });
    this.places.add(site);
    if (before !== undefined && before.thread !== thread) this.pairs.add(`${before.site} ${site}`);
  }

  /** How much of the sources has been seen. */
  describe(sites: readonly Site[]): string {
    const isAtomic = ({ file, text }: Site) => file.startsWith("src/") && text.startsWith("Atomics.");
    const atomics = new Map(sites.flatMap((site, i) => (isAtomic(site) ? [[keyOf(site), i] as const] : [])));
    const reached = new Set([...this.places].flatMap((i) => (sites[i] ? [keyOf(sites[i])] : [])));
    const numReached = [...atomics.keys()].filter((key) => reached.has(key)).length;
    return `coverage: ${numReached} of ${atomics.size} atomic operations in the sources, ${this.pairs.size} transitions from an access of one thread to one of another`;
  }
}

const keyOf = ({ file, line, text }: Site) => `${file}:${line} ${text}`;
