/** Which tokens of a sequence the devices of mesh axis `context` hold, and in what order. */
import { type ContextParallelism, contextPositions } from "../../nn/functions/contextAttention.js";
import { zigzag } from "../../nn/functions/zigzag.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { isRecurrent, type ModelConfig } from "./config.js";
import { decoderOf } from "./decoder.js";
import { expertsOf } from "./experts.js";

/** A model whose sequences are split over `context`. */
export function splitSequences(config: ModelConfig, exchange: ContextParallelism): ModelConfig {
  return { ...config, context: { exchange, placement: placementFor(config, exchange) } };
}

/**
 * Rings compute on what arrives while later blocks travel, so each device should have the same amount to compute; if all
 * layers have a window, consecutive tokens have few devices to hear from instead. Experts with a capacity take tokens in
 * their order, and memories are passed on in it.
 */
export function placementFor(
  config: Pick<ModelConfig, "decoder" | "experts" | "kind">,
  exchange: ContextParallelism,
) {
  const { window, layers } = decoderOf(config);
  const isAnyOrder = !isRecurrent(config) && !(config.kind === "moe" && expertsOf(config).capacityFactor > 0);
  const seesAll = window === 0 || layers.includes("G");
  return exchange === "ring" && isAnyOrder && seesAll ? "zigzag" : "contiguous";
}

/** Tokens [batch, length] in the order in which devices hold them. */
export function placeTokens({ context }: ModelConfig, tokens: Tensor): Tensor {
  if (context?.placement !== "zigzag") return tokens;
  return zigzag(tokens, currentMesh()?.shape.context ?? 1);
}

/** The positions of the tokens of a whole sequence in that order, int32 [length]. */
export function sequencePositions({ context }: ModelConfig, length: number): Tensor {
  if (!context) return ops.iota("int32", [length], 0);
  return contextPositions(length, { placement: context.placement });
}
