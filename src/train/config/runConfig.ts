import * as system from "#platform/system";
import { bytesAccepted, type EngineSettings, parseBytes } from "../../engines/settings.js";
import { need, needIfGiven } from "../../ir/arguments.js";
import { type ScheduleName, scheduleNames } from "../../parallel/schedule/makers.js";
import { isObject } from "../files/disk/json.js";
import { isRecurrent, type ModelConfig, modelViolations, type Violation } from "../models/config.js";
import { type DecoderConfig, isMixed } from "../models/decoder.js";
import { isInterleaved, placementOf } from "../models/scheduled.js";
import { placementFor } from "../models/sequence.js";
import { linearNames, type TuneConfig } from "../models/tune.js";
import {
  automatic,
  type Config,
  choice,
  decimal,
  flag,
  integer,
  type ReadConfig,
  readConfig,
  type Setting,
  text,
} from "./configSchema.js";
import { decoderSchema } from "./decoderSchema.js";
import { expertsSchema } from "./expertsSchema.js";

/**
 * The default batch size: about 16 examples, divisible by the number of devices along `data` and further into
 * microbatches and over two devices of another axis.
 */
export function defaultBatch(numDevices: number): number {
  let multiple = numDevices;
  while (multiple % 8 !== 0) multiple += numDevices;
  return Math.ceil(16 / multiple) * multiple;
}

const numCores = system.numCores();

const floatTypes = ["float32", "bfloat16", "float16"] as const;

