/** A cache of the most recently used values, so that a loop over ever new shapes does not retain all of them. */
export class Recent<V> {
  private readonly values = new Map<string, V>();

  /**
   * @param most maximum number of values
   * @param drop called with a value that was evicted
   */
  constructor(
    private readonly most: number,
    private readonly drop: (value: V) => void = () => undefined,
  ) {}

  /** The value of a key, made if it is not cached. */
  get(key: string, make: () => V): V {
    const { values } = this;
    const kept = values.get(key);
    // While the cache is at most half full, no entry can be evicted before its next use moves it.
    if (kept !== undefined && 2 * values.size <= this.most) return kept;
    const value = kept ?? make();
    // A map lists its keys in the order in which they were set.
    values.delete(key);
    values.set(key, value);
    if (values.size > this.most) this.dropOldest();
    return value;
  }

  private dropOldest(): void {
    const [oldest] = this.values;
    if (oldest === undefined) return;
    this.values.delete(oldest[0]);
    this.drop(oldest[1]);
  }
}
