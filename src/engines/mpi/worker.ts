/** The entry point of the worker thread of a device that reaches other processes through MPI. */
import { runNodeWorker } from "../devices/nodeWorker.js";
import { remoteThrough } from "./collectives.js";
import { Links, type LinksSetup } from "./links.js";

runNodeWorker((extra) => (signals, memory) => remoteThrough(new Links(extra as LinksSetup, signals, memory)));
