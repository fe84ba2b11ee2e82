import { freeBytes } from "#platform/fs";
import { OutOfMemoryError } from "../../engines/errors.js";
import { bytesOf } from "../../ir/shape.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { RunConfig } from "../config/runConfig.js";
import type { Checkpoint, Checkpoints } from "../files/checkpoints/checkpoint.js";
import type { Json } from "../files/checkpoints/checkpointManifest.js";
import { reasonOf } from "../files/disk/fileError.js";
import { diverged, firstBadLeaf, isFiniteState } from "../step/health.js";
import type { LanguageModelState } from "../step/state.js";
import type { Training } from "../step/training.js";
import { saveRun } from "./savedRun.js";

/** Delay before a failed save is retried, in milliseconds. */
const retryAfter = 5000;

/** The checkpoints that a run saves: which is the newest, and what happens when one cannot be written. */
export class RunSaves {
  /** The newest checkpoint. */
  folder: string | undefined;
  /** The step of the newest checkpoint. */
  step: number;
  /** Number of saves that failed since the last successful one. */
  private failures = 0;
  /** Settles once the elements of the state being saved have been read. */
  private saving: Promise<void> = Promise.resolve();
  /** When to retry a failed save, as `performance.now()`. */
  private retryAt = Number.POSITIVE_INFINITY;

  /** @param note called when a save failed and the run continues */
  constructor(
    private readonly config: RunConfig,
    private readonly training: Training,
    private readonly checkpoints: Checkpoints,
    from: Checkpoint | undefined,
    private readonly note: (text: string) => void,
  ) {
    this.folder = from?.folder;
    this.step = from?.step ?? 0;
  }

  /**
   * Starts saving a state once the previous save is complete. The state is checked to be finite first.
   *
   * @param isLast whether it is the last save of the run
   */
  async save(state: LanguageModelState, step: number, position: Json, isLast = false): Promise<void> {
    await this.settled();
    await this.begin(state, step, position, (error) => {
      this.failures++;
      if (!isLast && this.failures === 1)
        this.note(
          `${reasonOf(error)}\ntraining continues; the save is retried when there is space, or with the next checkpoint`,
        );
    });
  }

  /** Whether a failed save is due to be retried. */
  get isDue(): boolean {
    return performance.now() >= this.retryAt;
  }

  /** Retries a failed save with the current state; postpones it again if there is no space. */
  async retry(state: LanguageModelState, step: number, position: Json): Promise<void> {
    await this.saving;
    await this.checkpoints.finished().catch(() => {});
    this.retryAt = performance.now() + retryAfter;
    if (await this.hasSpace(state)) await this.begin(state, step, position, () => {});
  }

  private async hasSpace(state: LanguageModelState): Promise<boolean> {
    const bytes = tree
      .leaves(state)
      .reduce<number>((sum, leaf) => sum + (leaf instanceof Tensor ? bytesOf(leaf.type) : 0), 0);
    const free = await freeBytes(this.checkpoints.root).catch(() => Number.POSITIVE_INFINITY);
    return free > bytes;
  }

  private async begin(
    state: LanguageModelState,
    step: number,
    position: Json,
    onFailure: (error: unknown) => void,
  ): Promise<void> {
    await this.requireFinite(state, step);
    const { checkpoints, training, config } = this;
    const copy = config.checkpoint === "async" ? await this.copyOf(state) : undefined;
    const saving = saveRun(checkpoints, training, copy ?? state, { step, config, position });
    // The caller may change the state once its elements, or those of its copy, have been read.
    if (copy === undefined) await saving;
    this.saving = saving.then(
      () => {},
      () => {},
    );
    const committed = saving.then((pending) => pending.committed);
    committed.then(
      ({ folder }) => {
        this.folder = folder;
        this.step = step;
        if (this.failures > 0) this.note(`the checkpoint of step ${step} was written after all`);
        this.failures = 0;
        this.retryAt = Number.POSITIVE_INFINITY;
      },
      (error: unknown) => {
        this.retryAt = performance.now() + retryAfter;
        onFailure(error);
      },
    );
    if (copy !== undefined) committed.finally(() => tree.dispose(copy)).catch(() => {});
  }

  /** A copy of a state on its devices; undefined if they have no memory for it. */
  private async copyOf(state: LanguageModelState): Promise<LanguageModelState | undefined> {
    try {
      const copy = this.training.copy(state);
      await copy.step.ready();
      return copy;
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error;
      this.note("the devices have no memory for a copy of the state: training waits while it is saved");
      return undefined;
    }
  }

  /**
   * Waits until pending saves are on the disk. One failure is tolerated, because the next save may succeed; a second
   * ends the run.
   */
  async settled(): Promise<void> {
    await this.saving;
    try {
      await this.checkpoints.finished();
    } catch (error) {
      if (this.failures > 1) throw error;
    }
  }

  /** Saves the last state unless it is saved already, and waits until it is on the disk. */
  async finish(state: LanguageModelState, step: number, position: Json): Promise<void> {
    await this.settled();
    if (this.step !== step || !this.folder) await this.save(state, step, position, true);
    await this.saving;
    await this.checkpoints.finished();
  }

  /** Saves the state before a failed step. @returns whether that succeeded */
  async rescue(state: LanguageModelState, step: number, position: Json): Promise<boolean> {
    try {
      await this.finish(state, step, position);
      return true;
    } catch (error) {
      this.note(`the state of step ${step} was not saved: ${error}`);
      return false;
    }
  }

  /** Throws if an update with finite gradients led to values that are not finite. */
  private async requireFinite(state: LanguageModelState, step: number): Promise<void> {
    if (await isFiniteState(this.training, state)) return;
    const bad = await firstBadLeaf(state);
    const origin = bad && `the first one is ${bad.path}, on device ${bad.device}`;
    const problem = "the update led to tensors that are not finite, although its gradients are";
    throw diverged({ step, problem, origin, kept: this.folder });
  }
}
