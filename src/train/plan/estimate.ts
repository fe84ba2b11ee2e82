/** A rough guess of a configuration's time and memory from sizes alone, to select those that are worth compiling. */
import type { CollectiveSpec } from "../../compiler/steps.js";
import { byteSize } from "../../ir/dtype.js";
import { range } from "../../ir/shape.js";
import type { RunConfig } from "../config/runConfig.js";
import { placementOf } from "../models/scheduled.js";
import type { Prices } from "./prices.js";

/** Sizes of the model that an estimate needs besides the configuration. */
export interface ModelSizes {
  readonly numParameters: number;
  /** Floating-point operations of a step on all devices. */
  readonly flops: number;
  readonly vocabSize: number;
}

/** An estimate of a step's time and memory. */
export interface Estimate {
  readonly seconds: number;
  readonly bytes: number;
}

/** Rough share of its peak speed that a device reaches in whole models. */
const usualEfficiency = 0.5;

/** Factor of computation with rematerialisation. */
const recomputed = { none: 1, dots: 1.1, selective: 1.15, full: 4 / 3 } as const;

/** Estimates the time and memory of a step. */
export function estimateStep(config: RunConfig, sizes: ModelSizes, prices: Prices): Estimate {
  const { mesh, model } = config;
  const numDevices = mesh.data * mesh.fsdp * mesh.expert * mesh.pipe * mesh.context * mesh.model;
  const turns = Math.max(1, numDevices / prices.numCores);
  const computing =
    (turns * recomputed[model.remat] * sizes.flops) / (numDevices * prices.peakFlops * usualEfficiency);
  const seconds = computing / (1 - bubbleOf(config)) + communication(config, sizes, prices);
  return { seconds, bytes: stateBytes(config, sizes) + activationBytes(config, sizes) };
}

/** Microbatches, and parts of the model on every stage. */
function pipelineSizes({ mesh, pipeline, optimizer }: RunConfig): { m: number; v: number } {
  if (mesh.pipe === 1) return { m: optimizer.accumulate, v: 1 };
  return { m: pipeline.microbatches, v: placementOf(pipeline.schedule) === "v" ? 2 : pipeline.repeats };
}

/** The bubble as a share of the time, by the formulas of the schedules. */
function bubbleOf(config: RunConfig): number {
  const p = config.mesh.pipe;
  if (p === 1) return 0;
  const { m, v } = pipelineSizes(config);
  const { schedule } = config.pipeline;
  const split = schedule === "zb-h1" || schedule === "zb-h2" || placementOf(schedule) === "v";
  return (p - 1) / ((split ? 3 : 1) * v * m + p - 1);
}

/** The maximum number of microbatches of which a stage keeps activations of all its parts. */
function liveMicrobatches(config: RunConfig): number {
  const p = config.mesh.pipe;
  const { m, v } = pipelineSizes(config);
  if (p === 1) return 1;
  const live: { readonly [K in RunConfig["pipeline"]["schedule"]]: number } = {
    gpipe: m,
    circular: m,
    "breadth-first": m,
    "1f1b": p,
    interleaved: p * (1 + (p - 1) / (p * v)),
    "zb-h1": p,
    "zb-h2": 2 * p - 1,
    "zb-v": p,
    dualpipev: p + 0.5,
  };
  return Math.min(m, live[config.pipeline.schedule]);
}

/** The parameters of a device along axis `expert`, which splits those of experts only. */
function heldParameters(mesh: RunConfig["mesh"], model: RunConfig["model"], numParameters: number): number {
  const { numExperts, expertWidth } = model.experts;
  if (model.kind !== "moe") return numParameters;
  const ofExperts = 3 * model.numLayers * numExperts * model.width * (expertWidth || model.mlpWidth);
  return numParameters - ofExperts + ofExperts / mesh.expert;
}

function stateBytes({ mesh, model, optimizer }: RunConfig, { numParameters }: ModelSizes): number {
  const moments = { sgd: 0, momentum: 1, adam: 2, adamw: 2, lion: 1 }[optimizer.kind];
  const masters = model.paramDtype === "float32" ? 0 : 4;
  const each = byteSize(model.paramDtype) + masters + 4 * moments + 4;
  return (each * heldParameters(mesh, model, numParameters)) / (mesh.fsdp * mesh.pipe * mesh.model);
}

