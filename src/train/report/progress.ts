import { standardError } from "#platform/system";
import { need } from "../../ir/arguments.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../ir/schema.js";
import { formatValue } from "./lossCurve.js";

/** The progress after a step. */
export interface ProgressUpdate {
  /** The number of completed steps. */
  readonly step: number;
  readonly loss: number;
  /** The tokens that the step was trained on. */
  readonly tokens: number;
  /** The share of the machine's peak that the step reached, from 0 to 1; the line shows a mean over recent steps. */
  readonly shareOfPeak?: number;
}

/** The stream that progress is written to. */
export interface ProgressStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const progressOptions = schema({
  /** The number of steps of the whole run. */
  numSteps: required("number"),
  /** The number of steps completed before, if a run is resumed. */
  firstStep: 0,
  /** Standard error by default. */
  stream: optional<ProgressStream>("object"),
  /** Interval between lines without a terminal, in seconds; 10 by default. */
  interval: 10,
  /** The time in milliseconds. */
  now: optional<() => number>("function", () => performance.now()),
});

/** Options of {@link startProgress}. */
export interface ProgressOptions extends OptionsOf<typeof progressOptions> {}

/** A live progress line. */
export interface Progress {
  update(update: ProgressUpdate): void;
  /** Writes a line above the live one. */
  note(text: string): void;
  /** Shows what the run waits for, such as a compilation, until the next update. */
  phase(text: string): void;
  /** Ends the live line. */
  finish(): void;
}

/** The live line is redrawn at most this often, in milliseconds. */
const redrawInterval = 100;
/** Weight of the past in the moving average of speeds. */
const smoothing = 0.9;

/**
 * Shows the progress of training: on a terminal one line that is redrawn, elsewhere a plain line at intervals.
 *
 * ```
 * step 120/1000 ━━━───────  loss 3.412  18.2k tokens/s  41% of peak  ETA 2m 31s
 * ```
 *
 * @example
 * ```ts
 * const lines: string[] = [];
 * const progress = train.startProgress({ numSteps: 10, stream: { write: (text) => lines.push(text) } });
 * progress.update({ step: 1, loss: 4.5, tokens: 64 });
 * progress.finish();
 * lines.join("").includes("step 1/10"); // true
 * ```
 */
export function startProgress(options: ProgressOptions): Progress {
  const given = progressOptions.read(options, "startProgress");
  const { numSteps, interval, now } = given;
  const stream: ProgressStream = given.stream ?? standardError();
  need("function", stream.write, "write of the stream", "startProgress");
  const live = stream.isTTY === true;
  const speeds = new Speeds(given, now);
  let shownAt = Number.NEGATIVE_INFINITY;
  let line = "";
  let phase = "";
  const draw = () => {
    const shown = [line, phase].filter((part) => part !== "").join("  ");
    stream.write(`\r\x1b[2K${fitting(shown, stream.columns ?? 80)}`);
  };
  return {
    update: (update) => {
      need("object", update, "the update", "progress.update");
      const { step, loss } = update;
      need("number", step, "step", "progress.update");
      const time = now();
      phase = "";
      line = [
        `step ${step}/${numSteps}${live ? ` ${bar(step / numSteps)}` : ""}`,
        `loss ${formatValue(loss)}`,
        ...speeds.after(update, time),
      ].join("  ");
      const isLast = step >= numSteps;
      if (!isLast && time - shownAt < (live ? redrawInterval : interval * 1000)) return;
      shownAt = time;
      if (live) draw();
      else stream.write(`${line}\n`);
    },
    note: (text) => {
      stream.write(live ? `\r\x1b[2K${text}\n` : `${text}\n`);
      if (live && (line !== "" || phase !== "")) draw();
    },
    phase: (text) => {
      need("string", text, "text", "progress.phase");
      phase = `${text} …`;
      if (live) draw();
      else stream.write(`${phase}\n`);
    },
    finish: () => {
      if (!live) return;
      const isShown = line !== "" || phase !== "";
      phase = "";
      if (isShown) draw();
      if (line !== "") stream.write("\n");
      line = "";
    },
  };
}

/** Moving averages of the speed of steps. */
class Speeds {
  private lastAt: number;
  private lastStep: number;
  private secondsPerStep: number | undefined;
  private tokensPerSecond: number | undefined;
  /** The time of steps as multiples of the time at peak: averaging times is correct, averaging speeds is not. */
  private timesIdeal: number | undefined;
  private numUpdates = 0;

  constructor(
    private readonly options: Values<typeof progressOptions.fields>,
    now: () => number,
  ) {
    this.lastAt = now();
    this.lastStep = options.firstStep;
  }

  /** The speeds after a step, as parts of a line. */
  after({ step, tokens, shareOfPeak }: ProgressUpdate, time: number): string[] {
    this.numUpdates++;
    const seconds = (time - this.lastAt) / 1000;
    if (step > this.lastStep && seconds > 0) {
      this.secondsPerStep = this.blend(this.secondsPerStep, seconds / (step - this.lastStep));
      this.tokensPerSecond = this.blend(this.tokensPerSecond, tokens / seconds);
    }
    if (shareOfPeak !== undefined) this.timesIdeal = this.blend(this.timesIdeal, 1 / shareOfPeak);
    this.lastAt = time;
    this.lastStep = step;
    const { secondsPerStep, tokensPerSecond, timesIdeal } = this;
    return [
      ...(tokensPerSecond === undefined ? [] : [`${formatCount(tokensPerSecond)} tokens/s`]),
      ...(timesIdeal === undefined ? [] : [`${Math.round(100 / timesIdeal)}% of peak`]),
      ...(secondsPerStep === undefined
        ? []
        : [`ETA ${formatDuration(secondsPerStep * (this.options.numSteps - step))}`]),
    ];
  }

  /** The first step includes compilation, so the second one replaces it. */
  private blend(mean: number | undefined, value: number): number {
    return mean === undefined || this.numUpdates <= 2 ? value : smoothing * mean + (1 - smoothing) * value;
  }
}

/** Shortens a line to the columns of a terminal. */
function fitting(line: string, columns: number): string {
  const parts = line.split("  ");
  // Without space for everything, the remaining time matters more than the speeds.
  while (parts.length > 3 && parts.join("  ").length >= columns) parts.splice(-2, 1);
  const short = parts.join("  ");
  return short.length >= columns ? `${short.slice(0, columns - 2)}…` : short;
}

function bar(share: number): string {
  const width = 10;
  const done = Math.max(0, Math.min(width, Math.round(share * width)));
  return "━".repeat(done) + "─".repeat(width - done);
}

/** A count with a unit, such as `18.2k`. */
export function formatCount(value: number): string {
  const units = ["", "k", "M", "G", "T", "P"];
  let index = 0;
  let rest = value;
  while (Math.abs(rest) >= 999.95 && index < units.length - 1) {
    rest /= 1000;
    index++;
  }
  const digits = index === 0 || Math.abs(rest) >= 100 ? 0 : 1;
  return `${rest.toFixed(digits)}${units[index]}`;
}

/** Seconds as hours, minutes and seconds, such as `2m 31s`. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "?";
  const total = Math.round(seconds);
  const [hours, minutes] = [Math.floor(total / 3600), Math.floor(total / 60) % 60];
  if (hours > 0) return `${hours}h ${minutes}m`;
  return minutes > 0 ? `${minutes}m ${total % 60}s` : `${total}s`;
}
