/** Work in order: at once while nothing is waiting, else after what is. */
export class WorkQueue {
  private tail: Promise<void> | undefined;

  /** Whether nothing is waiting, so that the next work is done at once. */
  get isIdle(): boolean {
    return this.tail === undefined;
  }

  /** Does something after everything before it; the work itself deals with its errors. */
  add(work: () => Promise<void> | undefined): void {
    if (this.tail === undefined) this.follow(work());
    else this.follow(this.tail.then(work));
  }

  /** Waits until everything that was added so far is done. */
  async idle(): Promise<void> {
    while (this.tail !== undefined) await this.tail;
  }

  private follow(work: Promise<void> | undefined): void {
    if (work === undefined) return;
    const tail: Promise<void> = work.finally(() => {
      if (this.tail === tail) this.tail = undefined;
    });
    this.tail = tail;
  }
}
