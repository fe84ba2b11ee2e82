/** The entry point of the worker thread of a device that reaches other processes through MPI. */
import { runDeviceWorker } from "../devices/deviceWorker.js";
import { remoteThrough } from "./collectives.js";
import { Links, type LinksSetup } from "./links.js";

runDeviceWorker(
  (extra) => (signals, memory) => remoteThrough(new Links(extra as LinksSetup, signals, memory)),
);
