/** Compares training runs by what they left in their folders: `config.json` and `metrics.jsonl`. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { join, normalize } from "node:path";
import { attempt, ConfigError } from "../../ir/errors.js";
import { fieldsOf, valueAt } from "../config/configSchema.js";
import { type RunConfig, readRunConfig, runSchema } from "../config/runConfig.js";
import { lineChart, type Series, table } from "./charts.js";
import { formatValue } from "./lossCurve.js";
import { readMetrics } from "./metrics.js";
import { formatCount, formatDuration } from "./progress.js";
import { pageHtml, section, speedLine } from "./reportPage.js";

/** What one step of a run has to be compared with. */
interface ComparedStep {
  readonly step: number;
  readonly loss: number;
  readonly tokensPerSecond: number;
  /** Tokens and seconds of all steps up to this one. */
  readonly tokens: number;
  readonly seconds: number;
}

/** A run to compare. */
export interface ComparedRun {
  /** The folder, as it was given. */
  readonly name: string;
  readonly config: RunConfig;
  readonly steps: readonly ComparedStep[];
  readonly evaluations: readonly { readonly step: number; readonly loss: number }[];
}

/** Reads the runs of some folders; throws if one of them is not a run, has no steps, or is given twice. */
export function readRuns(folders: readonly string[]): ComparedRun[] {
  const seen = new Set<string>();
  return folders.map((given) => {
    const folder = normalize(given).replace(/[/\\]+$/, "");
    if (seen.has(folder)) throw problem(`${given} is given twice: compare it with another run`);
    seen.add(folder);
    return readRun(folder);
  });
}

function readRun(folder: string): ComparedRun {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (!found) throw problem(`there is no folder ${folder}: give the folders of runs, such as runs/default`);
  const configFile = join(folder, "config.json");
  if (!found.isDirectory() || !existsSync(configFile))
    throw problem(`${folder} is not a run: the folder of a run has a config.json, as runs/default has`);
  const config = readStoredConfig(configFile);
  const metrics = join(folder, "metrics.jsonl");
  const records = existsSync(metrics) ? readMetrics(metrics) : [];
  const perStep = config.data.batch * config.data.sequence;
  let seconds = 0;
  const steps = records.flatMap((record) => {
    if (record.loss === undefined) return [];
    seconds += Number(record.seconds) || 0;
    const { step } = record;
    const [loss, tokensPerSecond] = [Number(record.loss), Number(record.tokensPerSecond)];
    return [{ step, loss, tokensPerSecond, tokens: step * perStep, seconds }];
  });
  if (steps.length === 0)
    throw problem(`${folder} has no steps to compare: its metrics.jsonl is empty or missing`);
  const evaluations = records.flatMap(({ step, evaluationLoss }) =>
    evaluationLoss === undefined ? [] : [{ step, loss: Number(evaluationLoss) }],
  );
  return { name: folder, config, steps, evaluations };
}

function readStoredConfig(path: string): RunConfig {
  const unreadable = (reason: string) => problem(`${path} cannot be read (${reason})`);
  const { config, violations } = readRunConfig(
    attempt(() => JSON.parse(readFileSync(path, "utf8")), unreadable),
  );
  if (violations.length === 0) return config;
  const list = violations.map((line) => `\n  ${line}`).join("");
  throw problem(`${path} cannot be used; another release may have written it:${list}`);
}

const problem = (text: string) => new ConfigError(`[compare] ${text}`);

/** The fields in which configurations differ, each with its values by run; where runs write is no difference. */
export function differences(runs: readonly ComparedRun[]): (readonly [field: string, ...values: string[]])[] {
  return [...fieldsOf(runSchema)].flatMap(([path]) => {
    const values = runs.map(({ config }) => formatSetting(valueAt(config, path)));
    return path === "out" || new Set(values).size === 1 ? [] : [[path, ...values] as const];
  });
}

const formatSetting = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

const summaryColumns = ["run", "steps", "loss", "validation loss", "tokens", "time", "tokens/s"] as const;

