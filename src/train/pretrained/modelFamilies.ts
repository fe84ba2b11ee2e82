/** The families of pretrained models: what their configurations mean, and how their files name and lay out parameters. */
import { nearest } from "../../ir/nearest.js";
import type { ModelConfig } from "../models/config.js";
import { type DecoderConfig, decoderOf } from "../models/decoder.js";
import { expertsOf } from "../models/experts.js";
import { headSizeOf } from "../models/llama.js";
import { type ConfigJson, readRope } from "./configJson.js";
import type { Sizes } from "./tensorLayout.js";

/**
 * A leaf of the model, its tensor in the files and the layout of one in the other (see `layout.ts`). `*` in the name
 * stands for the number of a layer, `#` for that of an expert.
 */
export type TensorEntry = readonly [leaf: string, tensor: string, layout: string];

/** The model of a configuration file; the rest of {@link ModelConfig} is chosen by the caller. */
export type FamilyModel = Omit<ModelConfig, "dtype" | "remat" | "cacheLength" | "decoder"> & {
  readonly decoder: Partial<DecoderConfig>;
};

/** A family of models. */
export interface ModelFamily {
  /** What a `config.json` says about the model. */
  readonly read: (config: ConfigJson) => FamilyModel;
  /** Where each leaf is, for reading and writing. */
  readonly tensors: (model: ModelConfig, config: ConfigJson) => readonly TensorEntry[];
  /** Names of tensors that hold nothing to load, such as masks. */
  readonly ignored?: RegExp;
  /** A prefix that files of this family may lack. */
  readonly prefix?: string;
}

const activations: Readonly<Record<string, DecoderConfig["activation"]>> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_new: "geluTanh",
  gelu_fast: "geluTanh",
  gelu_pytorch_tanh: "geluTanh",
  relu: "relu",
};

function readActivation(config: ConfigJson, name: string, fallback: string): DecoderConfig["activation"] {
  const given = config.text(name, fallback);
  const found = Object.hasOwn(activations, given) ? activations[given] : undefined;
  if (found) return found;
  throw config.error(`${name} is "${given}": ${Object.keys(activations).join(", ")} are supported`);
}

function readBias(config: ConfigJson): DecoderConfig["attentionBias"] {
  return config.flag("attention_bias", false) ? "all" : "none";
}

/** The fields that most families share. */
function readSizes(config: ConfigJson, epsilon = "rms_norm_eps") {
  const numHeads = config.count("num_attention_heads");
  const width = config.count("hidden_size");
  const headSize = config.count("head_dim", width / numHeads);
  config.only("quantization_config");
  return {
    kind: "llama" as const,
    vocabSize: config.count("vocab_size"),
    width,
    numLayers: config.numLayers("num_hidden_layers"),
    numHeads,
    numKvHeads: config.count("num_key_value_heads", numHeads),
    mlpWidth: config.count("intermediate_size"),
    normEpsilon: config.number(epsilon, 1e-6),
    tieEmbeddings: config.flag("tie_word_embeddings", false),
    headSize: headSize === width / numHeads ? 0 : headSize,
  };
}

/** The fields of a Llama, or of a family that differs by `more`. */
function readLlama(config: ConfigJson, more: Partial<DecoderConfig> = {}): FamilyModel {
  const { headSize, ...sizes } = readSizes(config);
  const { ropeBase, ...rope } = readRope(config);
  const activation = readActivation(config, "hidden_act", "silu");
  return { ...sizes, ropeBase, decoder: { ...rope, headSize, activation, ...more } };
}

const tied = (model: ModelConfig, entries: readonly TensorEntry[]) => (model.tieEmbeddings ? [] : entries);
const when = (condition: boolean, entries: readonly TensorEntry[]) => (condition ? entries : []);

/** The kernel and the bias of a layer. */
const dense = (leaf: string, tensor: string, kernel: string, bias: string): TensorEntry[] => [
  [`${leaf}/kernel`, `${tensor}.weight`, kernel],
  [`${leaf}/bias`, `${tensor}.bias`, bias],
];

