/** Reading the `config.json` of a pretrained model: every field is either understood, known to be harmless, or an error. */
import { describe } from "../../ir/describe.js";
import { ConfigError, type ShardwiseError } from "../../ir/errors.js";
import { isObject, type JsonObject } from "../files/disk/json.js";
import type { DecoderConfig } from "../models/decoder.js";

/** Fields that do not change what a model computes. */
const harmless = new Set(
  `_name_or_path architectures auto_map attn_implementation attention_dropout attn_pdrop bos_token_id cache_implementation
  chunk_size_feed_forward decoder_start_token_id dtype embd_pdrop embedding_dropout eos_token_id hidden_dropout hidden_dropout_prob
  id2label initializer_range is_decoder is_encoder_decoder keys_to_ignore_at_inference label2id mlp_pdrop model_type n_ctx
  output_attentions output_hidden_states output_router_logits pad_token_id pretraining_tp problem_type return_dict
  resid_pdrop router_aux_loss_coef router_jitter_noise summary_activation summary_first_dropout summary_proj_to_labels
  summary_type summary_use_proj task_specific_params tokenizer_class torch_dtype torchscript transformers_version unk_token_id
  use_cache max_window_layers _sliding_window_pattern sliding_window_pattern
  original_max_position_embeddings max_position_embeddings name_or_path tf_legacy_loss use_bfloat16 gradient_checkpointing
  reorder_and_upcast_attn finetuning_task sep_token_id prefix bad_words_ids`.split(/\s+/),
);

/** Models of more layers are not read. */
const maxLayers = 2 ** 16;

/** The fields of a `config.json`, each read with a check of its type. */
export class ConfigJson {
  private readonly used = new Set<string>();

  constructor(
    readonly json: JsonObject,
    readonly file: string,
  ) {}

  /** A number; an error if it is missing and has no default. */
  number(name: string, fallback?: number): number {
    const value = this.raw(name) ?? fallback;
    if (typeof value === "number" && Number.isFinite(value)) return value;
    throw this.error(`${name} must be a number, got ${describe(value)}`);
  }

  /** A positive integer. */
  count(name: string, fallback?: number, most = 2 ** 31 - 1): number {
    const value = this.number(name, fallback);
    if (value > most) throw this.error(`${name} must be at most ${most}, got ${value}`);
    if (Number.isInteger(value) && value > 0) return value;
    throw this.error(`${name} must be a positive integer, got ${value}`);
  }

  /** The number of layers, of which lists are made. */
  numLayers(name: string, fallback?: number): number {
    return this.count(name, fallback, maxLayers);
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.raw(name) ?? fallback;
    if (typeof value === "boolean") return value;
    throw this.error(`${name} must be true or false, got ${describe(value)}`);
  }

  text(name: string, fallback: string): string {
    const value = this.raw(name) ?? fallback;
    if (typeof value === "string") return value;
    throw this.error(`${name} must be a string, got ${describe(value)}`);
  }

  /** A nested object, or undefined. */
  object(name: string): ConfigJson | undefined {
    const value = this.raw(name) ?? undefined;
    if (value === undefined) return undefined;
    if (isObject(value)) return new ConfigJson(value, this.file);
    throw this.error(`${name} must be an object, got ${describe(value)}`);
  }

  /** A list of strings, or undefined. */
  texts(name: string): readonly string[] | undefined {
    const value = this.raw(name) ?? undefined;
    if (value === undefined) return undefined;
    if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value;
    throw this.error(`${name} must be an array of strings, got ${describe(value)}`);
  }

  /** The value of a field, whatever it is. */
  raw(name: string): unknown {
    this.used.add(name);
    return this.json[name];
  }

  /** The same file with other fields. */
  with(json: JsonObject): ConfigJson {
    return new ConfigJson(json, this.file);
  }

  /** Throws unless a field that changes the computation has the only value that is supported. */
  only(name: string, ...values: readonly unknown[]): void {
    const value = this.raw(name) ?? undefined;
    if (value === undefined || values.includes(value)) return;
    throw this.error(
      `${name} is ${JSON.stringify(value)}: only ${values.map((v) => JSON.stringify(v)).join(" or ")} is supported`,
    );
  }

  /** Throws if there are fields that nothing has read and that are not known to be harmless. */
  done(ignored: readonly string[] = []): void {
    const unknown = Object.entries(this.json)
      .filter(([name, value]) => value !== null && !this.used.has(name) && !harmless.has(name))
      .map(([name]) => name)
      .filter((name) => !ignored.includes(name));
    if (unknown.length === 0) return;
    throw this.error(
      `unknown fields, which may change what the model computes: ${unknown.join(", ")}; if they do not, list them in { ignoreFields: ${JSON.stringify(unknown)} } or with --ignoreFields ${unknown.join()}`,
    );
  }

  error(rule: string): ShardwiseError {
    return new ConfigError(`[loadPretrained] ${this.file}: ${rule}`);
  }
}

/** The rotary positions of a configuration, in the form of transformers 4 or of 5. */
export function readRope(
  config: ConfigJson,
): { readonly ropeBase: number } & Pick<
  DecoderConfig,
  "ropeScaling" | "ropeFactor" | "ropeLength" | "ropeLow" | "ropeHigh" | "ropeAttention" | "rotaryShare"
> {
  const own = config.object("rope_parameters");
  const old = config.object("rope_scaling");
  const base = config.number("rope_theta", 10_000);
  const share = config.number("partial_rotary_factor", 1);
  const rope = own ?? old;
  const kind = rope?.text("rope_type", rope.text("type", "default")) ?? "default";
  const shared = {
    ropeBase: own?.number("rope_theta", base) ?? base,
    rotaryShare: own?.number("partial_rotary_factor", share) ?? share,
    ropeScaling: "none" as const,
    ropeFactor: 1,
    ropeLength: 0,
    ropeLow: 1,
    ropeHigh: 4,
    ropeAttention: 1,
  };
  if (!rope || kind === "default") return shared;
  const factor = rope.number("factor");
  const length = () =>
    rope.count("original_max_position_embeddings", config.count("max_position_embeddings", 2048));
  if (kind === "linear") return { ...shared, ropeScaling: "linear", ropeFactor: factor };
  if (kind === "llama3") {
    const [ropeLow, ropeHigh] = [rope.number("low_freq_factor"), rope.number("high_freq_factor")];
    return { ...shared, ropeScaling: "llama3", ropeFactor: factor, ropeLength: length(), ropeLow, ropeHigh };
  }
  if (kind === "yarn") {
    const scale = (m: number) => (factor <= 1 ? 1 : 0.1 * m * Math.log(factor) + 1);
    const [m, all] = [rope.number("mscale", 0), rope.number("mscale_all_dim", 0)];
    const ropeAttention = rope.number(
      "attention_factor",
      m > 0 && all > 0 ? scale(m) / scale(all) : scale(1),
    );
    rope.only("truncate", true);
    const [ropeLow, ropeHigh] = [rope.number("beta_slow", 1), rope.number("beta_fast", 32)];
    return {
      ...shared,
      ropeScaling: "yarn",
      ropeFactor: factor,
      ropeLength: length(),
      ropeLow,
      ropeHigh,
      ropeAttention,
    };
  }
  throw config.error(`rope_type is "${kind}": default, linear, llama3 and yarn are supported`);
}
