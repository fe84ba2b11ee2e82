/**
 * `npm run test:published` predicts all published runs, writes the tables of `docs/planning.md`, and fails if a run is
 * outside of the bounds (20 % of the tokens a second, 10 % of the memory), if of two runs of a model the slower one is
 * predicted to be faster, if what ran out of memory is predicted to fit, or if a published configuration is not among
 * the planner's first three for the same batch, or, where other published ones beat it, for the same batch and the same
 * part of it on every group of GPUs. `--only 405` takes runs of models that say so, and writes nothing.
 * Takes some minutes.
 */
import { readFileSync, writeFileSync } from "node:fs";
import "../../src/index.js";
import { getOrInsert } from "../../src/ir/collections.js";
import { candidatesOf, type SearchSpace } from "../../src/train/plan/candidates.js";
import { type PlannedStep, planTraining, priceConfig } from "../../src/train/plan/plan.js";
import { formatParts } from "../../src/train/plan/planText.js";
import {
  areAlternatives,
  configOf,
  numGpusOf,
  outOfMemory,
  type Prediction,
  type PublishedRun,
  predict,
  pricesOf,
  publishedRuns,
  sources,
} from "./published.js";

const [tokenBound, memoryBound] = [0.2, 0.1];
const page = "docs/planning.md";
const [begin, end] = ["<!-- test/plan/publishedRun.ts -->", "<!-- end -->"];

const words = process.argv.slice(2);
const only = words.includes("--only") ? words[words.indexOf("--only") + 1] : undefined;

const percent = (share: number) => `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(0)} %`;

function describe(run: PublishedRun): string {
  const axes = Object.entries(run.mesh).filter(([, size]) => size > 1);
  return [
    ...axes.map(([name, size]) => `${name}=${size}`),
    run.schedule ?? [],
    run.float8 ? "float8" : "bfloat16",
    run.remat,
    run.note ?? [],
  ]
    .flat()
    .join(" ");
}

const whole = (tokens: number) => Math.round(tokens).toLocaleString("en-US");

/** A table row for a run, and how it misses the bounds. */
function rowOf(run: PublishedRun, { tokens, gib, planned }: Prediction) {
  const time = tokens / run.tokens - 1;
  const memory = run.gib === undefined ? undefined : gib / run.gib - 1;
  const name = `${run.model} on ${numGpusOf(run)}: ${describe(run)}, ${run.sequence} tokens`;
  const parts = formatParts(planned.parts, planned.seconds);
  console.error(name, percent(time), memory === undefined ? "" : percent(memory), parts);
  const misses: string[] = [];
  if (Math.abs(time) > tokenBound) misses.push(`${name}: ${percent(time)} of the tokens a second`);
  if (memory !== undefined && Math.abs(memory) > memoryBound) {
    misses.push(`${name}: ${percent(memory)} of the memory`);
  }
  const cells = [
    sources[run.source].label,
    run.model,
    numGpusOf(run),
    run.sequence.toLocaleString("en-US"),
    describe(run),
    `${whole(tokens)} / ${whole(run.tokens)}`,
    percent(time),
    ...(memory === undefined
      ? ["not published", ""]
      : [`${gib.toFixed(1)} / ${run.gib?.toFixed(1)}`, percent(memory)]),
  ];
  return { line: `| ${cells.join(" | ")} |`, misses };
}

/** Runs that differ by less are no alternatives: predictions do not know asynchronous tensor parallelism. */
const noticeable = 1.1;

/** The alternatives of every model as a list, the fastest first, and pairs that are predicted the other way round. */
function ordersOf(runs: readonly PublishedRun[], predictions: ReadonlyMap<PublishedRun, Prediction>) {
  const predicted = (run: PublishedRun) => predictions.get(run)?.tokens ?? 0;
  const misses = runs.flatMap((a) =>
    runs
      .filter(
        (b) => areAlternatives(a, b) && a.tokens > noticeable * b.tokens && predicted(a) <= predicted(b),
      )
      .map((b) => `${describe(a)} is predicted to be slower than ${describe(b)}`),
  );
  const groups = new Map<string, PublishedRun[]>();
  for (const run of runs) {
    const name = `${run.model}, ${run.float8 ? "float8" : "bfloat16"}`;
    if (runs.some((other) => areAlternatives(run, other))) getOrInsert(groups, name, () => []).push(run);
  }
  const lines = [...groups].map(([name, group]) => {
    const sorted = [...group].sort((a, b) => b.tokens - a.tokens);
    const each = sorted.map(
      (run) =>
        `\`${describe(run)}\` on ${numGpusOf(run)} (${sources[run.source].label}) ${whole(run.tokens)}, predicted ${whole(predicted(run))}`,
    );
    return `* ${name}: ${each.join("; ")}.`;
  });
  return { lines, misses };
}

/** Another way to spread the same model that was measured to be faster by more than the bound, the fastest one. */
function fasterThan(run: PublishedRun): PublishedRun | undefined {
  const isSameMachine = (other: PublishedRun) =>
    sources[other.source].machine === sources[run.source].machine ? 1 : 0;
  return publishedRuns
    .filter((other) => areAlternatives(other, run) && other.tokens > (1 + tokenBound) * run.tokens)
    .sort((a, b) => isSameMachine(b) - isSameMachine(a) || b.tokens - a.tokens)[0];
}

