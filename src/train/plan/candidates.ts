/** The configurations that a plan chooses from: meshes, schedules, microbatches, and rematerialisation. */

import { range } from "../../ir/shape.js";
import { type ScheduleName, scheduleNames } from "../../parallel/schedule/makers.js";
import { type RunConfig, readRunConfig } from "../config/runConfig.js";
import { splittingAxes } from "../config/setup.js";
import { placementOf } from "../models/scheduled.js";

/** The settings that a plan may vary. */
export interface SearchSpace {
  /** The pipeline schedules to try; all by default. */
  readonly schedules?: readonly ScheduleName[];
  /** The choices of rematerialisation to try; all by default. */
  readonly remat?: readonly RunConfig["model"]["remat"][];
  /** The numbers of accumulated parts of a batch to try without a pipeline; 1, 2, 4 and 8 by default. */
  readonly accumulate?: readonly number[];
  /** The numbers of microbatches for every stage of a pipeline; 1, 2 and 4 by default. */
  readonly microbatchesPerStage?: readonly number[];
}

/** Configurations that could run, and why others could not. */
export interface Candidates {
  readonly configs: readonly RunConfig[];
  /** The number of rejected configurations by reason. */
  readonly refused: ReadonlyMap<string, number>;
}

/** The schedules in which the number of parts of the model per stage can be chosen. */
const severalParts: readonly ScheduleName[] = ["circular", "interleaved", "breadth-first"];

/** Maximum number of stages and of tensor parallel devices to try. */
const [maxStages, maxModel] = [64, 8];

type Mesh = RunConfig["mesh"];

/**
 * All meshes of a number of devices.
 *
 * @param numExperts the number of experts of the model, if it has any
 * @param context the number of devices along `context`
 */
export function meshesOf(total: number, maxPipe = maxStages, numExperts = 1, context = 1): Mesh[] {
  const numDevices = total / context;
  if (!Number.isInteger(numDevices)) return [];
  const divisors = (n: number) => range(n).flatMap((i) => (n % (i + 1) === 0 ? [i + 1] : []));
  return divisors(numDevices)
    .filter((model) => model <= maxModel)
    .flatMap((model) =>
      divisors(numDevices / model)
        .filter((pipe) => pipe <= maxPipe)
        .flatMap((pipe) =>
          divisors(numDevices / model / pipe)
            .filter((expert) => numExperts % expert === 0)
            .flatMap((expert) =>
              divisors(numDevices / model / pipe / expert).map((fsdp) => ({
                data: numDevices / model / pipe / expert / fsdp,
                fsdp,
                expert,
                pipe,
                context,
                model,
              })),
            ),
        ),
    );
}

type Variant = Pick<RunConfig, "pipeline"> & { readonly accumulate: number };

/** The ways in which a batch can go through a mesh. */
function variantsOf({ pipe }: Mesh, config: RunConfig, space: SearchSpace): Variant[] {
  const { accumulate } = config.optimizer;
  if (pipe === 1) {
    const parts = space.accumulate ?? [...new Set([1, 2, 4, 8, accumulate])];
    return parts.map((count) => ({ pipeline: config.pipeline, accumulate: count }));
  }
  return (space.schedules ?? scheduleNames).flatMap((schedule) =>
    (severalParts.includes(schedule) ? [1, 2, 4] : [1]).flatMap((repeats) => {
      // With one part on every stage these equal schedules that are tried anyway.
      if (repeats === 1 && severalParts.includes(schedule) && schedule !== "circular") return [];
      if (schedule === "gpipe") return [];
      return (space.microbatchesPerStage ?? [1, 2, 4]).map((each) => ({
        pipeline: { schedule, repeats, microbatches: each * pipe },
        accumulate,
      }));
    }),
  );
}

/** All configurations of a model on a number of devices; those that do not divide evenly are rejected with a reason. */
export function candidatesOf(config: RunConfig, numDevices: number, space: SearchSpace = {}): Candidates {
  const refused = new Map<string, number>();
  const configs: RunConfig[] = [];
  const { kind, experts, numLayers } = config.model;
  const numExperts = kind === "moe" ? experts.numExperts : 1;
  for (const mesh of meshesOf(numDevices, numLayers, numExperts, config.mesh.context)) {
    for (const { pipeline, accumulate } of variantsOf(mesh, config, space)) {
      for (const remat of space.remat ?? (["none", "dots", "selective", "full"] as const)) {
        const changed: RunConfig = {
          ...config,
          mesh,
          pipeline,
          model: { ...config.model, remat },
          optimizer: { ...config.optimizer, accumulate },
        };
        const [violation] = readRunConfig(changed).violations;
        if (violation === undefined) configs.push(changed);
        else {
          const reason = reasonOf(violation);
          refused.set(reason, (refused.get(reason) ?? 0) + 1);
        }
      }
    }
  }
  return { configs, refused };
}

/** The numbers of devices nearest to one that has no configurations, at most one below and one above. */
export function nearestCounts(config: RunConfig, numDevices: number): number[] {
  const least: SearchSpace = {
    schedules: ["1f1b"],
    remat: ["none"],
    accumulate: [1],
    microbatchesPerStage: [1],
  };
  const splits = (count: number) => candidatesOf(config, count, least).configs.length > 0;
  const below = range(numDevices - 1).map((i) => numDevices - 1 - i);
  const above = range(numDevices).map((i) => numDevices + 1 + i);
  return [below, above].flatMap((counts) => counts.find(splits) ?? []);
}

/** A violation without the numbers of one mesh. */
function reasonOf(violation: string): string {
  const [, field, value, why] = /^(\S+) is (\S+), which does not split [^(]*\(([^:]*):/.exec(violation) ?? [];
  return why === undefined ? violation : `${field} (${value}) does not split over ${why}`;
}

/** A configuration's parallelism in a few words, such as `fsdp=4 pipe=2 zb-h1 m=8 remat=dots`. */
export function describeChoice({ mesh, pipeline, model, optimizer }: RunConfig): string {
  const axes = splittingAxes(mesh);
  const { schedule, repeats, microbatches } = pipeline;
  const parts = placementOf(schedule) === "v" || repeats === 1 ? "" : `x${repeats}`;
  const called = schedule === "circular" && repeats === 1 ? "gpipe" : schedule;
  return [
    ...(axes.length > 0 ? axes : ["one device"]),
    ...(mesh.pipe > 1 ? [`${called}${parts} m=${microbatches}`] : []),
    ...(optimizer.accumulate > 1 ? [`accumulate=${optimizer.accumulate}`] : []),
    ...(model.remat === "none" ? [] : [`remat=${model.remat}`]),
  ].join(" ");
}
