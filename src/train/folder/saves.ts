import { statfs } from "node:fs/promises";
import { bytesOf } from "../../ir/shape.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { RunConfig } from "../config/runConfig.js";
import type { Checkpoint, Checkpoints } from "../files/checkpoint.js";
import type { Json } from "../files/checkpointManifest.js";
import { reasonOf } from "../files/fileError.js";
import { diverged, firstBadLeaf, isFiniteState } from "../step/health.js";
import type { LanguageModelState } from "../step/state.js";
import type { Training } from "../step/training.js";
import { saveRun } from "./savedRun.js";

/** How long after a save that failed it is tried again, in milliseconds. */
const retryAfter = 5000;

/** The checkpoints that a run saves: which is the newest, and what happens when one cannot be written. */
export class RunSaves {
  /** The newest checkpoint. */
  folder: string | undefined;
  /** The step of the newest checkpoint. */
  step: number;
  /** How many saves failed since one did not. */
  private failures = 0;
  /** When a save that failed is tried again, by the clock of `performance`. */
  private retryAt = Number.POSITIVE_INFINITY;

  /** @param note told when a save failed and the run goes on */
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
   * Begins to save a state, when the save before is over. It is checked first: what is saved is known to be good.
   *
   * @param isLast whether none comes after it
   */
  async save(state: LanguageModelState, step: number, position: Json, isLast = false): Promise<void> {
    await this.settled();
    await this.begin(state, step, position, (error) => {
      this.failures++;
      if (!isLast && this.failures === 1)
        this.note(
          `${reasonOf(error)}\ntraining goes on, and it is tried again when there is space, or with the next save`,
        );
    });
  }

  /** Whether a save failed, and it is time to look whether it would do so again. */
  get isDue(): boolean {
    return performance.now() >= this.retryAt;
  }

  /** Tries again what failed, with the state as it is by now; waits on where there is no space for it. */
  async retry(state: LanguageModelState, step: number, position: Json): Promise<void> {
    await this.checkpoints.finished().catch(() => {});
    this.retryAt = performance.now() + retryAfter;
    if (await this.hasSpace(state)) await this.begin(state, step, position, () => {});
  }

  private async hasSpace(state: LanguageModelState): Promise<boolean> {
    const bytes = tree
      .leaves(state)
      .reduce<number>((sum, leaf) => sum + (leaf instanceof Tensor ? bytesOf(leaf.type) : 0), 0);
    const disk = await statfs(this.checkpoints.root).catch(() => undefined);
    return disk === undefined || disk.bavail * disk.bsize > bytes;
  }

  private async begin(
    state: LanguageModelState,
    step: number,
    position: Json,
    onFailure: (error: unknown) => void,
  ): Promise<void> {
    await this.requireFinite(state, step);
    const { checkpoints, training, config } = this;
    const pending = await saveRun(checkpoints, training, state, { step, config, position });
    pending.committed.then(
      ({ folder }) => {
        this.folder = folder;
        this.step = step;
        if (this.failures > 0) this.note(`the checkpoint of step ${step} could be written again`);
        this.failures = 0;
        this.retryAt = Number.POSITIVE_INFINITY;
      },
      (error: unknown) => {
        this.retryAt = performance.now() + retryAfter;
        onFailure(error);
      },
    );
  }

  /** Waits for the disk. One failed save loses nothing that the next cannot save; a second ends the run. */
  async settled(): Promise<void> {
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
    await this.checkpoints.finished();
  }

  /** Saves the state that a step went wrong with, and tells whether that could be done. */
  async rescue(state: LanguageModelState, step: number, position: Json): Promise<boolean> {
    try {
      await this.finish(state, step, position);
      return true;
    } catch (error) {
      this.note(`the state of step ${step} was not saved: ${error}`);
      return false;
    }
  }

  /** Throws when an update led to numbers that are not finite although its gradients were. */
  private async requireFinite(state: LanguageModelState, step: number): Promise<void> {
    if (await isFiniteState(this.training, state)) return;
    const bad = await firstBadLeaf(state);
    const origin = bad && `the first one is ${bad.path}, on device ${bad.device}`;
    const problem = "the update led to tensors that are not finite, although its gradients are";
    throw diverged({ step, problem, origin, kept: this.folder });
  }
}
