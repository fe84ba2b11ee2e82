/** The life of a run: from the lock on its folder until everything it opened is closed, however it ends. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { checkpointFolder } from "../config/setup.js";
import { type Checkpoints, openCheckpoints } from "../files/checkpoint.js";
import { FileError, reasonOf } from "../files/fileError.js";
import { together } from "../files/processGroup.js";
import { flightFolder, recordFlight } from "../folder/flight.js";
import type { RunJournal } from "../folder/journal.js";
import { lockFile, lockRun } from "../folder/lock.js";
import type { ConfiguredRun } from "./configure.js";
import { explainFailure } from "./failures.js";
import type { RunHost } from "./runOptions.js";

/** A run that has its folder to itself. */
export interface LiveRun extends ConfiguredRun {
  readonly life: RunLife;
}

/** Locks the folder of a run, runs its stages, and closes what they opened; what failed is explained. */
export async function withLife<T>(
  configured: ConfiguredRun,
  stages: (run: LiveRun) => Promise<T>,
): Promise<T> {
  const life = new RunLife(configured, await lockTogether(configured));
  try {
    return await stages({ ...configured, life });
  } catch (cause) {
    throw await life.failed(cause);
  } finally {
    await life.end();
  }
}

/** What belongs to a run as long as it lives, and what may be asked of it from outside. */
export class RunLife {
  readonly checkpoints: Checkpoints;
  private journal: RunJournal | undefined;
  private host: RunHost | undefined;

  constructor(
    private readonly run: ConfiguredRun,
    private readonly unlock: () => void,
  ) {
    const { config, group } = run;
    this.checkpoints = openCheckpoints(checkpointFolder(config.out), {
      keep: config.keep,
      processGroup: group,
    });
  }

  /** Whether the run was asked to stop after the step under way. */
  get isStopping(): boolean {
    return this.run.options.signal?.aborted === true;
  }

  /** Takes a journal to close at the end. From now on devices are in use, and a failure leaves a flight recording. */
  keep(journal: RunJournal): void {
    this.journal = journal;
    this.run.mesh.engine.keepFlightsIn?.(flightFolder(this.run.config.out));
  }

  /** Tells the host of the run that it begins. */
  begin(): void {
    this.host = this.run.options.onBegin?.({ record: (reason) => this.record(reason) });
  }

  /** Tells the host that there is something to save, and that the run hears when it is asked to stop. */
  listen(): void {
    this.host?.listen();
  }

  /** The error to report for what ended the run. */
  async failed(cause: unknown): Promise<unknown> {
    const recording = this.journal && this.record(reasonOf(cause));
    // A save that is under way when something else fails is still a good one.
    await this.checkpoints.finished().catch(() => {});
    return explainFailure(cause, this.run.config.out, this.checkpoints, recording);
  }

  /** Closes what is open and gives the folder back. */
  async end(): Promise<void> {
    await this.checkpoints.finished().catch(() => {});
    this.journal?.close();
    this.unlock();
  }

  private record(reason: string): string | undefined {
    return recordFlight(this.run.mesh.engine, this.run.config.out, reason);
  }
}

/** Locks a run's folder for all processes; each must see it. @returns unlocks it */
async function lockTogether({ config: { out }, group }: ConfiguredRun): Promise<() => void> {
  let unlock = () => {};
  await together(group, async () => {
    if (group.index === 0) unlock = lockRun(out);
    return "";
  });
  await together(group, async () => {
    if (existsSync(join(out, lockFile))) return "";
    const rule =
      "process 0 trains into this folder, but it is not here: runs of several hosts need a file system that they share";
    throw new FileError("train", out, 0, rule);
  });
  return unlock;
}
