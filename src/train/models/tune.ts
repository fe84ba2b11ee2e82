/** Fine-tuning: small adapters that are trained beside the frozen parameters of a model. */
import { type LoraModule, lora } from "../../nn/layers/lora.js";
import { isQuantized, quantizeKernels } from "../../nn/modules/quantize.js";
import type { Variables } from "../../nn/modules/scope.js";
import { castFloats } from "../../optim/index.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { LanguageModel, type LanguageModelConfig } from "./languageModel.js";
import type { Reading } from "./reading.js";

/** How a model is fine-tuned. */
export interface TuneConfig {
  /** `lora` trains low-rank adapters, `dora` also the lengths of weights. */
  readonly kind: "lora" | "dora";
  readonly rank: number;
  /** The adapters' contribution is scaled by `alpha / rank`; the rank for 0. */
  readonly alpha: number;
  /** Names of the layers with adapters, such as `query`; all linear layers of the blocks if there are none. */
  readonly targets: readonly string[];
  /** The type of frozen parameters; `int8` and `nf4` are that of kernels, beside bfloat16 for the rest. */
  readonly base: "float32" | "bfloat16" | "int8" | "nf4";
}

/** The large linear layers of blocks; gates, the output layer and embeddings keep their precision. */
export const linearNames: { readonly [K in ModelConfig["kind"]]: readonly string[] } = {
  llama: ["query", "key", "value", "out", "gate", "up", "down"],
  moe: ["query", "key", "value", "out", "sharedGate", "sharedUp", "sharedDown"],
  mlstm: ["gate", "up", "down"],
  xlstm: ["query", "key", "value", "outputGate", "out", "gate", "up", "down"],
};

/** The kernels that are quantised: besides those of linear layers, those of experts, which have no adapters. */
const quantizedNames = (kind: ModelConfig["kind"]): readonly string[] =>
  kind === "moe" ? [...linearNames.moe, "gate", "up", "down"] : linearNames[kind];

/** A tuned model: what {@link lora} makes of it. */
type TunedModel = LoraModule<[tokens: Tensor, reading?: Reading, last?: Tensor], Tensor>;

/** The options of the adapters. */
export function adapterOptions({ kind: model }: ModelConfig, { kind, rank, alpha, targets }: TuneConfig) {
  return {
    rank,
    alpha: alpha === 0 ? rank : alpha,
    targets: targets.length > 0 ? targets : linearNames[model],
    dora: kind === "dora",
  };
}

/** A model with adapters. */
export function tunedModel(model: LanguageModelConfig, tune: TuneConfig): TunedModel {
  return lora(LanguageModel(model), adapterOptions(model, tune));
}

/** The logits of a model, whose variables have adapters if it is tuned. */
export function applyModel(
  model: LanguageModelConfig,
  tune: TuneConfig | undefined,
  { lora: own, ...variables }: Variables,
  tokens: Tensor,
  ...reading: [Reading?]
): Tensor {
  if (!tune || !own) return LanguageModel(model).apply(variables, tokens, ...reading);
  return tunedModel(model, tune).apply(variables, { lora: own }, tokens, ...reading);
}

/** The parameters of a model as they are while its adapters are trained. @param example tokens */
export function frozenParams(
  model: ModelConfig,
  params: Variables,
  { base }: TuneConfig,
  example: Tensor,
): Variables {
  if (base === "float32" || base === "bfloat16") return castFloats(params, base);
  const options = { type: base, targets: quantizedNames(model.kind) };
  return castRest(quantizeKernels(LanguageModel(model), params, options, example));
}

/** All floats but the scales of quantised kernels as bfloat16. */
function castRest(variables: Variables): Variables {
  const walk = (node: unknown): unknown => {
    if (isQuantized(node)) return node;
    if (!isPlain(node)) return castFloats(node, "bfloat16");
    return Object.fromEntries(Object.entries(node).map(([name, child]) => [name, walk(child)]));
  };
  return walk(variables) as Variables;
}

const isPlain = (node: unknown): node is Readonly<Record<string, unknown>> =>
  typeof node === "object" && node !== null && Object.getPrototypeOf(node) === Object.prototype;

/** The parameters of a state with its adapters merged, as the model alone takes them. */
export function mergedParams(
  state: { readonly params: Variables; readonly base?: Variables },
  model: ModelConfig,
  tune: TuneConfig | undefined,
): Variables {
  return state.base && tune ? tunedModel(model, tune).merge(state.base, state.params) : state.params;
}
