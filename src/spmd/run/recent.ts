/** Keeps the values that were asked for most recently, so that a loop over ever new shapes does not keep all. */
export class Recent<V> {
  private readonly values = new Map<string, V>();

  /**
   * @param most how many are kept
   * @param drop called with a value that is not kept any longer
   */
  constructor(
    private readonly most: number,
    private readonly drop: (value: V) => void,
  ) {}

  /** The value of a key, made when it is not kept. */
  get(key: string, make: () => V): V {
    const value = this.values.get(key) ?? make();
    // A map lists its keys in the order in which they were set.
    this.values.delete(key);
    this.values.set(key, value);
    const [oldest] = this.values;
    if (this.values.size > this.most && oldest !== undefined) {
      this.values.delete(oldest[0]);
      this.drop(oldest[1]);
    }
    return value;
  }
}