/** The scale and the bias of a norm. */
const layerNorm = (leaf: string, tensor: string): TensorEntry[] => [
  [`${leaf}/scale`, `${tensor}.weight`, "e"],
  [`${leaf}/bias`, `${tensor}.bias`, "e"],
];

const attention = "layers/block/attention";
const mlp = "layers/block/mlp";

/** The names of Llama, which most families use with few changes. */
function llamaTensors(model: ModelConfig): TensorEntry[] {
  const { qkNorm, attentionBias, mlpBias, normPlacement } = decoderOf(model);
  const layer = "model.layers.*";
  const isBoth = normPlacement === "both";
  return [
    ["embed/embedding", "model.embed_tokens.weight", "v e"],
    ["layers/block/attentionNorm/scale", `${layer}.input_layernorm.weight`, "e"],
    [`${attention}/query/kernel`, `${layer}.self_attn.q_proj.weight`, "(h d) e -> e h d"],
    [`${attention}/key/kernel`, `${layer}.self_attn.k_proj.weight`, "(k d) e -> e k d"],
    [`${attention}/value/kernel`, `${layer}.self_attn.v_proj.weight`, "(k d) e -> e k d"],
    [`${attention}/out/kernel`, `${layer}.self_attn.o_proj.weight`, "e (h d) -> h d e"],
    ...when(attentionBias !== "none", [
      [`${attention}/query/bias`, `${layer}.self_attn.q_proj.bias`, "(h d) -> h d"],
      [`${attention}/key/bias`, `${layer}.self_attn.k_proj.bias`, "(k d) -> k d"],
      [`${attention}/value/bias`, `${layer}.self_attn.v_proj.bias`, "(k d) -> k d"],
    ]),
    ...when(attentionBias === "all", [[`${attention}/out/bias`, `${layer}.self_attn.o_proj.bias`, "e"]]),
    ...when(qkNorm, [
      [`${attention}/queryNorm/scale`, `${layer}.self_attn.q_norm.weight`, "d"],
      [`${attention}/keyNorm/scale`, `${layer}.self_attn.k_norm.weight`, "d"],
    ]),
    ...when(isBoth, [
      ["layers/block/attentionPostNorm/scale", `${layer}.post_attention_layernorm.weight`, "e"],
      ["layers/block/mlpNorm/scale", `${layer}.pre_feedforward_layernorm.weight`, "e"],
      ["layers/block/mlpPostNorm/scale", `${layer}.post_feedforward_layernorm.weight`, "e"],
    ]),
    ...when(!isBoth, [["layers/block/mlpNorm/scale", `${layer}.post_attention_layernorm.weight`, "e"]]),
    [`${mlp}/gate/kernel`, `${layer}.mlp.gate_proj.weight`, "m e -> e m"],
    [`${mlp}/up/kernel`, `${layer}.mlp.up_proj.weight`, "m e -> e m"],
    [`${mlp}/down/kernel`, `${layer}.mlp.down_proj.weight`, "e m -> m e"],
    ...when(mlpBias, [
      [`${mlp}/gate/bias`, `${layer}.mlp.gate_proj.bias`, "m"],
      [`${mlp}/up/bias`, `${layer}.mlp.up_proj.bias`, "m"],
      [`${mlp}/down/bias`, `${layer}.mlp.down_proj.bias`, "e"],
    ]),
    ["norm/scale", "model.norm.weight", "e"],
    ...tied(model, [["head/kernel", "lm_head.weight", "v e -> e v"]]),
  ];
}

/** The experts of Mixtral in the place of the MLP. */
function mixtralTensors(model: ModelConfig): TensorEntry[] {
  const moe = "model.layers.*.block_sparse_moe";
  return [
    ...llamaTensors(model).filter(([leaf]) => !leaf.startsWith(`${mlp}/`)),
    [`${mlp}/router`, `${moe}.gate.weight`, "x e -> e x"],
    [`${mlp}/gate`, `${moe}.experts.#.w1.weight`, "m e -> e m"],
    [`${mlp}/up`, `${moe}.experts.#.w3.weight`, "m e -> e m"],
    [`${mlp}/down`, `${moe}.experts.#.w2.weight`, "e m -> m e"],
  ];
}

