import type { DType } from "../../ir/dtype.js";
import type { ContextParallelism, ContextPlacement } from "../../nn/functions/contextAttention.js";
import { type DecoderConfig, decoderOf } from "./decoder.js";
import { type ExpertsConfig, expertsOf, numStatistics } from "./experts.js";

/** The sizes and choices of a language model. */
export interface ModelConfig {
  /**
   * `llama`: attention blocks; `moe`: the same with mixtures of experts; `mlstm`: the matrix-memory blocks of xLSTM;
   * `xlstm`: those of xLSTM 7B, with an MLP.
   */
  readonly kind: "llama" | "moe" | "mlstm" | "xlstm";
  readonly vocabSize: number;
  /** The width of the residual stream. */
  readonly width: number;
  readonly numLayers: number;
  readonly numHeads: number;
  /** Key and value heads; each serves `numHeads / numKvHeads` query heads. */
  readonly numKvHeads: number;
  /** The inner width of the MLP (`llama`) or of the block (`mlstm`). */
  readonly mlpWidth: number;
  /** Whether the output layer uses the embedding table. */
  readonly tieEmbeddings: boolean;
  readonly ropeBase: number;
  readonly normEpsilon: number;
  /** The type that activations and matrix products are computed in, independent of the type of parameters. */
  readonly dtype: DType;
  /** The type that factors of products in linear layers of blocks are rounded to; their own by default. */
  readonly products?: "float8";
  /** What each block keeps for the backward pass: everything, only matrix products, or nothing. */
  readonly remat: "none" | "dots" | "selective" | "full";
  /**
   * If set, the model keeps what it has read in the collection `cache`: at most this many tokens of all rows together.
   * Recurrent models, which keep a state of fixed size instead, then read one token at a time.
   */
  readonly cacheLength?: number;
  /**
   * How the devices of mesh axis `context`, which splits sequences, exchange what attention needs; the tokens of a
   * sequence are in the order of the placement. Undefined if sequences are whole.
   */
  readonly context?: { readonly exchange: ContextParallelism; readonly placement: ContextPlacement };
  /** Whether kernels that multiply the same input are one, as `fuseProjections` makes them. */
  readonly isFused?: boolean;
  /** How the decoder differs from Llama's. */
  readonly decoder?: Partial<DecoderConfig>;
  /** The experts of `moe`. */
  readonly experts?: Partial<ExpertsConfig>;
}

/** Whether the blocks of a model keep a state of fixed size; the others attend to the tokens before. */
export function isRecurrent({ kind }: Pick<ModelConfig, "kind">): boolean {
  return kind === "mlstm" || kind === "xlstm";
}

/** What is wrong with a configuration. */
export interface Violation {
  /** The fields with invalid values, such as `model.numHeads`. */
  readonly fields: readonly string[];
  /** What is wrong, and what to do. */
  readonly text: string;
}

/** The fields that are counts. */
const counts = ["vocabSize", "width", "numLayers", "numHeads", "numKvHeads", "mlpWidth"] as const;

type Count = (typeof counts)[number];

/** The parts of a model configuration whose sizes do not fit together, as sentences; none when all do. */
export function modelViolations(config: ModelConfig): Violation[] {
  const violations: Violation[] = [];
  for (const field of counts) {
    const value = config[field];
    if (!Number.isInteger(value) || value < 1)
      violations.push({
        fields: [`model.${field}`],
        text: `model.${field} is ${value}: use an integer of at least 1`,
      });
  }
  if (violations.length > 0) return violations;
  const multiple = (field: Count, factor: number, other: Count, what: string) => {
    const value = config[field];
    const of = factor * config[other];
    if (value % of === 0) return;
    const near = [Math.floor(value / of), Math.ceil(value / of)].filter((n) => n > 0).map((n) => n * of);
    violations.push({
      fields: [`model.${field}`, `model.${other}`],
      text: `model.${field} is ${value}, not a multiple of ${what} ${of}: use ${near.join(" or ")}, or another model.${other}`,
    });
  };
  const { headSize, rotaryShare, positions, layers } = decoderOf(config);
  if (headSize === 0) {
    const inner = config.kind === "mlstm" ? "mlpWidth" : "width";
    multiple(inner, 2, "numHeads", "twice numHeads =");
  } else if (positions === "rotary" && !isRecurrent(config) && (headSize * rotaryShare) % 2 !== 0) {
    violations.push({
      fields: ["model.decoder.headSize", "model.decoder.rotaryShare"],
      text: `model.decoder.headSize is ${headSize}, of which ${headSize * rotaryShare} features are rotated: use an even number`,
    });
  }
  multiple("numHeads", 1, "numKvHeads", "numKvHeads =");
  violations.push(...expertViolations(config));
  if (!/^[LG]+$/.test(layers)) {
    violations.push({
      fields: ["model.decoder.layers"],
      text: `model.decoder.layers is ${JSON.stringify(layers)}: use a pattern of L (local) and G (global), such as LLLLLG`,
    });
  }
  return violations;
}

/** What does not fit together in the experts of a model. */
function expertViolations(config: ModelConfig): Violation[] {
  if (config.kind !== "moe") return [];
  const { numExperts, numExpertsPerToken } = expertsOf(config);
  const violations: Violation[] = [];
  if (numExpertsPerToken > numExperts) {
    violations.push({
      fields: ["model.experts.numExpertsPerToken", "model.experts.numExperts"],
      text: `model.experts.numExpertsPerToken is ${numExpertsPerToken}, more than the ${numExperts} experts: use at most ${numExperts}`,
    });
  }
  const most = config.width - numStatistics(config) + numExperts;
  if (numExperts > most) {
    violations.push({
      fields: ["model.width", "model.experts.numExperts"],
      text: `model.experts.numExperts is ${numExperts}: a stream of width ${config.width} carries the statistics of at most ${most} experts`,
    });
  }
  return violations;
}
