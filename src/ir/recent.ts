/** Keeps the values that were asked for most recently, so that a loop over ever new shapes does not keep all. */
export class Recent<V> {
  private readonly values = new Map<string, V>();

  /**
   * @param most how many are kept
   * @param drop called with a value that is not kept any longer
   */
  constructor(
    private readonly most: number,
    private readonly drop: (value: V) => void = () => undefined,
  ) {}

  /** The value of a key, made when it is not kept. */
  get(key: string, make: () => V): V {
    const { values } = this;
    const kept = values.get(key);
    // While there is room for as many again, nothing will be dropped before its turn has come to be moved.
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
