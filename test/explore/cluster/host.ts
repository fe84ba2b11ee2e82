/** What simulated code asks of the cluster that it runs in. */
import type { Disk } from "../disk.js";
import { current } from "../runtime.js";
import type { ClusterMachine } from "./machine.js";
import type { Network } from "./network.js";
import type { SimulatedProcess } from "./process.js";

/** A cluster while it runs a job. */
export interface Cluster {
  readonly machine: ClusterMachine;
  readonly network: Network;
  readonly disk: Disk;
  /** Whether training goes on while a checkpoint is written. */
  readonly savesInBackground: boolean;
  /** Whether a process runs a different program from the others in this start. */
  hasDiverged(rank: number): boolean;
  /** Called before every call of MPI: what is planned for this moment happens. */
  called(process: SimulatedProcess): void;
  /** Called when the loss of a step has been read. */
  read(step: number, loss: number): void;
  /** Called when a save has returned. */
  saved(step: number): void;
  /** Called when a start has looked for checkpoints. @param damaged what is wrong with those that it found */
  found(step: number, damaged: readonly string[]): void;
}

const state: { cluster: Cluster | undefined } = { cluster: undefined };

/** Sets the cluster that code runs in. */
export function enter(cluster: Cluster): void {
  state.cluster = cluster;
  current.machine = cluster.machine;
}

/** The cluster that code runs in. */
export function cluster(): Cluster {
  if (state.cluster === undefined) throw new Error("there is no cluster");
  return state.cluster;
}

/** The process that code runs in. */
export function ownProcess(): SimulatedProcess {
  return cluster().machine.process;
}
