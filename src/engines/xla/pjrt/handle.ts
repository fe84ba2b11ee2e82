import { DisposedError } from "../../../ir/errors.js";

/** Something that the plug-in holds for us; using it after it was given back throws instead of crashing. */
export class Handle {
  private value: bigint;

  constructor(
    value: bigint,
    private readonly what: string,
  ) {
    this.value = value;
  }

  get pointer(): bigint {
    if (this.value === 0n) throw new DisposedError(`[xla] ${this.what} was given back and is used again`);
    return this.value;
  }

  /** The pointer for the one who gives it back. */
  take(): bigint {
    const { pointer } = this;
    this.value = 0n;
    return pointer;
  }
}
