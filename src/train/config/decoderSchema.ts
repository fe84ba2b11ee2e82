import { type DecoderConfig, llamaDecoder as llama } from "../models/decoder.js";
import { choice, decimal, type Field, flag, integer, text } from "./configSchema.js";

/** The fields of a run that say how its decoder differs from Llama's; `--init` sets them from a `config.json`. */
export const decoderSchema: { readonly [K in keyof DecoderConfig]: Field<DecoderConfig[K]> } = {
  headSize: integer(llama.headSize, "features of a head; 0 for width / numHeads", 0),
  keySize: integer(llama.keySize, "features of the keys of a head, with xlstm", 0),
  norm: choice(llama.norm, "root mean square, or with a mean and a bias", ["rms", "layer"]),
  normOffset: decimal(llama.normOffset, "added to the scale of norms"),
  normPlacement: choice(llama.normPlacement, "norms before blocks, before and after, or one for both", [
    "pre",
    "both",
    "parallel",
  ]),
  qkNorm: flag(llama.qkNorm, "normalise queries and keys"),
  attentionBias: choice(llama.attentionBias, "projections with a bias", ["none", "qkv", "all"]),
  mlp: choice(llama.mlp, "whether the MLP has a gate", ["gated", "plain"]),
  mlpBias: flag(llama.mlpBias, "biases in the MLP"),
  activation: choice(llama.activation, "activation of the MLP", ["silu", "gelu", "geluTanh", "relu"]),
  headBias: flag(llama.headBias, "a bias in the output layer"),
  attentionScale: decimal(llama.attentionScale, "factor of attention logits; 0 for 1 / sqrt(headSize)"),
  attentionCap: decimal(llama.attentionCap, "soft limit of attention logits; 0 for none"),
  logitCap: decimal(llama.logitCap, "soft limit of logits; 0 for none"),
  gateCap: decimal(llama.gateCap, "soft limit of gates, with xlstm; 0 for none"),
  embedScale: decimal(llama.embedScale, "factor of token embeddings"),
  positions: choice(llama.positions, "how positions are encoded", ["rotary", "learned"]),
  maxLength: integer(llama.maxLength, "number of learned positions", 0),
  rotaryShare: decimal(llama.rotaryShare, "share of the features of a head that are rotated", 0, 1),
  ropeScaling: choice(llama.ropeScaling, "rotary frequencies for long texts", [
    "none",
    "linear",
    "llama3",
    "yarn",
  ]),
  ropeFactor: decimal(llama.ropeFactor, "how much longer texts are"),
  ropeLength: integer(llama.ropeLength, "length before scaling (llama3, yarn)", 0),
  ropeLow: decimal(llama.ropeLow, "low frequency factor (llama3), slow rotations (yarn)"),
  ropeHigh: decimal(llama.ropeHigh, "high frequency factor (llama3), fast rotations (yarn)"),
  ropeAttention: decimal(llama.ropeAttention, "factor of cosines and sines (yarn)"),
  ropeLocalBase: decimal(llama.ropeLocalBase, "base of the frequencies of local layers; 0 for ropeBase"),
  window: integer(llama.window, "positions that local layers see; 0 for all", 0),
  layers: text(llama.layers, "repeated pattern of local (L) and global (G) layers"),
};
