/** The decoder language model that the benchmarks train: pre-norm blocks with causal attention and a GELU MLP. */
import { grad, jit, lax, type Mesh, np, P, random, shardMap, type Tensor, tree } from "shardwise";
import * as nn from "shardwise/nn";

/** The types of activations and of the factors of products. */
export const precisions = ["float32", "bfloat16"] as const;

/** The sizes of a decoder. */
export interface DecoderSize {
  readonly name: string;
  readonly width: number;
  readonly layers: number;
  readonly sequence: number;
  readonly batch: number;
  readonly vocabulary: number;
  readonly headSize: number;
  /** Float32 by default; parameters always are. */
  readonly dtype?: (typeof precisions)[number];
}

/** The sizes that are compared with JAX; the smallest is for adapters in software. */
export const sizes: readonly DecoderSize[] = [
  { name: "d32", width: 32, layers: 2, sequence: 32, batch: 2, vocabulary: 64, headSize: 16 },
  { name: "d256", width: 256, layers: 4, sequence: 128, batch: 16, vocabulary: 512, headSize: 64 },
  { name: "d512", width: 512, layers: 4, sequence: 256, batch: 8, vocabulary: 512, headSize: 64 },
  { name: "d1024", width: 1024, layers: 8, sequence: 256, batch: 8, vocabulary: 512, headSize: 64 },
];

interface Layer {
  readonly norm1: Tensor;
  readonly qkv: Tensor;
  readonly out: Tensor;
  readonly norm2: Tensor;
  readonly up: Tensor;
  readonly down: Tensor;
}

/** The parameters of a decoder. */
export interface Decoder {
  readonly embed: Tensor;
  readonly layers: readonly Layer[];
  readonly norm: Tensor;
  readonly head: Tensor;
}

/** Parameters and AdamW's moments. */
export interface TrainState<P = Decoder> {
  readonly params: P;
  readonly mean: P;
  readonly square: P;
  readonly step: Tensor;
}

/** Random parameters. */
export function initDecoder(size: DecoderSize): Decoder {
  const { width, vocabulary } = size;
  let next = 0;
  const weight = (...shape: number[]) =>
    random.normal(random.foldIn(random.key(0), next++), shape).mul(1 / Math.sqrt(shape[0] ?? 1));
  const layer = (): Layer => ({
    norm1: np.ones([width]),
    qkv: weight(width, 3 * width),
    out: weight(width, width),
    norm2: np.ones([width]),
    up: weight(width, 4 * width),
    down: weight(4 * width, width),
  });
  return {
    embed: weight(vocabulary, width),
    layers: Array.from({ length: size.layers }, layer),
    norm: np.ones([width]),
    head: weight(width, vocabulary),
  };
}

/** A state with zero moments. */
export function initState(params: Decoder): TrainState {
  const zeros = tree.map((x: Tensor) => np.zerosLike(x), params);
  return { params, mean: zeros, square: tree.map((x: Tensor) => np.zerosLike(x), params), step: np.array(0) };
}

function rmsNorm(x: Tensor, scale: Tensor): Tensor {
  const wide = x.astype("float32");
  const size = lax.rsqrt(np.mean(wide.mul(wide), -1, { keepdims: true }).add(1e-6));
  return wide.mul(size).mul(scale).astype(x.dtype);
}

/** A product with a weight in the type of the activations. */
const multiply = (x: Tensor, weight: Tensor) => np.matmul(x, weight.astype(x.dtype));

function attention(x: Tensor, layer: Layer, headSize: number): Tensor {
  const [batch = 0, length = 0, width = 0] = x.shape;
  const heads = width / headSize;
  const qkv = multiply(x, layer.qkv).reshape([batch, length, 3, heads, headSize]);
  const part = (i: number) => np.squeeze(lax.sliceInDim(qkv, i, i + 1, 1, 2), 2);
  const { output } = nn.attention(part(0), part(1), part(2), { causal: true });
  const mixed = output.reshape([batch, length, width]);
  return multiply(mixed, layer.out);
}

function gelu(x: Tensor): Tensor {
  const inner = x.add(x.mul(x).mul(x).mul(0.044715)).mul(Math.sqrt(2 / Math.PI));
  return x.mul(np.tanh(inner).add(1)).mul(0.5);
}