/** Phi-3 stores query, key and value as one tensor, and gate and up as another. */
function phi3Tensors(model: ModelConfig): TensorEntry[] {
  const fused: Readonly<Record<string, readonly [tensor: string, layout: string]>> = {
    [`${attention}/query/kernel`]: ["self_attn.qkv_proj.weight", "(h d)+(k d)+(k d) e -> e h d @0"],
    [`${attention}/key/kernel`]: ["self_attn.qkv_proj.weight", "(h d)+(k d)+(k d) e -> e k d @1"],
    [`${attention}/value/kernel`]: ["self_attn.qkv_proj.weight", "(h d)+(k d)+(k d) e -> e k d @2"],
    [`${mlp}/gate/kernel`]: ["mlp.gate_up_proj.weight", "m+m e -> e m @0"],
    [`${mlp}/up/kernel`]: ["mlp.gate_up_proj.weight", "m+m e -> e m @1"],
  };
  return llamaTensors(model).map(([leaf, tensor, layout]) => {
    const own = fused[leaf];
    return own ? [leaf, `model.layers.*.${own[0]}`, own[1]] : [leaf, tensor, layout];
  });
}

function phiTensors(model: ModelConfig): TensorEntry[] {
  const layer = "model.layers.*";
  const own = llamaTensors(model).filter(([leaf]) => /embed|query|key|value/.test(leaf));
  return [
    ...own,
    ...layerNorm("layers/block/attentionNorm", `${layer}.input_layernorm`),
    ...dense(`${attention}/out`, `${layer}.self_attn.dense`, "e (h d) -> h d e", "e"),
    ...dense(`${mlp}/up`, `${layer}.mlp.fc1`, "m e -> e m", "m"),
    ...dense(`${mlp}/down`, `${layer}.mlp.fc2`, "e m -> m e", "e"),
    ...layerNorm("norm", "model.final_layernorm"),
    ...tied(model, dense("head", "lm_head", "v e -> e v", "v")),
  ];
}

/** GPT-2 stores kernels as [in, out], as this library does. */
function gpt2Tensors(model: ModelConfig): TensorEntry[] {
  const layer = "transformer.h.*";
  const [kernels, biases] = ["e (h d)+(h d)+(h d) -> e h d", "(h d)+(h d)+(h d) -> h d"];
  return [
    ["embed/embedding", "transformer.wte.weight", "v e"],
    ["positions/embedding", "transformer.wpe.weight", "p e"],
    ...layerNorm("layers/block/attentionNorm", `${layer}.ln_1`),
    ...["query", "key", "value"].flatMap((name, i) =>
      dense(`${attention}/${name}`, `${layer}.attn.c_attn`, `${kernels} @${i}`, `${biases} @${i}`),
    ),
    ...dense(`${attention}/out`, `${layer}.attn.c_proj`, "(h d) e -> h d e", "e"),
    ...layerNorm("layers/block/mlpNorm", `${layer}.ln_2`),
    ...dense(`${mlp}/up`, `${layer}.mlp.c_fc`, "e m", "m"),
    ...dense(`${mlp}/down`, `${layer}.mlp.c_proj`, "m e", "e"),
    ...layerNorm("norm", "transformer.ln_f"),
    ...tied(model, [["head/kernel", "lm_head.weight", "v e -> e v"]]),
  ];
}

