import * as np from "../../numpy/index.js";
import type { Schedule } from "../../optim/index.js";

/** The number of updates whose learning rates are computed at a time: a schedule takes tens of operations. */
const BLOCK = 256;

/** The learning rates of a run, read update by update without work on the thread that feeds the devices. */
export class LearningRates {
  private first: number | undefined;
  private rates: Promise<ArrayLike<number | bigint>> = Promise.resolve([]);

  constructor(private readonly schedule: Schedule) {}

  /** The learning rate of an update, from 0 on. */
  async at(update: number): Promise<number> {
    const first = update - (update % BLOCK);
    if (first !== this.first) {
      this.first = first;
      this.rates = np.broadcastTo(this.schedule(np.arange(first, first + BLOCK)), [BLOCK]).data();
    }
    return Number((await this.rates)[update - first]);
  }
}
