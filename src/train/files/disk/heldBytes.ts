/** The bytes of tensors in host memory, which are limited. */
export class HeldBytes {
  private bytes = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly most: number) {}

  /** Waits until there is space for some more bytes; what needs more than all the space gets it alone. */
  async take(bytes: number): Promise<void> {
    while (this.bytes > 0 && this.bytes + bytes > this.most) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    this.bytes += bytes;
  }

  giveBack(bytes: number): void {
    this.bytes -= bytes;
    for (const resume of this.waiting.splice(0)) resume();
  }
}
