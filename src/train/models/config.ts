import type { DType } from "../../ir/dtype.js";

/** The sizes and choices of a language model. */
export interface ModelConfig {
  /** `llama`: attention blocks; `mlstm`: the matrix-memory blocks of xLSTM. */
  readonly kind: "llama" | "mlstm";
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
  /** The type that activations and matrix products are computed in, whatever type parameters have. */
  readonly dtype: DType;
  /** What each block keeps for the backward pass: everything, only matrix products, or nothing. */
  readonly remat: "none" | "dots" | "full";
  /**
   * With it the model reads one token at a time, [batch, 1], and remembers those before it, at most this many, in
   * the collection `cache`.
   */
  readonly cacheLength?: number;
}

/** The parts of a model configuration whose sizes do not fit together, as sentences; none when all do. */
export function modelViolations(config: ModelConfig): string[] {
  const violations: string[] = [];
  const positive = ["vocabSize", "width", "numLayers", "numHeads", "numKvHeads", "mlpWidth"] as const;
  for (const field of positive) {
    const value = config[field];
    if (!Number.isInteger(value) || value < 1)
      violations.push(`model.${field} is ${value}: use a whole number of at least 1`);
  }
  if (violations.length > 0) return violations;
  const multiple = (field: string, value: number, of: number, what: string) => {
    if (value % of === 0) return;
    const below = Math.max(of, Math.floor(value / of) * of);
    violations.push(
      `model.${field} is ${value}, not a multiple of ${what} ${of}: use ${below} or ${Math.ceil(value / of) * of}`,
    );
  };
  const inner = config.kind === "llama" ? "width" : "mlpWidth";
  multiple(inner, config[inner], 2 * config.numHeads, "twice numHeads =");
  multiple("numHeads", config.numHeads, config.numKvHeads, "numKvHeads =");
  return violations;
}
