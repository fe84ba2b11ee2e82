/** The life of a run: from the lock on its folder until everything it opened is closed, however it ends. */
import { existsSync } from "#platform/fs";
import { join } from "#platform/path";
import { environment, nextTurn, standardError } from "#platform/system";
import { holdRun, lockFile } from "#train/folder/lock";
import { checkpointFolder } from "../config/setup.js";
import { type Checkpoints, openCheckpoints } from "../files/checkpoints/checkpoint.js";
import { together } from "../files/checkpoints/processGroup.js";
import { FileError, reasonOf } from "../files/disk/fileError.js";
import { flightFolder, recordFlight } from "../folder/flightFolder.js";
import type { RunJournal } from "../folder/journal.js";
import { type Progress, startProgress } from "../report/progress.js";
import type { ConfiguredRun } from "./configure.js";
import { explainFailure } from "./runFailures.js";
import type { RunHost } from "./runOptions.js";
import { GrowingView } from "./view.js";

/** A run that holds the lock on its folder. */
export interface LiveRun extends ConfiguredRun {
  readonly life: RunLife;
}

/** Locks the folder of a run, runs its stages, and closes what they opened; failures are explained. */
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

/** The resources of a run, and the requests from outside that it obeys. */
export class RunLife {
  readonly checkpoints: Checkpoints;
  readonly view: GrowingView;
  private journal: RunJournal | undefined;
  private readonly closing: (() => Promise<void>)[] = [];
  private host: RunHost | undefined;
  private readonly begun = performance.now();
  /** Shows what the run waits for before there is a journal. */
  private progress: Progress | undefined;

  constructor(
    private readonly run: ConfiguredRun,
    private readonly unlock: () => void,
  ) {
    const { config, group } = run;
    this.checkpoints = openCheckpoints(checkpointFolder(config.out), {
      keep: config.keep,
      processGroup: group,
      // A copy on the devices does not change: copying it to the host at once would only keep this thread from steps.
      ...(config.checkpoint === "async" && { maxHeldBytes: 2 ** 26 }),
    });
    this.view = new GrowingView(run);
  }

  /** Whether the run was asked to stop after the current step. */
  get isStopping(): boolean {
    return this.run.options.signal?.aborted === true;
  }

  /**
   * Registers a journal to close at the end. From then on devices are in use, and a failure leaves a flight recording.
   */
  keep(journal: RunJournal): void {
    this.journal = journal;
    this.progress?.finish();
    this.progress = undefined;
    this.run.mesh.engine.keepFlightsIn?.(flightFolder(this.run.config.out));
  }

  /** Registers what to close at the end. */
  atEnd(close: () => Promise<void>): void {
    this.closing.push(close);
  }

  /** Shows what the run waits for; resolves once that can be seen, before something blocks the process. */
  async phase(text: string): Promise<void> {
    this.view.show({ status: `${text} …` });
    const { stream = standardError() } = this.run.options;
    this.tellTime(text);
    if (this.journal) this.journal.phase(text);
    else {
      this.progress ??= startProgress({ numSteps: this.run.config.steps, stream });
      this.progress.phase(text);
    }
    await nextTurn();
  }

  /** Tells when the run comes to something, if the environment asks for it. */
  tellTime(text: string): void {
    const { stream = standardError() } = this.run.options;
    if (!environment.SHARDWISE_TIMES) return;
    stream.write(`${((performance.now() - this.begun) / 1000).toFixed(2)} s: ${text}\n`);
  }

  /** Notifies the host that the run begins. */
  begin(): void {
    this.host = this.run.options.onBegin?.({ record: (reason) => this.record(reason) });
  }

  /** Notifies the host that there is something to save, and that requests to stop are obeyed from now on. */
  listen(): void {
    this.host?.listen();
  }

  /** The error to report for what ended the run. */
  async failed(cause: unknown): Promise<unknown> {
    const recording = this.journal && this.record(reasonOf(cause));
    // A save in progress when something else fails is still valid.
    await this.checkpoints.finished().catch(() => {});
    return explainFailure(cause, this.run.config.out, this.checkpoints, recording);
  }

  /** Closes everything and releases the folder. */
  async end(): Promise<void> {
    await this.checkpoints.finished().catch(() => {});
    this.progress?.finish();
    this.journal?.close();
    this.tellTime("the end");
    await Promise.all(this.closing.map((close) => close().catch(() => {})));
    this.unlock();
  }

  private record(reason: string): string | undefined {
    return recordFlight(this.run.mesh.engine, this.run.config.out, reason);
  }
}

/** Locks a run's folder for all processes; each must see it. @returns a function that unlocks it */
async function lockTogether({ config: { out }, group }: ConfiguredRun): Promise<() => void> {
  let unlock = () => {};
  await together(group, async () => {
    if (group.index === 0) unlock = await holdRun(out);
    return "";
  });
  await together(group, async () => {
    if (existsSync(join(out, lockFile))) return "";
    const rule =
      "process 0 trains into this folder, but it does not exist here: runs of several hosts need a shared file system";
    throw new FileError("train", out, 0, rule);
  });
  return unlock;
}