/** One row for each run: how far it came, and how fast. */
function summaryRows(runs: readonly ComparedRun[]): string[][] {
  return runs.map(({ name, steps, evaluations }) => {
    const last = steps.at(-1);
    const best = Math.min(...evaluations.map(({ loss }) => loss).filter(Number.isFinite));
    const speeds = steps.map(({ tokensPerSecond }) => tokensPerSecond).sort((a, b) => a - b);
    return [
      name,
      String(last?.step ?? 0),
      formatValue(last?.loss ?? Number.NaN),
      Number.isFinite(best) ? formatValue(best) : "–",
      formatCount(last?.tokens ?? 0),
      formatDuration(last?.seconds ?? 0),
      formatCount(speeds[Math.floor(speeds.length / 2)] ?? 0),
    ];
  });
}

/** A comparison for a terminal: a row for each run, and what differs in their configurations. */
export function compareText(runs: readonly ComparedRun[]): string {
  const fields = differences(runs);
  const settings =
    fields.length === 0
      ? ["Their configurations are the same."]
      : [
          "What differs in their configurations:",
          "",
          ...aligned([["", ...runs.map(({ name }) => name)], ...fields]),
        ];
  return `${[...aligned([summaryColumns, ...summaryRows(runs)]), "", ...settings].join("\n")}\n`;
}

/** Rows in columns; all but the first are right-aligned. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? "").length)),
  );
  return rows.map((row) =>
    row
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}

const colours = ["loss", "eval", "speed", "norm", "rate", "collective", "copy", "other"];

/** A page that draws the runs over each other. */
export function comparePage(runs: readonly ComparedRun[]): string {
  const lines = (pointsOf: (run: ComparedRun) => Series["points"]): Series[] =>
    runs.map((run, i) => ({
      name: run.name,
      colour: `var(--${colours[i % colours.length]})`,
      points: pointsOf(run),
    }));
  const time = timeUnit(Math.max(...runs.map(({ steps }) => steps.at(-1)?.seconds ?? 0)));
  const y = "loss (nats per token)";
  const byStep = lines(({ steps }) => steps.map(({ step, loss }) => [step, loss]));
  const byTokens = lines(({ steps }) => steps.map(({ tokens, loss }) => [tokens, loss]));
  const byTime = lines(({ steps }) => steps.map(({ seconds, loss }) => [seconds / time.seconds, loss]));
  const speed = lines(({ steps }) => speedLine(steps));
  const validation = lines(({ evaluations }) => evaluations.map(({ step, loss }) => [step, loss]));
  const fields = differences(runs);
  const settings =
    fields.length > 0
      ? table(["field", ...runs.map(({ name }) => name)], fields)
      : '<p class="empty">their configurations are the same</p>';
  const charts: readonly (readonly [id: string, html: string])[] = [
    [
      "summary",
      section(
        "Runs",
        "The last loss, the best validation loss, and the median speed.",
        table(summaryColumns, summaryRows(runs)),
      ),
    ],
    ["settings", section("Settings", "What differs in their configurations.", settings)],
    ["steps", section("Loss by step", "The training loss.", lineChart(byStep, { x: "step", y }))],
    [
      "tokens",
      section("Loss by tokens", "After the same amount of text.", lineChart(byTokens, { x: "tokens", y })),
    ],
    [
      "time",
      section(
        "Loss by time",
        "After the same time of training.",
        lineChart(byTime, { x: `time (${time.unit})`, y, unit: time.unit }),
      ),
    ],
    [
      "validation",
      section("Validation loss", "Where it was measured.", lineChart(validation, { x: "step", y })),
    ],
    [
      "speed",
      section(
        "Throughput",
        "Tokens per second over all devices, in the last five steps.",
        lineChart(speed, { x: "step", y: "tokens / s" }),
      ),
    ],
  ];
  return pageHtml(
    `Comparison of ${runs.length} runs`,
    charts.map(([id, html]) => ({ id, html })),
  );
}

/** The unit in which a time is a handy number. */
function timeUnit(seconds: number): { readonly unit: string; readonly seconds: number } {
  if (seconds < 300) return { unit: "s", seconds: 1 };
  return seconds < 3 * 3600 ? { unit: "min", seconds: 60 } : { unit: "h", seconds: 3600 };
}
