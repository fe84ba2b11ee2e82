import { existsSync } from "#platform/fs";
import { join } from "#platform/path";
import { runSchedule } from "../config/optimizer.js";
import type { RunConfig } from "../config/runConfig.js";
import type { Checkpoint } from "../files/checkpoints/checkpoint.js";
import { reasonOf } from "../files/disk/fileError.js";
import { type MetricsWriter, openMetricsFile, readMetrics, tolerant, writeToAll } from "../report/metrics.js";
import { stepFlops } from "../report/peak.js";
import { type Progress, type ProgressStream, startProgress } from "../report/progress.js";
import type { EvaluationRecord, SampleRecord, StepRecord } from "../report/reportPage.js";
import { openEventFile } from "../report/tensorboard.js";
import { isSkipped, type StepValues } from "../step/health.js";
import type { Training } from "../step/training.js";
import { LearningRates } from "./learningRates.js";

/** What a journal needs to know about its run. */
interface JournalOptions {
  /** Where progress is shown; standard error by default. */
  readonly stream?: ProgressStream | undefined;
  /** Called with the record of each step. */
  readonly onStep?: ((record: StepRecord) => void) | undefined;
  /** Called when something was recorded. */
  readonly onChange: () => void;
  readonly config: RunConfig;
  readonly types: Training["types"];
  readonly from: Checkpoint | undefined;
  /** Whether this process writes metrics and progress. */
  readonly isFirst: boolean;
}

/** Records the course of a run: metrics files, the progress line, and the records of its report. */
export class RunJournal {
  readonly steps: StepRecord[] = [];
  readonly evaluations: EvaluationRecord[] = [];
  readonly samples: SampleRecord[] = [];
  /** The metrics file. */
  readonly file: string;
  /** Peak floating-point operations per second of the devices, once measured. */
  peak: number | undefined;
  private readonly config: RunConfig;
  private readonly metrics: MetricsWriter;
  private readonly progress: Progress;
  private readonly flops: number;
  private readonly learningRates: LearningRates;
  private readonly onStep: JournalOptions["onStep"];
  private readonly onChange: () => void;
  /** When the previous step ended. */
  private lastEnd = 0;

  constructor({ config, types, from, isFirst, stream, onStep, onChange }: JournalOptions) {
    this.config = config;
    this.onStep = onStep;
    this.onChange = onChange;
    this.file = join(config.out, "metrics.jsonl");
    if (from && existsSync(this.file)) this.remember(from.step);
    this.progress = startProgress({
      numSteps: config.steps,
      firstStep: from?.step ?? 0,
      stream,
    });
    const events = join(config.out, "tensorboard");
    this.metrics = isFirst
      ? writeToAll(
          this.passing(this.file, openMetricsFile(this.file, { resumeAt: from?.step ?? 0 })),
          this.passing(events, openEventFile(events, from ? { resumeAt: from.step } : {})),
        )
      : writeToAll();
    this.flops = stepFlops(types, config);
    this.learningRates = new LearningRates(runSchedule(config));
  }

  /** Shows a line of text. */
  note(text: string): void {
    this.progress.note(text);
  }

  /** Shows what the run waits for. */
  phase(text: string): void {
    this.progress.phase(text);
  }

  /** Starts timing the next step. */
  startClock(): void {
    this.lastEnd = performance.now();
  }

  /**
   * Records the values of a step. Its time is that from the end of the one before: the devices of some engines run a
   * step while the host prepares the next, so that the times at which the host reads values say little.
   *
   * @param end when the step ended, in milliseconds of `performance.now()`
   */
  async recordStep(step: number, values: StepValues, end: number): Promise<void> {
    const seconds = (end - this.lastEnd) / 1000;
    this.lastEnd = end;
    const { data } = this.config;
    const tokens = data.batch * data.sequence;
    const { loss, crossEntropy, gradientNorm, lossScale, router } = values;
    const learningRate = await this.learningRates.at(values.numUpdates);
    const tokensPerSecond = tokens / seconds;
    const rest = { ...(lossScale === undefined ? {} : { lossScale }), ...router };
    const numbers = { loss, crossEntropy, gradientNorm, learningRate, tokensPerSecond, seconds, ...rest };
    this.metrics.write(step, numbers);
    if (isSkipped(values)) {
      this.note(
        `step ${step} is skipped: the gradients overflow float16 at a loss scale of ${lossScale}, which is halved`,
      );
    }
    const record = { step, ...numbers };
    this.steps.push(record);
    this.onStep?.(record);
    const shareOfPeak = this.peak === undefined ? {} : { shareOfPeak: this.flops / seconds / this.peak };
    this.progress.update({ step, loss, tokens, ...shareOfPeak });
    this.onChange();
  }

  /** Records an evaluation, whose time is not that of a step. */
  evaluated(step: number, loss: number): void {
    this.evaluations.push({ step, loss });
    this.metrics.write(step, { evaluationLoss: loss });
    this.note(`step ${step}: validation loss ${loss.toFixed(4)}`);
    this.startClock();
    this.onChange();
  }

  /** Records what the model wrote after a step, whose time is not that of the next one. */
  sampled(step: number, text: string): void {
    this.samples.push({ step, text });
    this.startClock();
    this.onChange();
  }

  /** Ends the progress line. */
  finish(): void {
    this.progress.finish();
  }

  close(): void {
    this.progress.finish();
    this.metrics.close();
  }

  /** A writer whose failures do not end the run. */
  private passing(path: string, writer: MetricsWriter): MetricsWriter {
    return tolerant(writer, (error) =>
      this.note(
        `${path} could not be written (${reasonOf(error)}): training continues, and missing records are written as soon as possible`,
      ),
    );
  }

  /** Reloads the records of a resumed run, so that its report shows all of it. */
  private remember(until: number): void {
    for (const { step, evaluationLoss, lossScale, ...numbers } of readMetrics(this.file)) {
      if (step > until) continue;
      if (numbers.loss !== undefined) {
        this.steps.push({
          step,
          loss: Number(numbers.loss),
          crossEntropy: Number(numbers.crossEntropy),
          gradientNorm: Number(numbers.gradientNorm),
          learningRate: Number(numbers.learningRate),
          tokensPerSecond: Number(numbers.tokensPerSecond),
          seconds: Number(numbers.seconds),
          ...(lossScale === undefined ? {} : { lossScale: Number(lossScale) }),
        });
      }
      if (typeof evaluationLoss === "number") this.evaluations.push({ step, loss: evaluationLoss });
    }
  }
}
