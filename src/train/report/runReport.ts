import { existsSync, readdirSync } from "#platform/fs";
import { basename } from "#platform/path";
import { at } from "../../ir/shape.js";
import type { CostReport } from "../../spmd/inspect/cost.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import type { RunConfig } from "../config/runConfig.js";
import { checkpointFolder, numParameters, splittingAxes } from "../config/setup.js";
import { replaceFile } from "../files/disk/files.js";
import type { LayerLayout } from "../models/layerOrder.js";
import { deviceLoads } from "../models/moeDecoder.js";
import { isInterleaved, scheduleFor } from "../models/scheduled.js";
import type { Training } from "../step/training.js";
import { formatValue } from "./lossCurve.js";
import {
  type MeasuredPipeline,
  measurePipeline,
  type PipelinePlan,
  pipelineIterationNames,
  planPipeline,
  planSchedule,
  taskLabel,
} from "./pipelineSchedule.js";
import { placesOf, stateMemory } from "./places.js";
import { formatCount } from "./progress.js";
import {
  type CourseReport,
  type DeviceReport,
  type EvaluationRecord,
  reportHtml,
  type SampleRecord,
  type StepRecord,
} from "./reportPage.js";
import { devicesOf, type StepTrace, sharesOfWork, writeTrace } from "./stepTrace.js";

/** The plan of a run's pipeline. */
function planOf(layout: LayerLayout, { microbatches, schedule }: RunConfig["pipeline"]): PipelinePlan {
  return isInterleaved(schedule)
    ? planSchedule(scheduleFor(schedule, layout, microbatches))
    : planPipeline(layout, microbatches);
}

/** The microbatch and repeat that every stage of a pipeline works on in every iteration; null when it waits. */
export function pipelineSchedule(
  layout: LayerLayout | undefined,
  pipeline: RunConfig["pipeline"],
): (string | null)[][] {
  if (!layout) return [];
  const plan = planOf(layout, pipeline);
  return plan.stages.map((tasks) => tasks.map((task) => task && taskLabel(task, plan)));
}

/** The plan of a run's pipeline, and its measurement in a recorded step; undefined without a pipeline. */
export function runPipeline(
  layout: LayerLayout | undefined,
  pipeline: RunConfig["pipeline"],
  mesh: Mesh,
  trace: StepTrace,
): { readonly plan: PipelinePlan; readonly measured?: MeasuredPipeline } | undefined {
  if (!layout) return undefined;
  const plan = planOf(layout, pipeline);
  const stages = new Map(mesh.devices.map(({ id, coordinates }) => [id, coordinates.pipe ?? 0]));
  const measured = measurePipeline(plan, trace, (device) => stages.get(device) ?? 0);
  return measured ? { plan, measured } : { plan };
}

/**
 * Writes what the devices of a run did during a step, with the iterations of its pipeline named.
 *
 * @param router the statistics of routers in the step, for the load of each device's experts
 */
export function writeStepTrace(
  path: string,
  trace: StepTrace,
  title: string,
  { training, config, mesh }: Pick<DeviceInput, "training" | "config" | "mesh">,
  router?: ArrayLike<number>,
): void {
  const pipeline = runPipeline(training.layout, config.pipeline, mesh, trace);
  const names = pipeline?.measured && pipelineIterationNames(pipeline.plan, pipeline.measured);
  const loads = router ? deviceLoads(router, config.mesh.expert) : [];
  const counters = mesh.devices.flatMap(({ id: device, coordinates }) => {
    const load = loads[coordinates.expert ?? 0];
    return load === undefined ? [] : [{ device, name: "load of experts", at: 0, values: { load } }];
  });
  writeTrace(path, trace, title, names, counters);
}

/** What the course of a run is reported from. */
export interface CourseInput {
  readonly config: RunConfig;
  readonly mesh: Mesh;
  readonly training?: Training | undefined;
  readonly cost?: CostReport | undefined;
  readonly steps: readonly StepRecord[];
  readonly evaluations: readonly EvaluationRecord[];
  readonly samples: readonly SampleRecord[];
}

/** What the devices of a run are reported from. */
export interface DeviceInput {
  readonly config: RunConfig;
  readonly mesh: Mesh;
  readonly training: Training;
  readonly cost: CostReport;
  /** What the devices did during one step. */
  readonly trace: StepTrace;
}

/** The inputs of a report. */
export type ReportInput = CourseInput & DeviceInput;

/** Writes the page about a run. */
export async function writeRunReport(path: string, input: ReportInput): Promise<void> {
  const report = { title: runTitle(input.config), ...courseReport(input), ...deviceReport(input) };
  await replaceFile(path, reportHtml(report));
}

