import { signalKind } from "../../engines/abortSignal.js";
import { engineKind } from "../../ir/engine.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import type { RunConfig } from "../config/runConfig.js";
import type { ProgressStream } from "../report/progress.js";
import type { EvaluationRecord, PageSection, StepRecord } from "../report/reportPage.js";

/** The schema of {@link RunOptions}. */
export const runOptions = schema({
  /** What to train, on what data and how. */
  config: required<RunConfig>("object"),
  /** Whether to continue from the newest checkpoint in the run's folder. */
  resume: optional("flag"),
  /** When it is aborted, the current step is finished, a checkpoint is saved, and the run ends. */
  signal: optional(signalKind),
  /** Where progress is shown; standard error by default. */
  stream: optional<ProgressStream>("object"),
  /** The engine to run on; the shared engine of the process by default. */
  engine: optional(engineKind),
  /** Called with the metrics of each step once they are known; the next step is running by then. */
  onStep: optional<(record: StepRecord) => void>("function"),
  /**
   * Called whenever there is something new to show; it should return at once and draw the view later. Steps are then
   * also recorded while the run trains, one in the beginning and one after each evaluation.
   */
  onChange: optional<(view: RunView) => void>("function"),
  /** Whether sample, trace and report are made at the end; true by default. */
  finish: optional("flag"),
  /** Whether to run the first step twice before training and compare all bits. */
  verifiesDeterminism: optional("flag"),
  /** Called when the data is read and the devices are ready; from then on there may be something to save. */
  onBegin: optional<(run: RunControls) => RunHost>("function"),
});

/** Options of a run: its configuration, and what does not belong to it. */
export interface RunOptions extends OptionsOf<typeof runOptions> {}

/** What a run has to show while it trains. */
export interface RunView {
  readonly title: string;
  /** The run's folder, in which the links of the page lie. */
  readonly folder: string;
  /** The report as far as it is known, as HTML. */
  sections(): readonly PageSection[];
}

/** Controls of a run in progress. */
export interface RunControls {
  /** Writes the flight recording to the run's folder, and returns the file. */
  record(reason: string): string | undefined;
}

/** The host of a run. */
export interface RunHost {
  /** Called once there is something to save and everything slow that follows can be stopped by `signal`. */
  listen(): void;
}

/** What a run produces at its end. */
export interface RunEnding {
  readonly sample: string;
  /** The files written, by kind. */
  readonly files: Readonly<Record<string, string>>;
}

/** How a run ended. */
export interface RunOutcome extends RunEnding {
  /** `stopped` if it was asked to end before its last step. */
  readonly status: "finished" | "stopped";
  /** The number of completed steps, including those before the run was resumed. */
  readonly step: number;
  /** The step of the checkpoint from which it was resumed; 0 for a new run. */
  readonly resumedFrom: number;
  readonly folder: string;
  readonly checkpoint: string;
  readonly steps: readonly StepRecord[];
  readonly evaluations: readonly EvaluationRecord[];
}
