/** A thread that partitions and compiles programs one after the other: everything between tracing and loading them. */
import { runThread } from "#platform/threads";
import { type CompileSettings, compileWith } from "../../engines/kernels/compileWith.js";
import { nextValueId } from "../../ir/program.js";
import { verify } from "../../ir/verify.js";
import { partitionToRun } from "../partition/partitionToRun.js";
import type { CompileAnswer, CompileMessage, CompileResult } from "./compileJob.js";

void runThread(async ({ received, tell }) => {
  for (;;) {
    const message = (await received()) as CompileMessage;
    try {
      tell(compile(message));
    } catch {
      // The thread that asked meets the same error, and knows more to say about it.
      tell("failed" satisfies CompileAnswer);
    }
  }
});

function compile(message: CompileMessage): CompileResult {
  const { program, mesh, request, settings, firstId, donated, name } = message;
  nextValueId.skipTo(firstId);
  const parts = partitionToRun(program, mesh, request);
  verify(parts.program, "partitioned");
  const options = { mesh, ...(donated && { donated }), ...(name !== undefined && { name }) };
  const prepared = settings && compileWith(settings as CompileSettings, parts.program, options);
  return { parts, prepared, nextId: nextValueId() };
}