/** Everything that describes a training run, with defaults that train a small model in a few minutes. */
export const runSchema = {
  model: {
    kind: choice(
      "llama",
      "the blocks: attention (moe: with experts), or the matrix memory of xLSTM (xlstm: that of xLSTM 7B)",
      ["llama", "moe", "mlstm", "xlstm"],
    ),
    width: integer(128, "width of the residual stream"),
    numLayers: integer(4, "number of blocks"),
    numHeads: integer(4, "attention heads"),
    numKvHeads: integer(4, "key and value heads"),
    mlpWidth: integer(384, "inner width of the MLP"),
    tieEmbeddings: flag(true, "use the embedding table as output layer"),
    ropeBase: decimal(10_000, "base of the rotary frequencies", 1),
    normEpsilon: decimal(1e-6, "added to variances"),
    dtype: choice("float32", "type of activations and of matrix products", floatTypes),
    paramDtype: choice("float32", "type of parameters; 16-bit ones have float32 masters", floatTypes),
    remat: choice("none", "what blocks recompute in the backward pass", [
      "none",
      "dots",
      "selective",
      "full",
    ]),
    vocabSize: integer(0, "rows of the embedding table; 0 for the tokeniser's, filled up", 0),
    decoder: decoderSchema,
    experts: expertsSchema,
  },
  mesh: {
    data: integer(numCores, "devices along axis data: each has the whole model"),
    fsdp: integer(1, "devices along axis fsdp: data parallel with split parameters"),
    expert: integer(1, "devices along axis expert: data parallel with split experts (moe)"),
    pipe: integer(1, "devices along axis pipe: stages of a pipeline"),
    context: integer(1, "devices along axis context: each has a part of every sequence"),
    model: integer(1, "devices along axis model: tensor parallel"),
  },
  pipeline: {
    microbatches: integer(4, "microbatches a batch is split into when pipe > 1"),
    repeats: integer(1, "parts of the model on every stage: how often a microbatch goes round"),
    schedule: choice(
      "circular",
      "the order in which stages work on microbatches (circular with one repeat is GPipe)",
      scheduleNames,
    ),
  },
  tensor: choice(
    "sync",
    "how the devices of axis model exchange activations: summed, in rings that overlap with products, or gathered and scattered so that each holds a part of every sequence in between",
    ["sync", "async", "sequence"],
  ),
  context: choice(
    "ring",
    "how the devices of axis context exchange what attention needs: keys and values in a ring, all heads of some tokens for some heads of all, or gathered keys and values",
    ["ring", "allToAll", "gather"],
  ),
  data: {
    source: text(
      "bundled",
      "texts, JSONL, CSV or Parquet (also .gz and .zst): a file, folder, pattern or URL, or several separated by commas; `bundled` for the text that comes with the install",
    ),
    weights: text("", "shares of several sources in the examples, such as 3,1; equal by default"),
    fields: text(
      "",
      "fields of the records, such as text=content or prompt=question,completion=answer; by default text, messages, prompt and completion, or chosen and rejected",
    ),
    packing: choice(
      "auto",
      "how documents share examples: joined in a stream, cut from it but separate, or whole and separate; auto joins texts and keeps others whole",
      ["auto", "joined", "separate", "whole"],
    ),
    template: text("", "file with the chat template for messages; that of the model (--init) by default"),
    onError: choice("stop", "what a record that cannot be read does: end the run, or be left out", [
      "stop",
      "skip",
    ]),
    tokenizer: text("bytes", "`bytes`, `bpe` (trained on the text), or a tokenizer.json"),
    vocabSize: integer(512, "size of a trained BPE vocabulary", 257),
    sequence: integer(128, "tokens per example"),
    batch: integer(defaultBatch(numCores), "examples per step, over all devices"),
    validation: decimal(0.05, "share of the text that is kept for evaluation", 0, 0.5),
  },
  optimizer: {
    kind: choice("adamw", "the optimiser", ["sgd", "momentum", "adam", "adamw", "lion"]),
    learningRate: decimal(2e-3, "the highest learning rate"),
    schedule: choice("cosine", "how the learning rate changes", ["constant", "cosine", "linear", "wsd"]),
    warmup: integer(20, "steps over which the learning rate rises", 0),
    weightDecay: decimal(0.1, "decay of weights (not of norms and biases)"),
    clip: decimal(1, "largest global norm of gradients; 0 for none"),
    zLoss: decimal(0, "weight of the z-loss"),
    accumulate: integer(1, "parts of a batch that run one after another, to save memory"),
    lossScale: decimal(2 ** 15, "the first loss scale; used with float16 only", 1),
  },
  dpo: {
    beta: decimal(
      0,
      "train on pairs of chosen and rejected answers (DPO), held to the model as it starts by this factor; 0 for other data",
    ),
    labelSmoothing: decimal(0, "share of pairs that are taken to be the wrong way round", 0, 0.5),
  },
  tune: {
    kind: choice(
      "none",
      "what is trained: all parameters, or adapters beside frozen linear layers; --tune lora does the same",
      ["none", "lora", "dora"],
    ),
    rank: integer(8, "rank of the adapters"),
    alpha: decimal(0, "adapters are scaled by alpha / rank; 0 for the rank"),
    targets: text(
      "",
      "layers with adapters, such as query,value; all linear layers of the blocks by default",
    ),
    base: choice("float32", "type of frozen parameters; int8 and nf4 (4 bits) that of the blocks' kernels", [
      "float32",
      "bfloat16",
      "int8",
      "nf4",
    ]),
  },
  engine: {
    memory: automatic("memory limit of each device; auto grows as needed", bytesAccepted, parseBytes),
    deadline: automatic(
      "seconds that a device may compute without a new step before it counts as failed; auto is 120",
      "a number of seconds",
      (text) => (Number(text) > 0 && Number(text) < Number.POSITIVE_INFINITY ? Number(text) : undefined),
    ),
  },
  precision: choice(
    "float32",
    "how products are computed: as written; float32 on GPUs with factors of 11 bits (tf32), which is faster; or those of linear layers with factors scaled and rounded to float8, which GPUs that have it multiply twice as fast",
    ["float32", "tf32", "float8"],
  ),
  reduction: choice(
    "exact",
    "sums over several processes: with the bits of worker threads, or by MPI in an order of its own",
    ["exact", "fast"],
  ),
  init: text("", "folder of a pretrained model to start from, with its config.json"),
  ignoreFields: text(
    "",
    "unknown fields of that config.json that do not change what the model computes, separated by commas",
  ),
  steps: integer(500, "training steps"),
  seed: integer(0, "seed of parameters and data order", 0),
  out: text("runs/default", "folder for checkpoints, metrics, trace and report"),
  checkpointEvery: integer(100, "steps between checkpoints"),
  checkpoint: choice(
    "sync",
    "whether training waits while more than 1 GiB is saved, or the devices copy the state first",
    ["sync", "async"],
  ),
  keep: integer(2, "how many checkpoints to keep"),
  evalEvery: integer(100, "steps between evaluations"),
  sample: integer(240, "tokens to generate at the end", 0),
  sampleEvery: integer(0, "steps between samples while training; 0 for none", 0),
} as const;

