/** Promises that have not settled yet. */
export class Pending {
  private readonly promises = new Set<Promise<unknown>>();

  /** Tracks a promise until it settles, whether or not it fails. */
  add<T>(promise: Promise<T>): Promise<T> {
    const forget = () => void this.promises.delete(promise);
    this.promises.add(promise);
    promise.then(forget, forget);
    return promise;
  }

  /** Settles when all promises added so far have settled. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.promises);
  }
}
