import { join } from "node:path";
import { reasonOf } from "../../ir/errors.js";
import type { FlightRecording } from "../../ir/flight.js";
import { writeRecording } from "../flight/file.js";

/** Where recordings are written unless something else is said; processes of one job mostly share it. */
const DEFAULT_FOLDER = "shardwise-flight";

/**
 * Writes what the devices of this process did last into a file of its own, in the folder of all processes, when one of
 * them fails: itself, or another one that says so or that the launcher ends this one for.
 */
export class FlightFiles {
  private folder: string | undefined;
  private reason = "the process ended";
  private isWritten = false;
  private readonly isAsked: boolean;

  /** @param index the number of this process */
  constructor(
    private readonly record: (reason: string) => FlightRecording,
    private readonly index: number,
  ) {
    const { SHARDWISE_FLIGHT: named } = process.env;
    this.folder = named === "" ? undefined : (named ?? DEFAULT_FOLDER);
    this.isAsked = named !== undefined;
    process.on("uncaughtExceptionMonitor", this.remember);
    process.on("SIGTERM", this.terminate);
  }

  close(): void {
    process.off("uncaughtExceptionMonitor", this.remember);
    process.off("SIGTERM", this.terminate);
  }

  /** Why the process is ending, as far as it is known. */
  get lastReason(): string {
    return this.reason;
  }

  /** Says where recordings go from now on; `SHARDWISE_FLIGHT` goes before. */
  keepIn(folder: string): void {
    if (!this.isAsked) this.folder = folder;
  }

  /** Writes the recording, once: what came first was nearest to the failure. */
  write(reason: string): void {
    if (this.isWritten || this.folder === undefined) return;
    this.isWritten = true;
    const path = join(this.folder, `process-${this.index}.json`);
    try {
      writeRecording(path, this.record(reason));
      process.stderr.write(
        `[mpi] what the devices of process ${this.index} did last is in ${path}; with the files of the others: npx shardwise blame ${this.folder}\n`,
      );
    } catch {
      // The process ends for another reason, which matters more.
    }
  }

  private readonly remember = (error: unknown): void => {
    this.reason = reasonOf(error);
  };

  /** A launcher ends the processes that are left when one is gone. */
  private readonly terminate = (): void => {
    this.write("SIGTERM");
    process.off("SIGTERM", this.terminate);
    // Who listens, too, decides what becomes of the process.
    if (process.listenerCount("SIGTERM") === 0) process.kill(process.pid, "SIGTERM");
  };
}
