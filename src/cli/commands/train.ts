import { processCount, processIndex } from "../../spmd/run/processInfo.js";
import { flag, integer, maxPort, optionalInteger } from "../../train/config/configSchema.js";
import type { RunConfig } from "../../train/config/runConfig.js";
import { checkpointFolder } from "../../train/config/setup.js";
import { openCheckpoints } from "../../train/files/checkpoints/checkpoint.js";
import { runHolder } from "../../train/folder/lock.js";
import { initialSettings } from "../../train/pretrained/initialize.js";
import { openLivePage } from "../../train/report/livePage.js";
import { formatValue, plotCurve } from "../../train/report/lossCurve.js";
import { formatDuration } from "../../train/report/progress.js";
import { isDeviceLoss } from "../../train/run/runFailures.js";
import type { RunOptions, RunOutcome } from "../../train/run/runOptions.js";
import { trainRun } from "../../train/run/trainRun.js";
import { type CommandArguments, defineCommand, exitCodes } from "../command.js";
import { type ParsedArguments, UsageError } from "../commandLine.js";
import { phase } from "../phase.js";
import { configOf, engineOption, mergeConfigs, readConfigFile, useEngine } from "../runArguments.js";
import { type Interrupts, noInterrupts, onInterrupt } from "../stopSignals.js";

const trainOptions = {
  resume: flag(false, "resume from the newest checkpoint in the run's folder (--out)"),
  "max-restarts": integer(0, "maximum number of restarts after losing a device", 0),
  "verify-determinism": flag(false, "run the first step twice and compare all bits before training"),
  watch: flag(false, "show the run on a page for browsers of this machine"),
  "watch-port": optionalInteger("the page's port, with --watch; a free one by default", 0, maxPort),
  ...engineOption,
};

/** Trains a model. */
export const train = defineCommand({
  name: "train",
  summary: "train a model",
  usage: "[config.json] [options]",
  options: trainOptions,
  takesFields: true,
  examples: [
    "shardwise train",
    "shardwise train my.json --steps 1000 --mesh data=2,model=2",
    "shardwise train --model.kind mlstm --data.source my.txt --out runs/mine",
    "shardwise train --init models/llama --data.source my.txt --out runs/tuned",
    "shardwise train --resume --out runs/mine",
    "shardwise train my.json --max-restarts 3",
    "shardwise train --watch",
  ],
  run: async (parsed) => {
    phase("opening the devices");
    await useEngine(parsed);
    const { resume, "max-restarts": maxRestarts, "verify-determinism": verifiesDeterminism } = parsed.values;
    const config = await resolveConfig(parsed, resume);
    if (maxRestarts > 0 && processCount() > 1) {
      throw new UsageError(
        `--max-restarts ${maxRestarts} is for one process: a launcher ends all ${processCount()} when one is lost; examples/elastic.sh restarts them on the hosts that are left`,
      );
    }
    const begin = performance.now();
    const outcome = await watched(parsed, (watching) =>
      trainWithRestarts({ config, resume, verifiesDeterminism, ...watching }, maxRestarts),
    );
    const seconds = (performance.now() - begin) / 1000;
    if (processIndex() === 0) process.stdout.write(closingText(outcome, config, seconds));
    return outcome.status === "stopped" ? exitCodes.interrupted : exitCodes.ok;
  },
});

/** Trains, with a page that shows it if `--watch` asks for one. */
async function watched(
  { values }: CommandArguments<typeof trainOptions>,
  run: (options: Pick<RunOptions, "onChange">) => Promise<RunOutcome>,
): Promise<RunOutcome> {
  const { watch, "watch-port": port = 0 } = values;
  if (!watch) {
    if (values["watch-port"] !== undefined)
      throw new UsageError("--watch-port is for --watch: add it, or leave both out");
    return run({});
  }
  // All processes record the same steps, but one of them shows the run.
  if (processIndex() > 0) return run({ onChange: () => {} });
  const page = await openLivePage({ port });
  process.stderr.write(`watch this run at ${page.address}\n`);
  let ending = "The run has failed.";
  try {
    const outcome = await run({ onChange: (view) => page.show(view) });
    ending = outcome.status === "finished" ? "The run has finished." : "The run was stopped.";
    return outcome;
  } finally {
    await page.close(ending);
  }
}

/** Trains, and after the loss of a device restarts from the newest checkpoint on a new engine, up to a limit. */
async function trainWithRestarts(options: RunOptions, maxRestarts: number): Promise<RunOutcome> {
  let { resume = false } = options;
  for (let restarts = 0; ; restarts++) {
    try {
      return await trainUnderSignals({ ...options, resume });
    } catch (error) {
      if (!isDeviceLoss(error) || restarts >= maxRestarts) throw error;
      const newest = await openCheckpoints(checkpointFolder(options.config.out)).latest();
      resume ||= newest !== undefined;
      process.stderr.write(
        `${error.message}\nrestarting (${restarts + 1} of ${maxRestarts}) from ${newest ? "the newest checkpoint" : "the beginning"}\n`,
      );
    }
  }
}