function xlstmTensors(model: ModelConfig, config: ConfigJson): TensorEntry[] {
  const layer = "backbone.blocks.*";
  const memory = "layers/block/memory";
  const isFused = config.text("weight_mode", "single") === "fused";
  const fused = "(h q)+(h q)+(h d)+(h d) e ->";
  const [own, gates] = [`${layer}.mlstm_layer`, isFused ? "h+h" : "h"];
  const project = (leaf: string, name: string, size: string, part: number): TensorEntry =>
    isFused
      ? [`${memory}/${leaf}/kernel`, `${own}.qkv_opreact.weight`, `${fused} e h ${size} @${part}`]
      : [`${memory}/${leaf}/kernel`, `${own}.${name}.weight`, `(h ${size}) e -> e h ${size}`];
  const gate = (leaf: string, name: string, part: number) => {
    const tensor = `${own}.${isFused ? "if" : name}gate_preact`;
    return dense(`${memory}/${leaf}`, tensor, `${gates} e -> e h @${part}`, `${gates} -> h @${part}`);
  };
  const up = (leaf: string, name: string, part: number): TensorEntry =>
    isFused
      ? [`${mlp}/${leaf}/kernel`, `${layer}.ffn.proj_up_gate_z.weight`, `m+m e -> e m @${part}`]
      : [`${mlp}/${leaf}/kernel`, `${layer}.ffn.${name}.weight`, "m e -> e m"];
  return [
    ["embed/embedding", "backbone.embeddings.weight", "v e"],
    ["layers/block/memoryNorm/scale", `${layer}.norm_mlstm.weight`, "e"],
    project("query", "q", "q", 0),
    project("key", "k", "q", 1),
    project("value", "v", "d", 2),
    project("outputGate", "ogate_preact", "d", 3),
    ...gate("inputGate", "i", 0),
    ...gate("forgetGate", "f", 1),
    [`${memory}/outNorm`, `${own}.multihead_norm.weight`, "(h d) -> h d"],
    [`${memory}/out/kernel`, `${own}.out_proj.weight`, "e (h d) -> h d e"],
    ["layers/block/mlpNorm/scale", `${layer}.norm_ffn.weight`, "e"],
    up("gate", "proj_up_gate", 0),
    up("up", "proj_up", 1),
    [`${mlp}/down/kernel`, `${layer}.ffn.proj_down.weight`, "e m -> m e"],
    ["norm/scale", "backbone.out_norm.weight", "e"],
    ...tied(model, [["head/kernel", "lm_head.weight", "v e -> e v"]]),
  ];
}

/** Which layers have a window, as a pattern, from `layer_types` or from what it is in its absence. */
function readLayers(config: ConfigJson, numLayers: number, otherwise: (layer: number) => boolean): string {
  const types = config.texts("layer_types");
  const known = ["sliding_attention", "full_attention"];
  const other = types?.find((type) => !known.includes(type));
  if (other !== undefined || (types && types.length !== numLayers)) {
    throw config.error(
      `layer_types must be ${numLayers} times one of ${known.join(" and ")}, got ${other ?? types?.length}`,
    );
  }
  const isLocal = (i: number) => (types ? types[i] === "sliding_attention" : otherwise(i));
  return Array.from({ length: numLayers }, (_, i) => (isLocal(i) ? "L" : "G")).join("");
}

/** A window of the given layers; none if there are none or the window is null. */
function readWindow(config: ConfigJson, layers: string): Partial<DecoderConfig> {
  const window = config.number("sliding_window", 0);
  return window > 0 && layers.includes("L") ? { window, layers } : {};
}

function readQwen(config: ConfigJson, more: Partial<DecoderConfig>): FamilyModel {
  const numLayers = config.numLayers("num_hidden_layers");
  const first = config.number("max_window_layers", numLayers);
  const uses = config.flag("use_sliding_window", false);
  const layers = readLayers(config, numLayers, (i) => uses && i >= first);
  return readLlama(config, { ...readWindow(config, uses ? layers : "G"), ...more });
}

function readMixtral(config: ConfigJson): FamilyModel {
  return {
    ...readLlama(config, readWindow(config, "L")),
    kind: "moe",
    experts: {
      numExperts: config.count("num_local_experts", 8),
      numExpertsPerToken: config.count("num_experts_per_tok", 2),
      balanceLoss: config.number("router_aux_loss_coef", 0.001),
      zLoss: 0,
    },
  };
}

