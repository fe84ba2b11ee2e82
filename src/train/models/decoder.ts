/** The choices in which the decoders of different families differ, each with Llama's as its default. */

/** How a decoder differs from Llama. A size, scale or cap of 0 means the default, or none. */
export interface DecoderConfig {
  /** Features of a head; the width divided by the heads by default. With `xlstm`, those of its values. */
  readonly headSize: number;
  /** Features of the keys of a head, with `xlstm`. */
  readonly keySize: number;
  /** `rms` divides by the root of the mean square; `layer` also subtracts the mean and adds a bias. */
  readonly norm: "rms" | "layer";
  /** Added to the scale of every norm: Gemma stores the difference from 1. */
  readonly normOffset: number;
  /** Norms before attention and MLP, both before and after, or one before the two, which then run in parallel. */
  readonly normPlacement: "pre" | "both" | "parallel";
  /** Whether the queries and keys of each head are normalised. */
  readonly qkNorm: boolean;
  /** The projections of attention that have a bias: none, query, key and value, or all four. */
  readonly attentionBias: "none" | "qkv" | "all";
  /** `gated`: `down(act(gate(x)) · up(x))`; `plain`: `down(act(up(x)))`. */
  readonly mlp: "gated" | "plain";
  readonly mlpBias: boolean;
  /** The activation of the MLP; `gelu` is exact, `geluTanh` its approximation. */
  readonly activation: "silu" | "gelu" | "geluTanh" | "relu";
  /** Whether the output layer has a bias. */
  readonly headBias: boolean;
  /** The factor of the attention logits; 1 / √headSize by default. */
  readonly attentionScale: number;
  /** Limits attention logits smoothly: `cap · tanh(x / cap)`. */
  readonly attentionCap: number;
  /** The same for the logits of the model, and for the gates of `xlstm`. */
  readonly logitCap: number;
  readonly gateCap: number;
  /** The factor of token embeddings. */
  readonly embedScale: number;
  /** How positions are encoded: by rotating queries and keys, or by a table of `maxLength` vectors. */
  readonly positions: "rotary" | "learned";
  readonly maxLength: number;
  /** The share of a head's features that are rotated. */
  readonly rotaryShare: number;
  /** How rotary frequencies are changed for long texts. */
  readonly ropeScaling: "none" | "linear" | "llama3" | "yarn";
  readonly ropeFactor: number;
  /** The length that the model was first trained with (`llama3`, `yarn`). */
  readonly ropeLength: number;
  /** `llama3`: low and high frequency factor; `yarn`: slow and fast number of rotations. */
  readonly ropeLow: number;
  readonly ropeHigh: number;
  /** The factor of cosines and sines (`yarn`). */
  readonly ropeAttention: number;
  /** The base of the rotary frequencies of layers with a window; that of the others by default. */
  readonly ropeLocalBase: number;
  /** The number of positions that layers with a window see, the current one included. */
  readonly window: number;
  /** Which layers have a window: a repeated pattern of `L` (local, with the window) and `G` (global). */
  readonly layers: string;
}

/** The decoder of Llama. */
export const llamaDecoder: DecoderConfig = {
  headSize: 0,
  keySize: 0,
  norm: "rms",
  normOffset: 0,
  normPlacement: "pre",
  qkNorm: false,
  attentionBias: "none",
  mlp: "gated",
  mlpBias: false,
  activation: "silu",
  headBias: false,
  attentionScale: 0,
  attentionCap: 0,
  logitCap: 0,
  gateCap: 0,
  embedScale: 1,
  positions: "rotary",
  maxLength: 0,
  rotaryShare: 1,
  ropeScaling: "none",
  ropeFactor: 1,
  ropeLength: 0,
  ropeLow: 1,
  ropeHigh: 4,
  ropeAttention: 1,
  ropeLocalBase: 0,
  window: 0,
  layers: "G",
};

/** The choices of a model: what it says, and Llama's for the rest. */
export function decoderOf(config: { readonly decoder?: Partial<DecoderConfig> }): DecoderConfig {
  return { ...llamaDecoder, ...config.decoder };
}

/** Whether each layer has a window. */
export function localLayers({ window, layers }: DecoderConfig, numLayers: number): boolean[] {
  return Array.from({ length: numLayers }, (_, i) => window > 0 && layers[i % layers.length] === "L");
}

/** Whether some layers have a window and others do not, so that a layer needs to know which it is. */
export function isMixed({ window, layers }: DecoderConfig): boolean {
  return window > 0 && layers.includes("L") && layers.includes("G");
}
