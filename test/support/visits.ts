import { Session } from "node:inspector";

/**
 * How much of the program runs while `fn` does: every function and every branch and round of a loop counts as often as
 * it is entered. It tells on any machine how work grows, which time tells on none with other work.
 */
export function visits(fn: () => void): number {
  const session = new Session();
  session.connect();
  try {
    session.post("Profiler.enable");
    session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
    fn();
    let total = 0;
    session.post("Profiler.takePreciseCoverage", (error, { result }) => {
      if (error) throw error;
      for (const { functions } of result)
        for (const { ranges } of functions) for (const { count } of ranges) total += count;
    });
    session.post("Profiler.stopPreciseCoverage");
    return total;
  } finally {
    session.disconnect();
  }
}