/** The configuration of a training run. */
export type RunConfig = Config<typeof runSchema>;

/** Throws unless a value has the parts of a run's configuration; `readRunConfig` makes valid ones. */
export function needRunConfig(config: RunConfig, caller: string): void {
  need("object", config, "the configuration", caller);
  for (const part of ["model", "mesh", "pipeline", "data", "optimizer", "tune", "engine"] as const) {
    need("object", config[part], `${part} of the configuration`, caller);
  }
}

/** The engine settings that a run sets explicitly. */
export function engineSettings({ engine, precision, reduction }: RunConfig): EngineSettings {
  const { memory, deadline } = engine;
  return {
    ...(reduction === "exact" ? {} : { reduction }),
    ...(precision === "tf32" ? { products: precision } : {}),
    ...(memory === "auto" ? {} : { memoryBytes: memory }),
    ...(deadline === "auto" ? {} : { deadlineMs: 1000 * deadline }),
  };
}

/**
 * Reads a run's configuration and checks that its parts fit together; all violations are listed. If any axis of the
 * mesh is set, the others have one device.
 *
 * @param devices the number of devices; the number of cores by default
 *
 * @example
 * ```ts
 * const { config } = train.readRunConfig({ model: { numLayers: 1, width: 64 } }, [], 2);
 * config.mesh.data; // 2
 * ```
 */
export function readRunConfig(
  json: unknown,
  settings: readonly Setting[] = [],
  devices?: number,
): ReadConfig<typeof runSchema> {
  needIfGiven("list", settings, "settings", "readRunConfig");
  needIfGiven("integer", devices, "devices", "readRunConfig");
  for (const setting of settings) {
    need("object", setting, "a setting", "readRunConfig");
    need("string", setting.path, "the path of a setting", "readRunConfig");
  }
  const named = (part: "mesh" | "data") => {
    const inFile = isObject(json) && isObject(json[part]) ? Object.keys(json[part]) : [];
    const paths = [...inFile.map((name) => `${part}.${name}`), ...settings.map(({ path }) => path)];
    return paths.filter((path) => path.startsWith(`${part}.`));
  };
  const axes = named("mesh");
  const others = axes.length > 0 && !axes.includes("mesh.data") ? [{ path: "mesh.data", value: 1 }] : [];
  if (axes.length === 0 && devices !== undefined) {
    others.push({ path: "mesh.data", value: devices });
    if (!named("data").includes("data.batch")) {
      others.push({ path: "data.batch", value: defaultBatch(devices) });
    }
  }
  const { config, violations, unread } = readConfig(runSchema, json, [...settings, ...others]);
  // A field that could not be read has no value to compare with others yet.
  const known = crossViolations(config).filter(({ fields }) => !fields.some((path) => unread.includes(path)));
  return { config, violations: [...violations, ...known.map(({ text }) => text)], unread };
}

/** Vocabularies are filled up to a multiple of this, so that they split over any usual number of devices. */
const vocabMultiple = 96;

/** The model's part of a run's configuration. @param vocabSize the vocabulary size of the tokeniser */
export function modelConfig({ model, precision }: RunConfig, vocabSize: number): ModelConfig {
  return {
    ...model,
    vocabSize: model.vocabSize || Math.ceil(vocabSize / vocabMultiple) * vocabMultiple,
    ...(precision === "float8" && { products: precision }),
  };
}

/** How a run is fine-tuned; undefined if it trains all parameters. */
export function tuneConfig({ tune: { kind, targets, ...tune } }: RunConfig): TuneConfig | undefined {
  if (kind === "none") return undefined;
  const names = targets.split(",").map((name) => name.trim());
  return { ...tune, kind, targets: names.filter((name) => name !== "") };
}

/** The schedules that hold one part of the model on every stage. */
const onePart: readonly ScheduleName[] = ["gpipe", "1f1b", "zb-h1", "zb-h2"];

