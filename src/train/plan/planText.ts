/** Formats a plan for a terminal. */
import { need } from "../../ir/arguments.js";
import { formatBytes } from "../../ir/shape.js";
import { formatReasons, type PlannedStep, type TrainingPlan } from "./plan.js";
import type { TimeParts } from "./stepCost.js";

/** A time in a suitable unit. */
export function formatSeconds(seconds: number): string {
  if (seconds >= 100) return `${seconds.toFixed(0)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(1e3 * seconds).toFixed(1)} ms` : `${(1e6 * seconds).toFixed(0)} µs`;
}

/** Where the time goes, in percent, largest first; parts below one are omitted. */
export function formatParts(parts: TimeParts, seconds: number): string {
  const { products, attention, kernels, moves, bubble, overhead, communication } = parts;
  const all: [string, number][] = [
    ["products", products],
    ["attention", attention],
    ["other kernels", kernels],
    ["copies", moves],
    ["bubble", bubble],
    ["overhead", overhead],
    ...Object.entries(communication).map(([axes, time]): [string, number] => [`over ${axes}`, time]),
  ];
  return all
    .filter(([, time]) => time >= 0.01 * seconds)
    .sort((a, b) => b[1] - a[1])
    .map(([what, time]) => `${what} ${((100 * time) / seconds).toFixed(0)} %`)
    .join(", ");
}

/**
 * The best choices as a table, and why others were rejected.
 *
 * @example
 * ```ts
 * const device = { flops: 1e15, efficiency: 0.5, memoryBandwidth: 3e12, launch: 5e-6 };
 * const link = { bandwidth: 1e11, latency: 1e-5 };
 * const prices = train.machinePrices(device, { network: link, intra: link, nodeSize: 8 });
 * const { config } = train.readRunConfig({ model: { numLayers: 1, width: 64 } }, [], 2);
 * train.formatPlan(train.planTraining(config, { numDevices: 2, prices, tries: 1 }), 1).includes("data"); // true
 * ```
 */
export function formatPlan(plan: TrainingPlan, top: number): string {
  need("object", plan, "plan", "formatPlan");
  need("number", top, "top", "formatPlan");
  const { choices, numCandidates, numTried, refused } = plan;
  need("list", choices, "the choices of the plan", "formatPlan");
  for (const choice of choices) need("object", choice, "a choice of the plan", "formatPlan");
  const rows = choices
    .slice(0, top)
    .map((choice, i) => [
      `${i + 1}`,
      choice.name,
      formatSeconds(choice.seconds),
      `${(100 * choice.shareOfPeak).toFixed(1)} %`,
      formatBytes(choice.memoryBytes),
      formatParts(choice.parts, choice.seconds),
    ]);
  const head = ["", "configuration", "step", "of peak", "memory", "where the time goes"];
  const widths = head.map((title, c) => Math.max(title.length, ...rows.map((row) => row[c]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, c) =>
        c === 2 || c === 3 || c === 4 ? cell.padStart(widths[c] ?? 0) : cell.padEnd(widths[c] ?? 0),
      )
      .join("  ")
      .trimEnd();
  return `${[
    `${numCandidates.toLocaleString("en-US")} configurations, ${numTried} of them compiled and priced, ${choices.length} fit`,
    ...(refused.size > 0 ? ["refused:", formatReasons(refused)] : []),
    "",
    line(head),
    ...rows.map(line),
  ].join("\n")}\n`;
}

/** The fields of a configuration that a choice sets. */
export function chosenFields({ config }: PlannedStep): Record<string, unknown> {
  const { mesh, pipeline, model, optimizer } = config;
  return { mesh, pipeline, model: { remat: model.remat }, optimizer: { accumulate: optimizer.accumulate } };
}