/** The heading of a run's page. */
export function runTitle({ out }: RunConfig): string {
  return `Training run ${out}`;
}

/** The part of a report that grows with every step. */
export function courseReport(input: CourseInput): CourseReport {
  const { config, mesh, training, cost, steps, evaluations, samples } = input;
  const axes = splittingAxes(mesh.shape);
  const speeds = steps.map((s) => s.tokensPerSecond).sort((a, b) => a - b);
  // The first step includes compilation.
  const times = steps.slice(1).map((s) => s.seconds);
  const first = steps[0];
  const last = steps.at(-1);
  const evaluated = evaluations.at(-1);
  const facts: (readonly [string, string])[] = [
    ["model", config.model.kind],
    ...(training ? [["parameters", formatCount(numParameters(training.types))] as const] : []),
    ["devices", axes.length > 0 ? `${mesh.size}: ${axes.join(" x ")}` : "1"],
    ["steps", `${last?.step ?? 0} of ${config.steps}`],
    ["loss", first && last ? `${formatValue(first.loss)} → ${formatValue(last.loss)}` : "?"],
    ...(evaluated ? [["validation loss", formatValue(evaluated.loss)] as const] : []),
    ["tokens a second", formatCount(speeds[Math.floor(speeds.length / 2)] ?? 0)],
    ...(times.length > 0 ? [["time of a step: median, 90 %, 99 %", stepTimes(times)] as const] : []),
    ...(cost ? [["operations of a step, each device", formatCount(cost.flops)] as const] : []),
  ];
  return { facts, steps, evaluations, samples, checkpoints: checkpointsIn(config.out) };
}

/** The times that half, 90 % and 99 % of the steps do not exceed. @param seconds of every step */
export function stepTimes(seconds: readonly number[]): string {
  const sorted = [...seconds].sort((a, b) => a - b);
  const times = [0.5, 0.9, 0.99].map((share) => at(sorted, Math.ceil(share * sorted.length) - 1));
  const isShort = Math.max(...times) < 10;
  return isShort
    ? `${times.map((time) => formatValue(1000 * time)).join(", ")} ms`
    : `${times.map(formatValue).join(", ")} s`;
}

/** The checkpoints of a run's folder, newest first, relative to it. */
function checkpointsIn(out: string): string[] {
  const folder = checkpointFolder(out);
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).filter((name) => /^step-\d+$/.test(name));
  return names
    .sort()
    .reverse()
    .map((name) => `${basename(folder)}/${name}`);
}

/** The part of a report about the devices and one recorded step. */
export function deviceReport({ config, mesh, training, cost, trace }: DeviceInput): DeviceReport {
  return {
    timeline: devicesOf(trace.work).map((device) => ({
      device,
      spans: trace.work
        .filter((one) => one.device === device)
        .map(({ begin, end, kind, name, source }) => ({
          begin,
          end,
          kind,
          title: `${shortened(name)}, ${((end - begin) * 1000).toFixed(0)} µs${source ? `\n${source}` : ""}`,
        })),
    })),
    shares: sharesOfWork(trace.work),
    pipeline: runPipeline(training.layout, config.pipeline, mesh, trace),
    parameters: placesOf(training.types.params, training.shardings.params, mesh),
    memory: deviceMemory(training, mesh, cost),
    collectives: cost.collectives.map(({ op, axes: over, count, bytes }) => ({
      kind: op,
      axis: over.join(", "),
      count,
      bytes,
    })),
  };
}

/** Maximum length of the names of fused operations. */
const longestName = 100;

function shortened(name: string): string {
  return name.length > longestName ? `${name.slice(0, longestName)}…` : name;
}

/** What every device holds: the state, and what else the engine has allocated or a step is planned to need. */
function deviceMemory(training: Training, mesh: Mesh, cost: CostReport): DeviceReport["memory"] {
  const { engine } = mesh;
  const state = stateMemory(training, mesh).map(({ what, bytesPerDevice }) => ({
    what,
    bytes: bytesPerDevice,
  }));
  const stateBytes = state.reduce((sum, { bytes }) => sum + bytes, 0);
  return mesh.deviceIds.map((device) => {
    const usage = engine.isAddressable(device) ? engine.memoryUsage?.(device) : undefined;
    if (!usage) {
      const rest = { what: "other values of a step at its peak", bytes: cost.peakBytes - stateBytes };
      return { device, parts: [...state, { ...rest, bytes: Math.max(0, rest.bytes) }] };
    }
    const others = { what: "batches, programs, other buffers", bytes: Math.max(0, usage.used - stateBytes) };
    return { device, parts: [...state, others, { what: "intermediate values", bytes: usage.arena }] };
  });
}
