import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "#platform/fs";
import { dirname } from "#platform/path";
import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { attempt, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { onFile } from "../files/disk/fileError.js";
import { openRecordFile } from "../files/disk/files.js";

/** The record of one step; numbers that JSON does not support are written as strings. */
export type Metrics = Readonly<Record<string, number | string | boolean | null>>;

/** Records metrics by step. */
export interface MetricsWriter {
  write(step: number, metrics: Metrics): void;
  close(): void;
}

const metricsFileOptions = schema({
  /** The step from which a run is resumed: records of later steps are dropped. */
  resumeAt: optional("number"),
});

/** Options of {@link openMetricsFile}. */
export interface MetricsFileOptions extends OptionsOf<typeof metricsFileOptions> {}

/**
 * Appends one line of JSON for every step: `{"step":12,"loss":4.21,…}`. Every line is complete on its own, so
 * a run that is killed leaves at most its last line unfinished, which is dropped when the file is opened again.
 * A line that does not fit on the disk is written before the next one that does.
 *
 * @example
 * ```ts
 * const file = train.openMetricsFile("metrics.jsonl");
 * file.write(1, { loss: 4.5 });
 * file.close();
 * train.readMetrics("metrics.jsonl"); // [{ "step": 1, "loss": 4.5 }]
 * ```
 */
export function openMetricsFile(path: string, options?: MetricsFileOptions): MetricsWriter {
  const { resumeAt } = metricsFileOptions.read(options, "openMetricsFile");
  const file = onFile("metrics", path, () => {
    cleanRecords(path, resumeAt);
    return openRecordFile(path);
  });
  return {
    write: (step, metrics) => {
      if (!Number.isSafeInteger(step))
        throw new ValueError(`[metrics] ${describe(step)} is not a step number`);
      file.append(new TextEncoder().encode(`${metricsText({ step, ...metrics })}\n`));
    },
    close: file.close,
  };
}

/** A record as JSON; throws if it cannot be serialised. */
function metricsText(record: Readonly<Record<string, unknown>>): string {
  return attempt(
    () => JSON.stringify(record, plainNumber),
    (reason) => new ValueError(`[metrics] the metrics cannot be written as JSON: ${reason}`),
  );
}

/** Removes incomplete lines and those of later steps from a file. */
function cleanRecords(path: string, resumeAt: number | undefined): void {
  mkdirSync(dirname(path), { recursive: true });
  if (existsSync(path)) {
    const text = readFileSync(path, "utf8");
    const kept = text.split("\n").filter((line) => {
      const step = stepOf(line);
      return step !== undefined && (resumeAt === undefined || step <= resumeAt);
    });
    const cleaned = kept.map((line) => `${line}\n`).join("");
    if (cleaned !== text) {
      rmSync(`${path}.tmp`, { force: true });
      writeFileSync(`${path}.tmp`, cleaned, { flag: "wx" });
      renameSync(`${path}.tmp`, path);
    }
  }
}

/**
 * Reads the records of a file; incomplete lines are skipped.
 *
 * @example
 * ```ts
 * const file = train.openMetricsFile("losses.jsonl");
 * file.write(1, { loss: 4.5 });
 * file.write(2, { loss: 4.25 });
 * file.close();
 * train.readMetrics("losses.jsonl").map(({ loss }) => loss); // [4.5, 4.25]
 * ```
 */
export function readMetrics(path: string): (Metrics & { readonly step: number })[] {
  return onFile("metrics", path, () => readFileSync(path, "utf8"))
    .split("\n")
    .flatMap((line) => {
      const step = stepOf(line);
      return step === undefined ? [] : [{ ...(JSON.parse(line) as Metrics), step }];
    });
}

function plainNumber(_key: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

function stepOf(line: string): number | undefined {
  try {
    const value: unknown = JSON.parse(line);
    const isRecord = typeof value === "object" && value !== null && "step" in value;
    return isRecord && typeof value.step === "number" ? value.step : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Wraps a writer to ignore its failures, so that a full disk does not end the run.
 *
 * @param onFailure called with the first failure, and with the first one after a success
 */
export function tolerant(writer: MetricsWriter, onFailure: (error: unknown) => void): MetricsWriter {
  let failing = false;
  const attempt = (work: () => void) => {
    try {
      work();
      failing = false;
    } catch (error) {
      if (!failing) onFailure(error);
      failing = true;
    }
  };
  return {
    write: (step, metrics) => attempt(() => writer.write(step, metrics)),
    close: () => attempt(writer.close),
  };
}

/**
 * Combines several writers.
 *
 * @example
 * ```ts
 * const [first, second] = ["a.jsonl", "b.jsonl"].map((path) => train.openMetricsFile(path));
 * const both = train.writeToAll(first, second);
 * both.write(1, { loss: 4.5 });
 * both.close();
 * train.readMetrics("b.jsonl").length; // 1
 * ```
 */
export function writeToAll(...writers: readonly MetricsWriter[]): MetricsWriter {
  for (const writer of writers) {
    need("object", writer, "each writer", "writeToAll");
    need("function", writer.write, "write of a writer", "writeToAll");
    need("function", writer.close, "close of a writer", "writeToAll");
  }
  return {
    write: (step, metrics) => {
      for (const writer of writers) writer.write(step, metrics);
    },
    close: () => {
      for (const writer of writers) writer.close();
    },
  };
}
