/**
 * `npm run test:published` predicts all published runs, writes the table of `docs/planning.md`, and fails if a run is
 * outside of the bounds (20 % of the tokens a second, 10 % of the memory), if of two runs of a model on as many GPUs the
 * slower one is predicted to be faster, or if a published configuration that no other one beats is not among the
 * planner's first three. `--only 405` takes runs of models that say so, and writes nothing.
 * Takes some minutes.
 */
import { readFileSync, writeFileSync } from "node:fs";
import "../../src/index.js";
import { at } from "../../src/ir/shape.js";
import { describeChoice } from "../../src/train/plan/candidates.js";
import { planTraining } from "../../src/train/plan/plan.js";
import { formatParts } from "../../src/train/plan/planText.js";
import { configOf, type PublishedRun, predict, pricesOf, publishedRuns, sources } from "./published.js";

const [tokenBound, memoryBound] = [0.2, 0.1];
const page = "docs/planning.md";
const [begin, end] = ["<!-- test/plan/publishedRun.ts -->", "<!-- end -->"];

const words = process.argv.slice(2);
const only = words.includes("--only") ? words[words.indexOf("--only") + 1] : undefined;

const percent = (share: number) => `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(0)} %`;
const numGpusOf = ({ mesh }: PublishedRun) =>
  Object.values(mesh).reduce((product, size) => product * size, 1);

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

function tableOf(runs: readonly PublishedRun[]): { readonly lines: string[]; readonly misses: string[] } {
  const misses: string[] = [];
  const predictions = runs.map(predict);
  const lines = runs.map((run, i) => {
    const { tokens, gib, planned } = at(predictions, i);
    const time = tokens / run.tokens - 1;
    const memory = run.gib === undefined ? undefined : gib / run.gib - 1;
    const name = `${run.model} on ${numGpusOf(run)}: ${describe(run)}, ${run.sequence} tokens`;
    console.error(
      name,
      percent(time),
      memory === undefined ? "" : percent(memory),
      formatParts(planned.parts, planned.seconds),
    );
    if (Math.abs(time) > tokenBound) misses.push(`${name}: ${percent(time)} of the tokens a second`);
    if (memory !== undefined && Math.abs(memory) > memoryBound) {
      misses.push(`${name}: ${percent(memory)} of the memory`);
    }
    const cells = [
      run.source.toUpperCase(),
      run.model,
      numGpusOf(run),
      run.sequence.toLocaleString("en-US"),
      describe(run),
      `${Math.round(tokens).toLocaleString("en-US")} / ${run.tokens.toLocaleString("en-US")}`,
      percent(time),
      ...(memory === undefined
        ? ["not published", ""]
        : [`${gib.toFixed(1)} / ${run.gib?.toFixed(1)}`, percent(memory)]),
    ];
    return `| ${cells.join(" | ")} |`;
  });
  const isAlternative = (a: PublishedRun, b: PublishedRun) =>
    a.source === b.source &&
    a.model === b.model &&
    numGpusOf(a) === numGpusOf(b) &&
    a.sequence === b.sequence;
  for (const [i, a] of runs.entries()) {
    for (const [j, b] of runs.entries()) {
      // Rows closer than this differ by what the prediction does not know, as asynchronous tensor parallelism.
      const isFaster = isAlternative(a, b) && a.tokens > 1.1 * b.tokens;
      if (isFaster && at(predictions, i).tokens <= at(predictions, j).tokens)
        misses.push(`${describe(a)} is predicted to be slower than ${describe(b)}`);
    }
  }
  return { lines, misses };
}

/** A run of the same model on as many GPUs or more that is faster by more than the bound. */
function fasterThan(run: PublishedRun): PublishedRun | undefined {
  const { model, float8, sequence, tokens } = run;
  return publishedRuns.find(
    (other) =>
      other.model === model &&
      other.float8 === float8 &&
      other.sequence === sequence &&
      numGpusOf(other) >= numGpusOf(run) &&
      other.tokens > (1 + tokenBound) * tokens,
  );
}

/** The rank of a published configuration among all that the planner finds for the same machine and batch. */
function rankOf(run: PublishedRun): { readonly line: string; readonly isMissed: boolean } {
  const config = configOf(run);
  const { choices } = planTraining(config, {
    numDevices: numGpusOf(run),
    memoryBytes: sources[run.source].machine.memoryGiB * 2 ** 30,
    prices: pricesOf(run),
    space: { schedules: ["1f1b", "interleaved"], microbatchesPerStage: [1], accumulate: [1] },
    tries: 16,
  });
  const wanted = describeChoice(config);
  const rank = choices.findIndex(({ name }) => name === wanted) + 1;
  const first = choices.slice(0, 3).map(({ name }) => `\`${name}\``);
  const faster = fasterThan(run);
  const line = [
    `* ${run.model} on ${numGpusOf(run)} GPUs (${run.source.toUpperCase()}): \`${wanted}\` ${rank > 0 ? `is number ${rank}` : "is not among them"}; first are ${first.join(", ")}.`,
    faster
      ? ` Others measured \`${describeChoice(configOf(faster))}\` on ${numGpusOf(faster)} GPUs to be ${(100 * (faster.tokens / run.tokens - 1)).toFixed(0)} % faster.`
      : "",
  ];
  return { line: line.join(""), isMissed: !faster && !(rank >= 1 && rank <= 3) };
}

const chosen = publishedRuns.filter(({ model }) => only === undefined || model.includes(only));
const { lines, misses } = tableOf(chosen);
/** One run of each model, number of GPUs and source; of the pipelines, the faster one. */
const searched = publishedRuns.filter(
  ({ sequence, schedule, float8, note, model, source }) =>
    source !== "h200" &&
    sequence === 8192 &&
    (model === "8 B" ? !float8 : float8 && (schedule === "interleaved" || (!schedule && !note))),
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
    `${before}${begin}\n\n${table.join("\n")}\n\nRank of the published configuration among those that the planner finds for the same batch:\n\n${ranks.join("\n")}\n\n${after}`,
  );
} else console.log(lines.join("\n"));
for (const miss of misses) console.error(`outside of the bounds: ${miss}`);
process.exit(misses.length > 0 ? 1 : 0);
