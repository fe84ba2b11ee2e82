/** Stands in for what is asked of the operating system. */
import { current } from "../../../runtime.js";
import type { ClusterMachine } from "../../machine.js";

export function hostname(): string {
  return `node${(current.machine as ClusterMachine).process.rank}`;
}
