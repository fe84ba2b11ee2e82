import type { MeshShape } from "../../ir/mesh.js";
import type { Program } from "../../ir/program.js";
import { type PartitionRequest, partition, type RunnableProgram } from "./partition.js";
import { splitUpdates } from "./passes/splitUpdates.js";

/** The program that every device of a mesh runs, with the updates of optimisers split over the devices. */
export function partitionToRun(
  program: Program,
  mesh: MeshShape,
  request: PartitionRequest,
): RunnableProgram {
  const parts = partition(program, mesh, request);
  const held = splitUpdates(parts);
  return { ...parts, program: held.program, held };
}
