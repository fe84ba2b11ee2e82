import type { ChildProcess } from "node:child_process";

/** Ends all processes of the group that a child was started as (`detached`), also after the child itself has ended. */
export function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    // None of them is left.
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