/** Gemma 2 and 3: norms before and after, scales without 1, scaled embeddings. */
function readGemma(config: ConfigJson, period: number, more: Partial<DecoderConfig>): FamilyModel {
  config.only("use_bidirectional_attention", false);
  const { headSize, ...sizes } = { ...readSizes(config), headSize: config.count("head_dim", 256) };
  const layers = readLayers(config, sizes.numLayers, (i) => (i + 1) % period !== 0);
  const decoder: Partial<DecoderConfig> = {
    headSize,
    activation: readActivation(config, "hidden_activation", config.text("hidden_act", "gelu_pytorch_tanh")),
    norm: "rms",
    normOffset: 1,
    normPlacement: "both",
    attentionBias: readBias(config),
    attentionScale: config.number("query_pre_attn_scalar", 256) ** -0.5,
    attentionCap: config.number("attn_logit_softcapping", 0),
    logitCap: config.number("final_logit_softcapping", 0),
    embedScale: Math.sqrt(sizes.width),
    ...readWindow(config, layers),
    ...more,
  };
  const tieEmbeddings = config.flag("tie_word_embeddings", true);
  return { ...sizes, tieEmbeddings, ropeBase: more.ropeLocalBase ? 1e6 : 1e4, decoder };
}

function readGemma3(config: ConfigJson): FamilyModel {
  // Layers with a window have frequencies of their own; transformers 5 nests both under rope_parameters.
  const nested = config.object("rope_parameters");
  const full = nested?.object("full_attention");
  const local = nested?.object("sliding_attention")?.number("rope_theta", 1e4);
  const given = full ? { rope_parameters: full.json } : { rope_theta: 1e6, ...config.json };
  const { ropeBase, ...rope } = readRope(config.with(given));
  const ropeLocalBase = local ?? config.number("rope_local_base_freq", 1e4);
  const gemma = readGemma(config, config.count("sliding_window_pattern", 6), {
    qkNorm: true,
    ropeLocalBase,
    ...rope,
  });
  for (const name of ["rope_theta", "rope_scaling"]) config.raw(name);
  return { ...gemma, ropeBase };
}

function readGemma2(config: ConfigJson): FamilyModel {
  const { ropeBase, ...rope } = readRope(config);
  return { ...readGemma(config, 2, rope), ropeBase };
}

function readPhi(config: ConfigJson): FamilyModel {
  const { headSize, ...sizes } = readSizes(config, "layer_norm_eps");
  config.only("qk_layernorm", false);
  const { ropeBase, ...rope } = readRope(config);
  return {
    ...sizes,
    ropeBase,
    decoder: {
      ...rope,
      // Early configurations leave it out.
      rotaryShare:
        rope.rotaryShare === 1 && config.raw("partial_rotary_factor") === undefined ? 0.5 : rope.rotaryShare,
      headSize,
      norm: "layer",
      normPlacement: "parallel",
      attentionBias: "all",
      mlp: "plain",
      mlpBias: true,
      headBias: true,
      activation: readActivation(config, "hidden_act", "gelu_new"),
    },
  };
}

function readGpt2(config: ConfigJson): FamilyModel {
  const width = config.count("n_embd");
  const numHeads = config.count("n_head");
  config.only("scale_attn_weights", true);
  config.only("scale_attn_by_inverse_layer_idx", false);
  config.only("add_cross_attention", false);
  config.only("quantization_config");
  return {
    kind: "llama",
    vocabSize: config.count("vocab_size"),
    width,
    numLayers: config.numLayers("n_layer"),
    numHeads,
    numKvHeads: numHeads,
    mlpWidth: config.count("n_inner", 4 * width),
    normEpsilon: config.number("layer_norm_epsilon", 1e-5),
    tieEmbeddings: config.flag("tie_word_embeddings", true),
    ropeBase: 10_000,
    decoder: {
      norm: "layer",
      attentionBias: "all",
      mlp: "plain",
      mlpBias: true,
      activation: readActivation(config, "activation_function", "gelu_new"),
      positions: "learned",
      maxLength: config.count("n_positions", 1024),
    },
  };
}

/** How the kernels of other implementations run, which the numbers do not depend on. */
const xlstmSettings = [
  ...["chunkwise_kernel", "sequence_kernel", "step_kernel", "mode", "chunk_size", "return_last_states"],
  ...[
    "autocast_kernel_dtype",
    "inference_state_dtype",
    "max_inference_chunksize",
    "embedding_dim",
    "num_blocks",
  ],
];

