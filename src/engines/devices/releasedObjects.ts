import { collectOnDemand } from "#engines/collector";

/** How many programs, and how many bytes of messages, a thread may release before they are collected. */
export const RECLAIM_THRESHOLD = { programs: 128, bytes: 8 * 1024 * 1024 } as const;

/**
 * Counts what a worker thread releases, and from time to time frees the memory that it held.
 *
 * These threads never return to their event loop, where the runtime would free what unreachable objects hold outside of
 * JavaScript's heap: compiled modules, tens of kilobytes each, and the elements of uploads. Collecting on demand frees
 * all of it at once.
 */
export class ReleasedObjects {
  private programs = 0;
  private bytes = 0;

  constructor(private readonly collect = collectOnDemand()) {}

  /** A program is gone. */
  program(): void {
    if (++this.programs < RECLAIM_THRESHOLD.programs) return;
    this.programs = 0;
    this.collect("all");
  }

  /** What a message brought is not needed any more. */
  message(bytes: number): void {
    this.bytes += bytes;
    if (this.bytes < RECLAIM_THRESHOLD.bytes) return;
    this.bytes = 0;
    this.collect("young");
  }
}
