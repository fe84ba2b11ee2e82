import { processCount, processIndex } from "../../spmd/run/processes.js";
import { openCheckpoints } from "../../train/files/checkpoint.js";
import { formatValue, plotCurve } from "../../train/report/lossCurve.js";
import { formatDuration } from "../../train/report/progress.js";
import type { RunConfig } from "../../train/run/config.js";
import { runHolder } from "../../train/run/lock.js";
import { checkpointFolder } from "../../train/run/setup.js";
import { type RunOutcome, trainRun } from "../../train/run/trainer.js";
import type { Arguments } from "../arguments.js";
import { type Command, exitCodes } from "../command.js";
import {
  argumentsOf,
  atMost,
  configOf,
  engineOption,
  mergeConfigs,
  readConfigFile,
  useEngine,
} from "../runArguments.js";

/** Trains a model. */
export const train: Command = {
  name: "train",
  summary: "train a model",
  usage: "[config.json] [options]",
  options: [
    { name: "resume", help: "go on from the newest checkpoint in the run's folder (--out)" },
    engineOption,
  ],
  takesFields: true,
  examples: [
    "shardwise train",
    "shardwise train my.json --steps 1000 --mesh data=2,model=2",
    "shardwise train --model.kind mlstm --data.source my.txt --out runs/mine",
    "shardwise train --resume --out runs/mine",
  ],
  run: async (args) => {
    const parsed = argumentsOf(args, train, ["resume"]);
    atMost(parsed, 1, "train");
    await useEngine(parsed);
    const resume = parsed.options.has("resume");
    const config = await resolveConfig(parsed, resume);
    const stop = new AbortController();
    // Processes that stopped after different steps would wait for each other: the launcher ends them together.
    const forget = processCount() === 1 ? onInterrupt(stop) : () => {};
    const begin = performance.now();
    try {
      const outcome = await trainRun({ config, resume, signal: stop.signal });
      const seconds = (performance.now() - begin) / 1000;
      if (processIndex() === 0) process.stdout.write(closingText(outcome, config, seconds));
      return outcome.status === "stopped" ? exitCodes.interrupted : exitCodes.ok;
    } finally {
      forget();
    }
  },
};

/** What the file and the options say; a run that is taken up again has the settings it was saved with. */
async function resolveConfig(args: Arguments, resume: boolean): Promise<RunConfig> {
  const [file] = args.positional;
  const json = file === undefined ? {} : readConfigFile(file);
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

/** The first of `folder`, `folder-2`, `folder-3` … that holds no run. */
async function freeFolder(folder: string): Promise<string> {
  for (let number = 1; ; number++) {
    const candidate = number === 1 ? folder : `${folder}-${number}`;
    const { length } = await openCheckpoints(checkpointFolder(candidate)).list();
    if (length === 0 && !runHolder(candidate)) return candidate;
  }
}

/** Within this many milliseconds a second signal is the same keypress: npm hands on what the terminal sent too. */
const sameKeypress = 100;

/**
 * The first interrupt asks the run to end after its step, the second ends the process at once.
 *
 * @returns ends listening, unless a second interrupt may still come while the process ends
 */
function onInterrupt(stop: AbortController): () => void {
  let first = Number.NEGATIVE_INFINITY;
  const listener = () => {
    const now = performance.now();
    if (now - first < sameKeypress) return;
    // Checkpoints appear whole or not at all, so that nothing is lost by leaving now.
    if (stop.signal.aborted) process.exit(exitCodes.interrupted);
    first = now;
    process.stderr.write("\nstopping after this step and saving; press Ctrl-C again to stop at once\n");
    stop.abort();
  };
  const signals = ["SIGINT", "SIGTERM"] as const;
  for (const signal of signals) process.on(signal, listener);
  return () => {
    if (stop.signal.aborted) return;
    for (const signal of signals) process.off(signal, listener);
  };
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
      : `go on: npx shardwise train --resume --out ${folder}`;
  return `${[`${what}${losses}${validation}`, ...curve, ...sample, ...files, hint].join("\n")}\n`;
}
