/** The decoder that GPUs train: Llama blocks with float32 parameters, as `bench/jax/gpuDecoder.py` has it. */
import {
  checkpointName,
  checkpointPolicies,
  jit,
  lax,
  type Mesh,
  np,
  random,
  remat,
  type Tensor,
  tree,
  valueAndGrad,
} from "shardwise";
import { dotProductAttention, float8DotGeneral, silu } from "shardwise/nn";
import { adamw, type TrainState } from "./decoder.js";

/** The sizes and choices of a decoder. */
export interface GpuDecoderSize {
  readonly name: string;
  readonly width: number;
  readonly layers: number;
  readonly sequence: number;
  readonly batch: number;
  readonly vocabulary: number;
  readonly mlpWidth: number;
  readonly headSize: number;
}

/**
 * What the backward pass recomputes: everything; all but attention, its queries and keys, and the first two products of
 * the feed-forward part; all but products and attention; all but these and their factors; or nothing.
 */
export const rematChoices = ["full", "named", "dots", "factors", "none"] as const;

/** One of {@link rematChoices}. */
export type RematChoice = (typeof rematChoices)[number];

/**
 * The types of activations and of the factors of products. With float8 it is the factors of products with weights,
 * besides those of attention and of the output layer; all else is bfloat16.
 */
export const gpuPrecisions = ["bfloat16", "float8", "float16", "float32"] as const;

/** One of {@link gpuPrecisions}. */
export type GpuPrecision = (typeof gpuPrecisions)[number];

/** How a step is computed. */
export interface GpuChoice {
  readonly remat: RematChoice;
  readonly precision: GpuPrecision;
}

/** The decoders that are compared with JAX on a GPU. */
export const gpuSizes: readonly GpuDecoderSize[] = [
  {
    name: "103M",
    width: 1024,
    layers: 8,
    sequence: 512,
    batch: 16,
    vocabulary: 512,
    mlpWidth: 2816,
    headSize: 64,
  },
  {
    name: "350M",
    width: 1024,
    layers: 24,
    sequence: 2048,
    batch: 8,
    vocabulary: 32_000,
    mlpWidth: 2816,
    headSize: 64,
  },
  {
    name: "1.3B",
    width: 2048,
    layers: 24,
    sequence: 2048,
    batch: 8,
    vocabulary: 32_000,
    mlpWidth: 5632,
    headSize: 128,
  },
];

interface Layers {
  readonly norm1: Tensor;
  readonly norm2: Tensor;
  readonly query: Tensor;
  readonly key: Tensor;
  readonly value: Tensor;
  readonly out: Tensor;
  readonly gate: Tensor;
  readonly up: Tensor;
  readonly down: Tensor;
}

/** The parameters, those of all layers stacked along the first dim. */
export interface GpuDecoder {
  readonly embed: Tensor;
  readonly norm: Tensor;
  readonly layers: Layers;
}

/** Parameters and AdamW's moments. */
export type GpuState = TrainState<GpuDecoder>;

function initParams({ width, layers, vocabulary, mlpWidth }: GpuDecoderSize): GpuDecoder {
  let next = 0;
  const weight = (...shape: number[]) =>
    random.normal(random.foldIn(random.key(0), next++), shape).mul(1 / Math.sqrt(shape.at(-2) ?? 1));
  return {
    embed: weight(vocabulary, width),
    norm: np.ones([width]),
    layers: {
      norm1: np.ones([layers, width]),
      norm2: np.ones([layers, width]),
      query: weight(layers, width, width),
      key: weight(layers, width, width),
      value: weight(layers, width, width),
      out: weight(layers, width, width),
      gate: weight(layers, width, mlpWidth),
      up: weight(layers, width, mlpWidth),
      down: weight(layers, mlpWidth, width),
    },
  };
}

/** Makes a state with zero moments, on the devices of a mesh. */
export function makeState(size: GpuDecoderSize, mesh: Mesh): GpuState {
  const init = (): GpuState => {
    const params = initParams(size);
    const zeros = () => tree.map((x: Tensor) => np.zerosLike(x), params);
    return { params, mean: zeros(), square: zeros(), step: np.zeros([]) };
  };
  return jit(init, { mesh, name: "init" })();
}

/** The type of activations. */
export const activationType = (precision: GpuPrecision) => (precision === "float8" ? "bfloat16" : precision);

/** Gives a value the name by which `named` keeps it. */
const kept = (x: Tensor) => checkpointName(x, "kept");

/** Gives a factor of a product or of attention the name by which `factors` keeps it. */
const factor = (x: Tensor) => checkpointName(x, "factor");

const { dotsSaveable, nothingSaveable, saveFromBothPolicies, saveOnlyTheseNames } = checkpointPolicies;
const policies = {
  full: nothingSaveable,
  named: saveOnlyTheseNames("kept"),
  dots: dotsSaveable,
  factors: saveFromBothPolicies(dotsSaveable, saveOnlyTheseNames("factor")),
};

function rmsNorm(x: Tensor, scale: Tensor): Tensor {
  const wide = x.astype("float32");
  const size = lax.rsqrt(np.mean(wide.mul(wide), -1, { keepdims: true }).add(1e-6));
  return wide.mul(size).mul(scale).astype(x.dtype);
}

