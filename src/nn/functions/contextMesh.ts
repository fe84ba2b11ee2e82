/** How a mesh splits sequences, together with the batch and the heads that need nothing from each other. */
import type { MeshAxis } from "../../ir/mesh.js";
import { at } from "../../ir/shape.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { boundAxes, lookUpAxes } from "../../trace/axes.js";

/** The axis of this name that is bound here, if collectives can name it. */
export function boundAxis(name: string, caller: string): MeshAxis | undefined {
  return boundAxes().some((axis) => axis.name === name) ? at(lookUpAxes(name, caller), 0) : undefined;
}

/** The names of the axes that split what a function is given. */
export interface SplitAxes {
  /** The axis of the sequence. */
  readonly axis: string;
  readonly batchAxes: readonly string[];
  readonly modelAxis: string;
}

/** Which of those axes split the dims of a call. */
export interface MeshSplit {
  /** Entries of partition specs. */
  readonly batch: readonly string[] | null;
  readonly heads: string | null;
  /** All axes that a shard map is over. */
  readonly axisNames: readonly string[];
}

/**
 * The axes that can split a call besides that of the sequence: those that no surrounding shard map has taken, and over
 * which the sizes are equal parts.
 *
 * @param heads all numbers of heads that must split
 */
export function meshSplit(
  mesh: Mesh,
  { axis, batchAxes, modelAxis }: SplitAxes,
  batch: number,
  heads: readonly number[],
  caller: string,
): MeshSplit {
  const size = (name: string) => mesh.shape[name] ?? 1;
  const isFree = (name: string) => size(name) > 1 && boundAxis(name, caller) === undefined;
  const free = batchAxes.filter(isFree);
  const numParts = free.reduce((product, name) => product * size(name), 1);
  const rows = batch % numParts === 0 ? free : [];
  const splitsHeads = isFree(modelAxis) && heads.every((n) => n % size(modelAxis) === 0);
  return {
    batch: rows.length > 0 ? rows : null,
    heads: splitsHeads ? modelAxis : null,
    axisNames: [axis, ...rows, ...(splitsHeads ? [modelAxis] : [])],
  };
}