/** What the published runs vary, apart from recomputation. */
const space = {
  schedules: ["1f1b", "interleaved"],
  microbatchesPerStage: [1],
  accumulate: [1],
} as const satisfies SearchSpace;

/**
 * The configurations that fit and have as many parts of the batch as a published one, with recomputation as in it: as
 * tables name the batch of a part besides that of all GPUs, only the other axes are left to choose.
 */
function ofSameParts(run: PublishedRun): readonly PlannedStep[] {
  const config = configOf(run);
  const prices = pricesOf(run);
  const microbatchesPerStage = config.mesh.pipe > 1 ? space.microbatchesPerStage : [1, 2, 4];
  const { configs } = candidatesOf(config, numGpusOf(run), {
    ...space,
    microbatchesPerStage,
    remat: [run.remat],
  });
  return configs
    .filter(({ mesh }) => mesh.data === config.mesh.data && mesh.fsdp === config.mesh.fsdp)
    .map((one) => priceConfig(one, prices))
    .filter(({ memoryBytes }) => memoryBytes <= sources[run.source].machine.memoryGiB * 2 ** 30)
    .sort((a, b) => a.seconds - b.seconds);
}

/** The rank of a published configuration among those that the planner prices for the same machine and batch. */
function rankOf(run: PublishedRun): { readonly line: string; readonly isMissed: boolean } {
  const config = configOf(run);
  const prices = pricesOf(run);
  const memoryBytes = sources[run.source].machine.memoryGiB * 2 ** 30;
  const { choices } = planTraining(config, { numDevices: numGpusOf(run), memoryBytes, prices, space });
  const wanted = priceConfig(config, prices);
  const others = choices.filter(({ name }) => name !== wanted.name);
  const rank = 1 + others.filter(({ seconds }) => seconds < wanted.seconds).length;
  const first = choices.slice(0, 3).map(({ name }) => `\`${name}\``);
  const slower = wanted.seconds / (choices[0]?.seconds ?? wanted.seconds) - 1;
  const faster = fasterThan(run);
  const parts = ofSameParts(run).filter(({ name }) => name !== wanted.name);
  const rankOfParts = 1 + parts.filter(({ seconds }) => seconds < wanted.seconds).length;
  const localBatch = run.batch / (config.mesh.data * config.mesh.fsdp);
  const line = [
    `* ${run.model} on ${numGpusOf(run)} GPUs (${sources[run.source].label}): \`${wanted.name}\` is number ${rank} of ${others.length + 1}`,
    slower > 0 ? `, ${(100 * slower).toFixed(0)} % slower than the first` : "",
    `; first are ${first.join(", ")}.`,
    run.mesh.model
      ? ` With its ${localBatch} sequences for each part of the batch, it is number ${rankOfParts} of ${parts.length + 1}.`
      : "",
    faster
      ? ` \`${describe(faster)}\` on ${numGpusOf(faster)} GPUs (${sources[faster.source].label}) was measured to be ${(100 * (faster.tokens / run.tokens - 1)).toFixed(0)} % faster.`
      : "",
  ];
  return { line: line.join(""), isMissed: Math.min(rank, faster ? rankOfParts : rank) > 3 };
}

const chosen = publishedRuns.filter(({ model }) => only === undefined || model.includes(only));
const predictions = new Map(chosen.map((run) => [run, predict(run)] as const));
const rows = [...predictions].map(([run, prediction]) => rowOf(run, prediction));
const orders = ordersOf(chosen, predictions);
const lines = rows.map(({ line }) => line);
const misses = [...rows.flatMap((row) => row.misses), ...orders.misses];
if (only === undefined && predict(outOfMemory).ownGib < sources[outOfMemory.source].machine.memoryGiB)
  misses.push(`${describe(outOfMemory)} is predicted to fit`);
/** One run of each model, number of GPUs and mesh; of the pipelines, the faster one. */
const searched = publishedRuns.filter(
  ({ source, sequence, schedule, float8, note, model }) =>
    source !== "h200" &&
    sequence === 8192 &&
    (model === "8 B" ? !float8 && !note : float8 && (schedule === "interleaved" || (!schedule && !note))) &&
    !(source === "june" && model === "70 B"),
);
if (only === undefined) {
  const ranks = searched.map((run) => {
    const { line, isMissed } = rankOf(run);
    console.error(line);
    if (isMissed) misses.push(`not among the first three: ${line}`);
    return line;
  });
  const table = [
    "| source | model | GPUs | sequence | configuration | tokens/s and GPU, predicted / measured | | GiB, predicted / measured | |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ...lines,
  ];
  const text = readFileSync(page, "utf8");
  const [before = "", rest = ""] = text.split(begin);
  const after = rest.slice(rest.indexOf(end));
  writeFileSync(
    page,
    `${before}${begin}\n\n${table.join("\n")}\n\nMeasured alternatives, the fastest first, in tokens a second and GPU:\n\n${orders.lines.join("\n")}\n\nRank of the published configurations among those that the planner prices for the same batch:\n\n${ranks.join("\n")}\n\n${after}`,
  );
} else console.log(lines.join("\n"));
for (const miss of misses) console.error(`outside of the bounds: ${miss}`);
process.exit(misses.length > 0 ? 1 : 0);