/** Trains once; the first signal stops the run after its step, and SIGUSR2 writes a flight recording. */
async function trainUnderSignals(options: RunOptions): Promise<RunOutcome> {
  const stop = new AbortController();
  let interrupts: Interrupts | undefined;
  let record: (() => void) | undefined;
  try {
    return await trainRun({
      ...options,
      signal: stop.signal,
      // Until there is something to save, signals end the process at once, which is their default.
      onBegin: (run) => {
        // Processes that stopped after different steps would wait for each other: the launcher ends them together.
        interrupts = processCount() === 1 ? onInterrupt(stop) : noInterrupts;
        record = () => process.stderr.write(`\n${describeRecording(run.record("SIGUSR2"))}\n`);
        process.on("SIGUSR2", record);
        return interrupts;
      },
    });
  } finally {
    interrupts?.forget();
    if (record) process.off("SIGUSR2", record);
  }
}

function describeRecording(path: string | undefined): string {
  return path === undefined
    ? "this engine keeps no flight recording"
    : `what the devices did last is in ${path}: see shardwise blame ${path}`;
}

/** The configuration from the file and the options; a resumed run has the settings it was saved with. */
async function resolveConfig(args: ParsedArguments, resume: boolean): Promise<RunConfig> {
  const [file] = args.positional;
  const given = file === undefined ? {} : readConfigFile(file);
  const json = await withInitialSettings(given, args);
  const config = configOf(json, args);
  const newest = resume ? await openCheckpoints(checkpointFolder(config.out)).latest() : undefined;
  if (newest) {
    const stored = mergeConfigs(newest.manifest.config, { out: config.out });
    return configOf(mergeConfigs(stored, json), args);
  }
  const named =
    args.settings.some(({ path }) => path === "out") || (file !== undefined && "out" in Object(json));
  return resume || named ? config : { ...config, out: await freeFolder(config.out) };
}

/** The configuration with the settings of the pretrained model that it names, unless a resumed run has them already. */
async function withInitialSettings(json: unknown, args: ParsedArguments): Promise<unknown> {
  const given = (field: "init" | "ignoreFields") =>
    args.settings.find(({ path }) => path === field)?.value ?? Object(json)[field];
  const named = given("init");
  if (typeof named !== "string" || named === "") return json;
  return mergeConfigs(await initialSettings(named, String(given("ignoreFields") ?? "").split(",")), json);
}

/** The first of `folder`, `folder-2`, `folder-3` … that holds no run. */
async function freeFolder(folder: string): Promise<string> {
  for (let number = 1; ; number++) {
    const candidate = number === 1 ? folder : `${folder}-${number}`;
    const { length } = await openCheckpoints(checkpointFolder(candidate)).list();
    if (length === 0 && !runHolder(candidate)) return candidate;
  }
}

function closingText(outcome: RunOutcome, config: RunConfig, seconds: number): string {
  const { steps, evaluations, folder, step, resumedFrom } = outcome;
  const [first, last] = [steps[0], steps.at(-1)];
  const losses = first && last ? `: loss ${formatValue(first.loss)} → ${formatValue(last.loss)}` : "";
  const evaluated = evaluations.at(-1);
  const validation = evaluated ? `, validation ${formatValue(evaluated.loss)}` : "";
  const what =
    outcome.status === "finished"
      ? `finished ${resumedFrom > 0 ? `${step - resumedFrom} more steps, ${step} in all,` : `${step} steps`} in ${formatDuration(seconds)}`
      : `stopped after step ${step} of ${config.steps}`;
  const curve =
    steps.length > 1
      ? [
          "",
          plotCurve(
            steps.map(({ step, loss }) => ({ step, value: loss })),
            { title: "loss", width: Math.min(80, process.stdout.columns ?? 72) },
          ),
        ]
      : [];
  const sample = outcome.sample === "" ? [] : ["", "A sample:", "", outcome.sample.trim(), ""];
  const files = [["checkpoint", outcome.checkpoint] as const, ...Object.entries(outcome.files)].map(
    ([name, path]) =>
      `  ${name.padEnd(10)}  ${path}${name === "trace" ? "  (open it in ui.perfetto.dev)" : ""}`,
  );
  const hint =
    outcome.status === "finished"
      ? `continue a text: npx shardwise generate ${folder} --prompt "Call me"`
      : `continue: npx shardwise train --resume --out ${folder}`;
  return `${[`${what}${losses}${validation}`, ...curve, ...sample, ...files, hint].join("\n")}\n`;
}