/** The mean cross-entropy of the next token. */
export function loss(params: Decoder, tokens: Tensor, size: DecoderSize): Tensor {
  const inputs = lax.sliceInDim(tokens, 0, size.sequence, 1, 1);
  const targets = lax.sliceInDim(tokens, 1, size.sequence + 1, 1, 1);
  let x = np.take(params.embed, inputs, 0, { mode: "clip" }).astype(size.dtype ?? "float32");
  for (const layer of params.layers) {
    x = x.add(attention(rmsNorm(x, layer.norm1), layer, size.headSize));
    x = x.add(multiply(gelu(multiply(rmsNorm(x, layer.norm2), layer.up)), layer.down));
  }
  const logits = multiply(rmsNorm(x, params.norm), params.head).astype("float32");
  const shifted = logits.sub(lax.stopGradient(np.max(logits, -1, { keepdims: true })));
  const logSum = np.log(np.sum(np.exp(shifted), -1));
  const picked = np.squeeze(np.takeAlongAxis(shifted, np.expandDims(targets, -1), -1, { mode: "clip" }), -1);
  return np.mean(logSum.sub(picked));
}

const [beta1, beta2, epsilon, rate, decay] = [0.9, 0.95, 1e-8, 3e-4, 0.1];

/** A step of AdamW, shared by the decoders of all engines. */
export function adamw<P>(state: TrainState<P>, grads: P): TrainState<P> {
  const step = state.step.add(1);
  const mean = tree.map((m: Tensor, g: Tensor) => m.mul(beta1).add(g.mul(1 - beta1)), state.mean, grads);
  const square = tree.map(
    (v: Tensor, g: Tensor) => v.mul(beta2).add(g.mul(g).mul(1 - beta2)),
    state.square,
    grads,
  );
  const correct1 = np.subtract(1, np.power(beta1, step));
  const correct2 = np.subtract(1, np.power(beta2, step));
  const params = tree.map(
    (p: Tensor, m: Tensor, v: Tensor) => {
      const update = m.div(correct1).div(np.sqrt(v.div(correct2)).add(epsilon));
      return p.sub(update.add(p.mul(decay)).mul(rate));
    },
    state.params,
    mean,
    square,
  );
  return { params, mean, square, step };
}

/** One training step; with a mesh the batch is split over its axis `data` and gradients are averaged. */
export function makeStep(size: DecoderSize, mesh?: Mesh): (state: TrainState, tokens: Tensor) => TrainState {
  const step = (state: TrainState, tokens: Tensor): TrainState => {
    const grads = grad((params: Decoder) => loss(params, tokens, size))(state.params);
    return adamw(state, mesh ? lax.pmean(grads, "data") : grads);
  };
  if (!mesh) return jit(step, { donate: 0 });
  // Without the replication check, gradients are those of each device's loss, as in the JAX program, and summed once.
  const split = shardMap(step, { mesh, inSpecs: [P(), P("data")], outSpecs: P(), checkReplication: false });
  return jit(split, { donate: 0 });
}

/** The loss on a batch that is split over the axis `data` of a mesh. */
export function makeLoss(size: DecoderSize, mesh: Mesh): (params: Decoder, tokens: Tensor) => Tensor {
  const lossOf = (params: Decoder, tokens: Tensor) => lax.pmean(loss(params, tokens, size), "data");
  return jit(shardMap(lossOf, { mesh, inSpecs: [P(), P("data")], outSpecs: P() }));
}

/** Random tokens, one more than the model reads. */
export function makeTokens(size: DecoderSize): Tensor {
  return random.randint(random.key(1), [size.batch, size.sequence + 1], 0, size.vocabulary);
}

/** Floating-point operations of a step: six times parameters times tokens, and attention. */
export function stepFlops(size: DecoderSize): number {
  const { width, layers, sequence, batch, vocabulary } = size;
  const parameters = 2 * vocabulary * width + layers * 12 * width * width;
  const tokens = sequence * batch;
  return 6 * parameters * tokens + 12 * layers * width * sequence * tokens;
}