/** What is wrong with the adapters of a run. */
function tuneViolations(config: RunConfig): Violation[] {
  const { model, mesh } = config;
  const tune = tuneConfig(config);
  if (!tune) return [];
  const violations: Violation[] = [];
  if (mesh.pipe > 1) {
    violations.push({
      fields: ["tune.kind", "mesh.pipe"],
      text: `tune.kind ${tune.kind} does not train in stages of a pipeline (mesh.pipe is ${mesh.pipe}): use mesh.fsdp or mesh.model`,
    });
  }
  const known = linearNames[model.kind];
  for (const name of tune.targets.filter((target) => !known.includes(target))) {
    violations.push({
      fields: ["tune.targets"],
      text: `tune.targets has "${name}": the linear layers of ${model.kind} are ${known.join(", ")}`,
    });
  }
  return violations;
}

/** What is wrong with the precision of a run's products. */
function precisionViolations({ model, precision }: RunConfig): Violation[] {
  if (precision !== "float8" || model.dtype !== "float16") return [];
  return [
    {
      fields: ["precision", "model.dtype"],
      text: "precision float8 scales by powers of two that model.dtype float16 cannot hold: use bfloat16",
    },
  ];
}

/** A field that requires another to be divisible by its value. */
interface Way {
  readonly field: string;
  readonly ways: number;
  /** Name of the field in messages, if not its path. */
  readonly what?: string;
}

/** The choices of a decoder that stages of a pipeline do not support. */
function pipelineViolations(decoder: DecoderConfig): Violation[] {
  const refused = [
    ...(isMixed(decoder) ? [["layers", "layers with and without a window"]] : []),
    ...(decoder.positions === "learned" ? [["positions", "learned positions"]] : []),
  ];
  return refused.map(([field, what]) => ({
    fields: ["mesh.pipe", `model.decoder.${field}`],
    text: `mesh.pipe splits the layers over stages, which ${what} (model.decoder.${field}) do not support: use mesh.fsdp or mesh.model`,
  }));
}

/** Requires a value to split over devices or parts. */
type Multiple = (path: string, value: number, by: readonly Way[]) => void;

/** Adds what is wrong with the experts of a run on its mesh. */
function checkExperts({ model, mesh }: RunConfig, multiple: Multiple, violations: Violation[]): void {
  const byModel = [{ field: "mesh.model", ways: mesh.model }];
  if (model.kind === "moe") {
    const byExpert = [{ field: "mesh.expert", ways: mesh.expert }];
    multiple("model.experts.numExperts", model.experts.numExperts, byExpert);
    if (model.experts.expertWidth > 0)
      multiple("model.experts.expertWidth", model.experts.expertWidth, byModel);
  } else if (mesh.expert > 1) {
    violations.push({
      fields: ["mesh.expert", "model.kind"],
      text: `mesh.expert is ${mesh.expert}, but model.kind ${model.kind} has no experts: use moe, or mesh.data`,
    });
  }
}

/** Adds what is wrong with the pipeline of a run. */
function checkPipeline(
  { model, mesh, pipeline }: RunConfig,
  multiple: Multiple,
  violations: Violation[],
): void {
  violations.push(...pipelineViolations(model.decoder));
  const byPipe = { field: "mesh.pipe", ways: mesh.pipe };
  const { schedule, repeats } = pipeline;
  const isV = placementOf(schedule) === "v";
  multiple("model.numLayers", model.numLayers, [
    byPipe,
    isV
      ? { field: "pipeline.schedule", what: `two parts of ${schedule}`, ways: 2 }
      : { field: "pipeline.repeats", ways: repeats },
  ]);
  if (!isInterleaved(schedule)) multiple("pipeline.microbatches", pipeline.microbatches, [byPipe]);
  if (repeats > 1 && (isV || onePart.includes(schedule))) {
    violations.push({
      fields: ["pipeline.repeats", "pipeline.schedule"],
      text: `pipeline.repeats is ${repeats}, but every stage has ${isV ? "two parts" : "one part"} of the model with pipeline.schedule ${schedule}: leave it out, or use circular, interleaved or breadth-first`,
    });
  }
}