function readXlstm(config: ConfigJson): FamilyModel {
  const width = config.count("hidden_size", Number(config.raw("embedding_dim") ?? 0));
  const numHeads = config.count("num_heads", 8);
  const rounding = config.count("ffn_round_up_to_multiple_of", 64);
  config.only("use_bias", false);
  config.only("add_out_norm", true);
  config.only("eps", 1e-6);
  config.only("norm_reduction_force_float32", true);
  for (const name of xlstmSettings) config.raw(name);
  return {
    kind: "xlstm",
    vocabSize: config.count("vocab_size"),
    width,
    numLayers: config.numLayers("num_hidden_layers", Number(config.raw("num_blocks") ?? 0)),
    numHeads,
    numKvHeads: numHeads,
    mlpWidth: Math.ceil((width * config.number("ffn_proj_factor", 2.667)) / rounding) * rounding,
    normEpsilon: config.number("norm_eps", 1e-6),
    tieEmbeddings: config.flag("tie_word_embeddings", false),
    ropeBase: 10_000,
    decoder: {
      headSize: Math.floor(width * config.number("v_dim_factor", 1)) / numHeads,
      keySize: Math.floor(width * config.number("qk_dim_factor", 0.5)) / numHeads,
      gateCap: config.number("gate_soft_cap", 15),
      logitCap: config.number("output_logit_soft_cap", 30),
    },
  };
}

const inverseFrequencies = /rotary_emb\.inv_freq$/;

/** All families by the `model_type` of their configurations. */
export const families: Readonly<Record<string, ModelFamily>> = {
  llama: {
    read: (config) =>
      readLlama(config, {
        attentionBias: readBias(config),
        mlpBias: config.flag("mlp_bias", false),
      }),
    tensors: llamaTensors,
    ignored: inverseFrequencies,
  },
  mistral: {
    read: (config) => readLlama(config, readWindow(config, "L")),
    tensors: llamaTensors,
    ignored: inverseFrequencies,
  },
  mixtral: { read: readMixtral, tensors: mixtralTensors, ignored: inverseFrequencies },
  qwen2: { read: (config) => readQwen(config, { attentionBias: "qkv" }), tensors: llamaTensors },
  qwen3: {
    read: (config) =>
      readQwen(config, {
        qkNorm: true,
        attentionBias: readBias(config),
        headSize: config.count("head_dim", 128),
      }),
    tensors: llamaTensors,
  },
  gemma2: { read: readGemma2, tensors: llamaTensors },
  gemma3_text: { read: readGemma3, tensors: llamaTensors },
  phi: { read: readPhi, tensors: phiTensors, ignored: inverseFrequencies },
  phi3: {
    read: (config) => readLlama(config, readWindow(config, "L")),
    tensors: phi3Tensors,
    ignored: inverseFrequencies,
  },
  gpt2: {
    read: readGpt2,
    tensors: gpt2Tensors,
    ignored: /\.attn\.(masked_)?bias$/,
    prefix: "transformer.",
  },
  xlstm: { read: readXlstm, tensors: xlstmTensors },
};

/** The family of a configuration. */
export function familyOf(config: ConfigJson): ModelFamily {
  const type = config.text("model_type", "");
  const found = Object.hasOwn(families, type) ? families[type] : undefined;
  if (found) return found;
  const near = nearest(type, Object.keys(families));
  throw config.error(
    `model_type is ${JSON.stringify(type)}: ${Object.keys(families).join(", ")} are supported${near ? `; did you mean ${near}?` : ""}`,
  );
}

/** The sizes of the letters of layouts. */
export function sizesOf(model: ModelConfig): Sizes {
  const { keySize, maxLength } = decoderOf(model);
  return {
    v: model.vocabSize,
    e: model.width,
    h: model.numHeads,
    k: model.numKvHeads,
    d: headSizeOf(model),
    m: model.mlpWidth,
    p: maxLength,
    q: keySize,
    x: expertsOf(model).numExperts,
  };
}