function activationBytes(config: RunConfig, { vocabSize }: ModelSizes): number {
  const { mesh, model, data } = config;
  const { m } = pipelineSizes(config);
  const tokens = (data.batch * data.sequence) / (mesh.data * mesh.fsdp * mesh.expert * mesh.context * m);
  const { width, mlpWidth, numHeads } = model;
  const kept = {
    none: (10 * width + 4 * mlpWidth + 2 * numHeads * data.sequence) / mesh.model,
    dots: (6 * width + 3 * mlpWidth + numHeads * data.sequence) / mesh.model,
    selective: (4 * width + mlpWidth) / mesh.model,
    full: width,
  }[model.remat];
  const layers = model.numLayers / mesh.pipe;
  const whole = (10 * width + 4 * mlpWidth + 2 * numHeads * data.sequence) / mesh.model;
  const each = byteSize(model.dtype);
  const logits = (3 * 4 * tokens * vocabSize) / mesh.model;
  return each * tokens * (liveMicrobatches(config) * layers * kept + whole) + logits;
}

/** A collective along one axis of the mesh, in the order data, fsdp, expert, pipe, context, model, the last fastest. */
function along(
  mesh: RunConfig["mesh"],
  axis: keyof RunConfig["mesh"],
  kind: CollectiveSpec["kind"],
  bytes: number,
): CollectiveSpec {
  const strides = {
    data: mesh.fsdp * mesh.expert * mesh.pipe * mesh.context * mesh.model,
    fsdp: mesh.expert * mesh.pipe * mesh.context * mesh.model,
    expert: mesh.pipe * mesh.context * mesh.model,
    pipe: mesh.context * mesh.model,
    context: mesh.model,
    model: 1,
  };
  const size = mesh[axis];
  const nowhere = { slot: 0, offset: 0 };
  return {
    kind,
    combine: "sum",
    dtype: "float32",
    axes: [{ name: axis, size }],
    groups: [range(size).map((i) => i * strides[axis])],
    size,
    source: nowhere,
    target: nowhere,
    elements: bytes / 4,
    outer: 1,
    inner: bytes / 4,
    permutation: [],
    info: 0,
  };
}

/** The seconds of everything that a step sends, one after the other. */
function communication(config: RunConfig, { numParameters }: ModelSizes, prices: Prices): number {
  const { mesh, model, data } = config;
  const { m, v } = pipelineSizes(config);
  const time = (axis: keyof typeof mesh, kind: CollectiveSpec["kind"], bytes: number) =>
    mesh[axis] === 1 ? 0 : prices.collective(along(mesh, axis, kind, bytes));
  const tokens = (data.batch * data.sequence) / (mesh.data * mesh.fsdp * mesh.expert * mesh.context * m);
  const stream = tokens * model.width * byteSize(model.dtype);
  const held = (4 * heldParameters(mesh, model, numParameters)) / (mesh.pipe * mesh.model);
  const sent = stream * model.experts.numExpertsPerToken;
  const keyValue = (2 * stream * model.numKvHeads) / (model.numHeads * mesh.model);
  const passes = model.remat === "full" ? 6 : 4;
  return (
    m * (model.numLayers / mesh.pipe) * passes * time("model", "allReduce", stream) +
    2 * time("fsdp", "allGather", held / mesh.fsdp) +
    time("fsdp", "reduceScatter", held) +
    time("data", "allReduce", held / mesh.fsdp) +
    // To the experts and back, in both passes; what they share is summed as along `data`.
    m * (model.numLayers / mesh.pipe) * passes * time("expert", "allToAll", sent) +
    time("expert", "allReduce", held / mesh.fsdp) +
    time("context", "allReduce", held / mesh.fsdp) +
    m * (model.numLayers / mesh.pipe) * 3 * (mesh.context - 1) * time("context", "permute", keyValue) +
    2 * (v * m + mesh.pipe - 1) * time("pipe", "permute", stream)
  );
}