/** Checks sequences that are split over `context`. */
function checkContext(config: RunConfig, multiple: Multiple): void {
  const { model, mesh, data } = config;
  const isZigzag = placementFor(model, config.context) === "zigzag";
  const byContext = { field: "mesh.context", ways: mesh.context };
  const chunks = { field: "context", what: "two chunks for each device", ways: 2 };
  multiple("data.sequence", data.sequence, [byContext, ...(isZigzag ? [chunks] : [])]);
  if (config.context !== "allToAll" || isRecurrent(model)) return;
  const both = [byContext, { field: "mesh.model", ways: mesh.model }];
  multiple("model.numHeads", model.numHeads, both);
  // Fewer key heads than devices are repeated.
  const isRepeated = mesh.context % (model.numKvHeads / mesh.model) === 0;
  if (!isRepeated) multiple("model.numKvHeads", model.numKvHeads, both);
}

/** Checks a residual stream whose sequences are split over `model`. */
function checkTensor(
  { tensor, model, mesh, data }: RunConfig,
  multiple: Multiple,
  violations: Violation[],
): void {
  if (tensor !== "sequence" || mesh.model === 1) return;
  multiple("data.sequence", data.sequence, [
    { field: "mesh.context", ways: mesh.context },
    { field: "mesh.model", ways: mesh.model },
  ]);
  if (model.kind !== "moe") return;
  violations.push({
    fields: ["tensor", "model.kind"],
    text: "tensor sequence splits the residual stream, in which model.kind moe has the statistics of routers: use sync or async",
  });
}

function crossViolations(config: RunConfig): Violation[] {
  const { model, mesh, pipeline, data, optimizer } = config;
  const violations = modelViolations(modelConfig(config, 256));
  const multiple = (path: string, value: number, by: readonly Way[]) => {
    const of = by.reduce((product, { ways }) => product * ways, 1);
    if (value % of === 0) return;
    const near = [Math.floor(value / of), Math.ceil(value / of)].filter((n) => n > 0).map((n) => n * of);
    const why = by.map(({ field, what = field }) => what).join(" x ");
    violations.push({
      fields: [path, ...by.map(({ field }) => field)],
      text: `${path} is ${value}, which does not split ${of} ways (${why}: ${value} / ${of} = ${Number((value / of).toPrecision(3))}): use ${near.join(" or ")}`,
    });
  };
  const byModel = [{ field: "mesh.model", ways: mesh.model }];
  multiple("data.batch", data.batch, [
    { field: "mesh.data", what: "data", ways: mesh.data },
    { field: "mesh.fsdp", what: "fsdp", ways: mesh.fsdp },
    ...(mesh.expert > 1 ? [{ field: "mesh.expert", what: "expert", ways: mesh.expert }] : []),
    ...(optimizer.accumulate > 1
      ? [{ field: "optimizer.accumulate", what: "accumulate", ways: optimizer.accumulate }]
      : []),
    ...(mesh.pipe > 1
      ? [{ field: "pipeline.microbatches", what: "microbatches", ways: pipeline.microbatches }]
      : []),
  ]);
  multiple("model.numHeads", model.numHeads, byModel);
  multiple("model.numKvHeads", model.numKvHeads, byModel);
  multiple("model.mlpWidth", model.mlpWidth, byModel);
  multiple("model.width", model.width, [
    { field: "mesh.fsdp", ways: mesh.fsdp },
    ...(mesh.context > 1 ? [{ field: "mesh.context", ways: mesh.context }] : []),
  ]);
  checkExperts(config, multiple, violations);
  if (config.tensor === "async") {
    const what = "mesh.model, tensor async";
    multiple("model.width", model.width, [{ field: "mesh.model", what, ways: mesh.model }]);
  }
  if (model.vocabSize > 0) multiple("model.vocabSize", model.vocabSize, byModel);
  else if (vocabMultiple % mesh.model !== 0) {
    violations.push({
      fields: ["mesh.model"],
      text: `mesh.model is ${mesh.model}, which does not divide the vocabulary, a multiple of ${vocabMultiple}: use 1, 2, 3, 4, 6 or 8`,
    });
  }
  violations.push(...tuneViolations(config), ...precisionViolations(config));
  if (mesh.context > 1) checkContext(config, multiple);
  checkTensor(config, multiple, violations);
  if (mesh.pipe > 1) checkPipeline(config, multiple, violations);
  return violations;
}
