import { DisposedError } from "../../../ir/errors.js";

/** An object owned by the plug-in; using it after its release throws instead of crashing. */
export class Handle {
  private value: bigint;

  constructor(
    value: bigint,
    private readonly what: string,
  ) {
    this.value = value;
  }

  get pointer(): bigint {
    if (this.value === 0n) throw new DisposedError(`[xla] ${this.what} was used after its release`);
    return this.value;
  }

  /** Takes the pointer in order to release the object. */
  take(): bigint {
    const { pointer } = this;
    this.value = 0n;
    return pointer;
  }
}
