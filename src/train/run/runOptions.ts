import type { Engine } from "../../ir/engine.js";
import type { RunConfig } from "../config/runConfig.js";
import type { ProgressStream } from "../report/progress.js";
import type { EvaluationRecord, StepRecord } from "../report/reportPage.js";

/** What a run needs besides its configuration. */
export interface RunOptions {
  readonly config: RunConfig;
  /** Whether to go on from the newest checkpoint in the run's folder. */
  readonly resume?: boolean;
  /** When it is aborted, the step under way is finished, a checkpoint is saved, and the run ends. */
  readonly signal?: AbortSignal;
  /** Where progress is shown; standard error by default. */
  readonly stream?: ProgressStream;
  /** What runs the steps; the process's shared engine by default. */
  readonly engine?: Engine;
  /** Called with what each step told, once it is known; the next step is under way by then. */
  readonly onStep?: (record: StepRecord) => void;
  /** Whether sample, trace and report are made at the end; they are by default. */
  readonly finish?: boolean;
  /** Whether the first step is run twice before training, to compare all bits. */
  readonly verifiesDeterminism?: boolean;
  /** Called when the data is read and the devices are there; from then on there may be something to save. */
  readonly onBegin?: (run: RunControls) => RunHost;
}

/** What can be asked of a run while it goes. */
export interface RunControls {
  /** Writes what the devices did last into the run's folder, and returns the file. */
  record(reason: string): string | undefined;
}

/** What surrounds a run. */
export interface RunHost {
  /** Called once there is something to save and nothing left that takes long and cannot be stopped by `signal`. */
  listen(): void;
}

/** What is made of a run at its end. */
export interface RunEnding {
  readonly sample: string;
  /** The files written, by what they are. */
  readonly files: Readonly<Record<string, string>>;
}

/** How a run ended. */
export interface RunOutcome extends RunEnding {
  /** `stopped` when it was asked to end before its last step. */
  readonly status: "finished" | "stopped";
  /** The number of steps done, before the run was taken up again too. */
  readonly step: number;
  /** The step of the checkpoint that it went on from; 0 for a new run. */
  readonly resumedFrom: number;
  readonly folder: string;
  readonly checkpoint: string;
  readonly steps: readonly StepRecord[];
  readonly evaluations: readonly EvaluationRecord[];
}
