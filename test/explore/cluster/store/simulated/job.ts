/** What each process of a simulated job does with the store: opens it, and shares texts in several rounds. */

import type { XlaProcesses } from "../../../../../src/engines/xla/processes.js";
import { ProcessStore } from "../../../../../src/engines/xla/store/openStore.js";
import { range } from "../../../../../src/ir/shape.js";
import "../../../../../src/engines/xla/store/worker.js";

export interface StoreJob extends XlaProcesses {
  readonly numRounds: number;
  /** Called before every round, where time may pass. */
  readonly work: (index: number, round: number) => number;
}

/** What a process shares in a round. */
const textOf = (process: number, round: number) => `${process} in ${round}${"!".repeat(round * 7)}`;

/** Returns the machines of all processes, after all rounds. */
export async function share(job: StoreJob): Promise<readonly string[]> {
  const store = ProcessStore.open(job);
  for (const round of range(job.numRounds)) {
    await new Promise<void>((resolve) => {
      setTimeout(resolve, job.work(job.index, round));
    });
    const texts = await store.share(textOf(job.index, round));
    const expected = range(job.count).map((process) => textOf(process, round));
    if (texts.join() !== expected.join()) throw new Error(`round ${round} gives ${texts.join()}`);
  }
  return store.hosts;
}
