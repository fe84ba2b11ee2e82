/** Which tokens of a sequence the devices of mesh axis `context` hold, and in what order. */
import { type ContextParallelism, contextPositions } from "../../nn/contextAttention.js";
import { unzigzag, zigzag } from "../../nn/zigzag.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { decoderOf } from "./decoder.js";

/** A model whose sequences are split over `context`. */
export function splitSequences(config: ModelConfig, exchange: ContextParallelism): ModelConfig {
  return { ...config, context: { exchange, placement: placementFor(config, exchange) } };
}

/**
 * Rings compute on what arrives while later blocks travel, so each device should have the same amount to compute; with a
 * window, consecutive tokens have few devices to hear from instead.
 */
export function placementFor(config: Pick<ModelConfig, "decoder" | "kind">, exchange: ContextParallelism) {
  const isZigzag = exchange === "ring" && config.kind === "llama" && decoderOf(config).window === 0;
  return isZigzag ? "zigzag" : "contiguous";
}

/** Tokens [batch, length] in the order in which devices hold them. */
export function placeTokens({ context }: ModelConfig, tokens: Tensor): Tensor {
  if (context?.placement !== "zigzag") return tokens;
  return zigzag(tokens, currentMesh()?.shape.context ?? 1);
}

/** The inverse of {@link placeTokens}. */
export function restoreTokens({ context }: ModelConfig, tokens: Tensor): Tensor {
  if (context?.placement !== "zigzag") return tokens;
  return unzigzag(tokens, currentMesh()?.shape.context ?? 1);
}

/** The positions of the tokens of a whole sequence in that order, int32 [length]. */
export function sequencePositions({ context }: ModelConfig, length: number): Tensor {
  if (!context) return ops.iota("int32", [length], 0);
  return contextPositions(length, { placement: context.placement });
}
