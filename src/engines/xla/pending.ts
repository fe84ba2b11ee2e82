/** What was begun and is not over. */
export class Pending {
  private readonly promises = new Set<Promise<unknown>>();

  /** Remembers a promise until it is over, however it ends. */
  add<T>(promise: Promise<T>): Promise<T> {
    const forget = () => void this.promises.delete(promise);
    this.promises.add(promise);
    promise.then(forget, forget);
    return promise;
  }

  /** Settles when all that were begun so far are over. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.promises);
  }
}
