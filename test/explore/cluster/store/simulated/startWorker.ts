/** Stands in for starting a thread: the one of the store runs on the simulated machine. */
import { spawn } from "../../../runtime.js";

type Main = (data: unknown) => Promise<void>;

let main: Main | undefined;

/** Called by the code of the thread when it is loaded. */
export function runStore(given: Main): void {
  main = given;
}

export function startWorker(_code: string, { workerData }: { readonly workerData: unknown }) {
  const run = main;
  if (run === undefined) throw new Error("the thread of the store is not loaded");
  spawn("store", async () => {
    await run(workerData);
    // It ends with its process.
    await new Promise<void>(() => {});
  });
  return { unref() {} };
}
