/** The entry point of the worker thread of a device that reaches other processes through MPI. */
import { runDeviceWorker } from "../devices/deviceWorker.js";
import { remoteThrough } from "./collectives/collectives.js";
import { type LinksSetup, ProcessLinks } from "./exchange/links.js";

runDeviceWorker(
  (extra) => (signals, memory) => remoteThrough(new ProcessLinks(extra as LinksSetup, signals, memory)),
);
