/** The entry point of the worker in which all devices of a {@link OneThreadEngine} take turns. */
import { runThread } from "#platform/threads";
import { Devices } from "./devices.js";
import type { Order, Setup } from "./orders.js";

void runThread(async ({ data, received, tell }) => {
  const devices = new Devices(data as Setup, tell);
  // The answer to a callback arrives while a run waits for it.
  for (;;) devices.take((await received()) as Order);
});
