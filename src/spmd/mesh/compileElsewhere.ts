import { startThread } from "#platform/threads";
import { compileWorkerCode } from "#spmd/mesh/compileWorkerCode";
import { nextValueId, type Program } from "../../ir/program.js";
import type { CompileMessage, CompileResult } from "./compileJob.js";

/**
 * Partitions and compiles a program in a thread of its own, so that this one stays responsive. Undefined where that is
 * not possible or fails: functions, such as host callbacks, cannot be sent, and errors are better explained by the
 * thread that compiles instead.
 */
export async function compileElsewhere(
  program: Program,
  job: Omit<CompileMessage, "program" | "firstId">,
): Promise<CompileResult | undefined> {
  return new Promise((resolve) => {
    const data: CompileMessage = { ...job, program, firstId: nextValueId() };
    try {
      const thread = startThread({
        code: compileWorkerCode(),
        name: "shardwise compiler",
        data,
        told: (message) => {
          const compiled = message as CompileResult;
          // Passes over its program must not number new values as it numbers its own.
          nextValueId.skipTo(compiled.nextId);
          resolve(compiled);
        },
        failed: () => resolve(undefined),
      });
      thread.keepAlive(true);
    } catch {
      resolve(undefined);
    }
  });
}
