/** Updates of matrices whose singular values are all near one. */

import { dtypeKind } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, pick, required, schema } from "../../ir/schema.js";
import { matrixTranspose } from "../../numpy/arrays/shaping.js";
import { add, divide, multiply } from "../../numpy/elementwise/arithmetic.js";
import { sqrt, square } from "../../numpy/elementwise/elementwise.js";
import { matmul } from "../../numpy/linalg/contraction.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { directionOf, keeping, meanOfGradients } from "../transformations/moments.js";
import { adamOptions, rate } from "../transformations/options.js";
import { type CountState, scaleByLearningRate } from "../transformations/scaling.js";
import { chain, mapTensors, stateless, type TypedTransformation } from "../transformations/transformation.js";
import { partition } from "../wrappers/labels.js";
import { adamw, decay, decayFrom } from "./optimizers.js";

/** The three coefficients of a step of the Newton–Schulz iteration: a·X + b·(XXᵀ)X + c·(XXᵀ)²X. */
export type NewtonSchulzCoefficients = readonly [number, number, number];

const orthogonalizeOptions = schema({
  /** 3.4445, −4.775, 2.0315 by default, which pull all singular values to about one in five steps. */
  coefficients: optional<NewtonSchulzCoefficients>("numbers", [3.4445, -4.775, 2.0315]),
  /** The number of steps; 5 by default. */
  steps: 5,
  /** Added to the norm that the matrix is divided by first; 1e-8 by default. */
  eps: 1e-8,
});

/** Options of {@link orthogonalize}. */
export interface OrthogonalizeOptions extends OptionsOf<typeof orthogonalizeOptions> {}

/**
 * The matrix with the same singular vectors whose singular values are near one, by Newton–Schulz steps.
 *
 * @example
 * ```ts
 * optim.orthogonalize(np.array([[3, 0], [0, 1]])); // [[0.753, 0], [0, 1.134]]
 * ```
 */
export function orthogonalize(x: Tensor, options?: OrthogonalizeOptions): Tensor {
  needTensor(x, "x", "orthogonalize");
  const { coefficients, steps, eps } = orthogonalizeOptions.read(options, "orthogonalize");
  const [rows, columns] = x.shape;
  if (rows === undefined || columns === undefined || x.ndim !== 2) {
    throw new ShapeError(`[orthogonalize] takes a matrix, got shape [${x.shape.join(", ")}]`);
  }
  if (rows > columns) return matrixTranspose(orthogonalize(matrixTranspose(x), options));
  const [a, b, c] = coefficients;
  let y = divide(x, add(sqrt(sum(square(x))), eps));
  for (let i = 0; i < steps; i++) {
    const gram = matmul(y, matrixTranspose(y));
    const correction = add(multiply(gram, b), matmul(multiply(gram, c), gram));
    y = add(multiply(y, a), matmul(correction, y));
  }
  return y;
}

const scaleByMuonOptions = schema({
  ...orthogonalizeOptions.fields,
  /** The decay of the mean of gradients; 0.95 by default. */
  beta: 0.95,
  /** Whether to look one step ahead; true by default. */
  nesterov: true,
  /** The type in which the mean is kept; that of the parameters by default. */
  muDtype: optional(dtypeKind),
  /** Whether the size of the mean along the orthogonal direction is kept. */
  adaptive: false,
});

/** Options of {@link scaleByMuon}. */
export interface ScaleByMuonOptions extends OptionsOf<typeof scaleByMuonOptions> {}

/** Muon's mean of the gradients. */
export interface MuonState extends CountState {
  readonly mu: unknown;
}

/**
 * The mean of the gradients of matrices, made orthogonal.
 *
 * @example
 * ```ts
 * const step = optim.scaleByMuon();
 * const grads = { w: np.array([[3, 0], [0, 1]]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [[0.753, 0], [0, 1.134]] }
 * ```
 */
export function scaleByMuon(options?: ScaleByMuonOptions): TypedTransformation<MuonState> {
  const { beta, nesterov, muDtype, adaptive, ...newton } = scaleByMuonOptions.read(options, "scaleByMuon");
  return keeping<MuonState>("scaleByMuon", { mu: meanOfGradients(beta, muDtype) }, (count) => (g, { mu }) => {
    const mean = directionOf(g, mu, beta, count, nesterov);
    const direction = orthogonalize(mean, newton);
    return adaptive ? multiply(direction, sum(multiply(mean, direction))) : direction;
  });
}

const muonAdamOptions = schema({
  ...pick(adamOptions.fields, "b1", "b2", "epsRoot"),
  /** That of the matrices by default. */
  learningRate: optional(rate),
  weightDecay: 0,
});

const muonOptions = schema({
  ...scaleByMuonOptions.fields,
  ...decayFrom(0),
  /** The step size: a number, or a schedule of the step's number. */
  learningRate: required(rate),
  /** Gives updates of every matrix this root mean square instead of one for wide matrices. */
  consistentRms: optional("number"),
  /** Constants of AdamW for everything that is not a matrix. */
  adam: optional<OptionsOf<typeof muonAdamOptions>>("object"),
});

/** Options of {@link muon}. */
export interface MuonOptions extends OptionsOf<typeof muonOptions> {}

/**
 * Muon for matrices, AdamW (with Nesterov's look ahead) for all other parameters; no weights decay by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.muon({ learningRate: 0.1 });
 * const params = { w: np.array([[1, 2], [3, 4]]) };
 * const [updates] = optimizer.update({ w: np.array([[3, 0], [0, 1]]) }, optimizer.init(params), params);
 * updates; // { "w": [[-0.0753, 0], [0, -0.1134]] }
 * ```
 */
export function muon(given: MuonOptions) {
  const { learningRate, weightDecay, mask, consistentRms, adam, ...options } = muonOptions.read(
    given,
    "muon",
  );
  const { eps, nesterov, muDtype } = options;
  const { learningRate: adamRate = learningRate, ...moments } = muonAdamOptions.read(adam, "muon");
  const others = adamw({ ...moments, learningRate: adamRate, eps, nesterov, muDtype });
  const matrices = chain(
    scaleByMuon(options),
    stateless((updates) => mapTensors((u) => multiply(u, shapeFactor(u, consistentRms)), updates)),
    decay(weightDecay, mask),
    scaleByLearningRate(learningRate),
  );
  return partition({ muon: matrices, adam: others }, (_, p) => (p.ndim === 2 ? "muon" : "adam"));
}

function shapeFactor(update: Tensor, consistentRms: number | undefined): number {
  const [rows = 1, columns = 1] = update.shape;
  if (consistentRms !== undefined) return Math.sqrt(Math.max(rows, columns)) * consistentRms;
  return Math.sqrt(Math.max(1, columns / rows));
}
