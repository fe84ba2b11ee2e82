/** Stands in for the event loop of `../../simulated/`: what threads tell their process, its main thread hears. */
import type { Callable } from "../../runtime.js";
import { invoke } from "../../runtime.js";
import { ownProcess } from "../host.js";

export { ClusterPromise as SimulatedPromise } from "../eventLoop.js";

export function queueMicrotask(task: () => void): void {
  ownProcess().loop.queue(() => invoke(task as Callable, undefined, []));
}
