import type { CompileOptions } from "../../ir/engine.js";
import type { MeshShape } from "../../ir/mesh.js";
import type { Program } from "../../ir/program.js";
import type { PartitionRequest, RunnableProgram } from "../partition/partition.js";

/** What is known about a program that is compiled in another thread. */
export interface CompileJob extends Pick<CompileOptions, "donated" | "name"> {
  readonly request: PartitionRequest;
}

/** What that thread gets. */
export interface CompileMessage extends CompileJob {
  readonly program: Program;
  readonly mesh: MeshShape;
  /** Those of the engine; without them the program is only partitioned. */
  readonly settings: unknown;
  /** The number of the first value that the program does not have. */
  readonly firstId: number;
}

/** What it answers: the program, or nothing where it could not compile it. */
export type CompileAnswer = CompileResult | "failed";

/** A program that another thread compiled. */
export interface CompileResult {
  readonly parts: RunnableProgram;
  /** For the engine; see `CompileOptions.prepared`. */
  readonly prepared: unknown;
  /** The number of the first value that `parts` does not have. */
  readonly nextId: number;
}