/** Rotates pairs of features by angles that grow with the position. */
function rotary(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
  const half = (x.shape.at(-1) ?? 0) / 2;
  const wide = x.astype("float32");
  const [a, b] = [lax.sliceInDim(wide, 0, half, 1, -1), lax.sliceInDim(wide, half, 2 * half, 1, -1)];
  return np.concatenate([a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))], -1).astype(x.dtype);
}

/** A product of rows with a weight. */
function product(precision: GpuPrecision, x: Tensor, weight: Tensor): Tensor {
  const w = factor(weight.astype(x.dtype));
  return precision === "float8"
    ? float8DotGeneral(x, w, { lhsContract: [x.ndim - 1], rhsContract: [0] })
    : np.matmul(x, w);
}

function makeBlock(
  size: GpuDecoderSize,
  { remat: kind, precision }: GpuChoice,
): (x: Tensor, layer: Layers) => [Tensor, null] {
  const { batch, sequence, width, headSize } = size;
  const positions = np.expandDims(np.arange(sequence).astype("float32"), 1);
  const frequencies = np.power(
    10_000,
    np
      .arange(headSize / 2)
      .astype("float32")
      .mul(-2 / headSize),
  );
  const angles = np.expandDims(positions.mul(frequencies), 1);
  const [cos, sin] = [np.cos(angles), np.sin(angles)];
  const multiply = (x: Tensor, weight: Tensor) => product(precision, x, weight);
  const block = (x: Tensor, layer: Layers): [Tensor, null] => {
    const normed = factor(rmsNorm(x, layer.norm1));
    const project = (w: Tensor) => multiply(normed, w);
    const heads = (x: Tensor) => x.reshape([batch, sequence, width / headSize, headSize]);
    const query = factor(rotary(heads(kept(project(layer.query))), cos, sin));
    const key = factor(rotary(heads(kept(project(layer.key))), cos, sin));
    const value = heads(project(layer.value));
    const mixed = kept(dotProductAttention(query, key, value, { isCausal: true }));
    const attended = factor(x.add(multiply(mixed.reshape([batch, sequence, width]), layer.out)));
    const inner = factor(rmsNorm(attended, layer.norm2));
    const gated = factor(silu(kept(multiply(inner, layer.gate))).mul(kept(multiply(inner, layer.up))));
    return [attended.add(multiply(gated, layer.down)), null];
  };
  return kind === "none" ? block : remat(block, { policy: policies[kind] });
}

/**
 * The mean cross-entropy; the logits are kept as they are and widened again in the backward pass, which has the largest
 * logit and the sum of powers of each token from the forward pass.
 */
const entropy = remat(
  (logits: Tensor, targets: Tensor): Tensor => {
    const wide = logits.astype("float32");
    const largest = kept(lax.stopGradient(np.max(wide, -1, { keepdims: true })));
    const shifted = wide.sub(largest);
    const isTarget = np.equal(np.expandDims(targets, -1), np.arange(logits.shape.at(-1) ?? 0));
    const picked = np.sum(np.where(isTarget, shifted, 0), -1);
    return np.mean(np.log(kept(np.sum(np.exp(shifted), -1))).sub(picked));
  },
  { policy: policies.named },
);

function loss(params: GpuDecoder, tokens: Tensor, size: GpuDecoderSize, choice: GpuChoice): Tensor {
  const inputs = lax.sliceInDim(tokens, 0, size.sequence, 1, 1);
  const targets = lax.sliceInDim(tokens, 1, size.sequence + 1, 1, 1);
  const table = params.embed.astype(activationType(choice.precision));
  const embedded = np.take(table, inputs, 0, { mode: "clip" });
  const [stream] = lax.scan(makeBlock(size, choice), embedded, params.layers);
  const logits = np.matmul(rmsNorm(stream, params.norm), np.transpose(table));
  return entropy(logits, targets);
}

/** One training step, which gives its loss too; the state is overwritten. */
export function makeGpuStep(
  size: GpuDecoderSize,
  choice: GpuChoice,
  mesh: Mesh,
): (state: GpuState, tokens: Tensor) => [GpuState, Tensor] {
  const step = (state: GpuState, tokens: Tensor): [GpuState, Tensor] => {
    const [value, grads] = valueAndGrad((params: GpuDecoder) => loss(params, tokens, size, choice))(
      state.params,
    );
    return [adamw(state, grads), value];
  };
  return jit(step, { mesh, donate: 0, name: "step" });
}

/** Random tokens, one more than the model reads. */
export function gpuTokens(size: GpuDecoderSize): Tensor {
  return random.randint(random.key(1), [size.batch, size.sequence + 1], 0, size.vocabulary);
}

/** The number of parameters. */
export function numParameters({ width, layers, vocabulary, mlpWidth }: GpuDecoderSize): number {
  return vocabulary * width + width + layers * (2 * width + 4 * width * width + 3 * width * mlpWidth);
}

/** Floating-point operations of a step: six times parameters times tokens, and attention, of which half is masked. */
export function gpuStepFlops(size: GpuDecoderSize): number {
  const { layers, width, sequence, batch } = size;
  return 6 * numParameters(size) * batch * sequence + 6 * layers * width * sequence * sequence * batch;
}
