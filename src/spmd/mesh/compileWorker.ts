/** A thread that partitions and compiles one program: everything between tracing and loading it. */
import { runThread } from "#platform/threads";
import { type CompileSettings, compileWith } from "../../engines/kernels/compileWith.js";
import { nextValueId } from "../../ir/program.js";
import { verify } from "../../ir/verify.js";
import { partitionToRun } from "../partition/partitionToRun.js";
import type { CompileMessage, CompileResult } from "./compileJob.js";

void runThread(({ data, tell }) => {
  const { program, mesh, request, settings, firstId, donated, name } = data as CompileMessage;
  nextValueId.skipTo(firstId);
  const parts = partitionToRun(program, mesh, request);
  verify(parts.program, "partitioned");
  const options = { mesh, ...(donated && { donated }), ...(name !== undefined && { name }) };
  const prepared = settings && compileWith(settings as CompileSettings, parts.program, options);
  tell({ parts, prepared, nextId: nextValueId() } satisfies CompileResult);
});
