/**
 * Programs over whole tensors with their shardings on eight devices: what each device sends for them is compared
 * with what it sends when XLA partitions the same program (`bench/jax/communication.py`, under the same names).
 */
import {
  grad,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  type PartitionSpec,
  type Tensor,
  vmap,
  withShardingConstraint,
} from "shardwise";
import * as nn from "shardwise/nn";
import { hostEngine } from "../../src/engines/host.js";
import { type PartitionedCall, partitionCall } from "../../src/spmd/run/call.js";

/** One program, how its arguments and results are split, and the most that a device may send for it. */
export interface CommunicationProgram {
  readonly name: string;
  /** The bytes that a device sends for the same program from XLA, with sums scattered where only shares are kept. */
  readonly most: number;
  readonly mesh: Mesh;
  /** The program as a whole and as each device runs it. */
  readonly perDevice: () => PartitionedCall;
}

/** How the arguments and results of a program are split over a mesh. */
interface Split {
  readonly mesh: Mesh;
  readonly inShardings: unknown;
  readonly outShardings: unknown;
}

function program<A extends readonly unknown[]>(
  name: string,
  most: number,
  fn: (...args: A) => unknown,
  args: A,
  split: Split,
): CommunicationProgram {
  return { name, most, mesh: split.mesh, perDevice: () => partitionCall(fn, args, split) };
}

const on =
  (mesh: Mesh) =>
  (inShardings: unknown, outShardings: unknown): Split => ({ mesh, inShardings, outShardings });

const line = on(Mesh.create({ d: 8 }, { engine: hostEngine }));
const stages = Mesh.create({ stage: 2, fsdp: 4 }, { engine: hostEngine });
const grid = on(stages);
const square = on(Mesh.create({ data: 2, model: 4 }, { engine: hostEngine }));

const f32 = (...shape: number[]) => np.zeros(shape);
const i32 = (...shape: number[]) => np.zeros(shape, "int32");
const d = P("d");
const second = P(null, "d");
const whole = P();

interface Layer {
  readonly norm1: Tensor;
  readonly qkv: Tensor;
  readonly out: Tensor;
  readonly norm2: Tensor;
  readonly up: Tensor;
  readonly down: Tensor;
}

const width = 64;

const layerOf = (...stack: number[]): Layer => ({
  norm1: f32(...stack, width),
  qkv: f32(...stack, width, 3 * width),
  out: f32(...stack, width, width),
  norm2: f32(...stack, width),
  up: f32(...stack, width, 4 * width),
  down: f32(...stack, 4 * width, width),
});

const layerSpecs = (spec: PartitionSpec) => ({
  norm1: spec,
  qkv: spec,
  out: spec,
  norm2: spec,
  up: spec,
  down: spec,
});

const rmsNorm = (x: Tensor, scale: Tensor) =>
  x.mul(lax.rsqrt(np.mean(x.mul(x), -1, { keepdims: true }).add(1e-6))).mul(scale);

function softmax(x: Tensor): Tensor {
  const e = np.exp(x.sub(np.max(x, -1, { keepdims: true })));
  return e.div(np.sum(e, -1, { keepdims: true }));
}

function attention(x: Tensor, qkv: Tensor, out: Tensor): Tensor {
  const [batch = 0, length = 0, size = 0] = x.shape;
  const heads = 4;
  const [q, k, v] = np.split(np.matmul(x, qkv), 3, -1);
  const split = (a: Tensor | undefined) => np.reshape(a ?? x, [batch, length, heads, size / heads]);
  const scores = np.einsum("bqhd,bkhd->bhqk", split(q), split(k));
  const mixed = np.einsum("bhqk,bkhd->bqhd", softmax(scores), split(v));
  return np.matmul(np.reshape(mixed, [batch, length, size]), out);
}

function block(x: Tensor, p: Layer): Tensor {
  const h = x.add(attention(rmsNorm(x, p.norm1), p.qkv, p.out));
  return h.add(np.matmul(np.tanh(np.matmul(rmsNorm(h, p.norm2), p.up)), p.down));
}

const energy = (x: Tensor) => np.mean(np.square(x));

interface Mlp {
  readonly up: Tensor;
  readonly upBias: Tensor;
  readonly down: Tensor;
  readonly downBias: Tensor;
}

const mlpParams: Mlp = { up: f32(64, 256), upBias: f32(256), down: f32(256, 64), downBias: f32(64) };
const mlp = (p: Mlp, x: Tensor) =>
  np.matmul(np.tanh(np.matmul(x, p.up).add(p.upBias)), p.down).add(p.downBias);
const mlpSpecs = (
  up: PartitionSpec,
  upBias: PartitionSpec,
  down: PartitionSpec,
  downBias: PartitionSpec,
) => ({
  up,
  upBias,
  down,
  downBias,
});

const scanned = (p: Layer, x: Tensor) =>
  energy(lax.scan((h: Tensor, layer: Layer) => [block(h, layer), null], x, p)[0]);

const stageSharding = new NamedSharding(stages, P("stage", "fsdp"));

/** A pipeline that shifts microbatches [stages, rows, width] from stage to stage; weights are [stages, …]. */
function pipeline(stage: (w: Tensor, x: Tensor) => Tensor) {
  return (w: Tensor, x: Tensor) => {
    const depth = w.shape[0] ?? 1;
    const first = np.zeros([depth, ...x.shape.slice(1)]);
    const steps = np.concatenate([x, np.zeros([depth - 1, ...x.shape.slice(1)])], 0);
    const [, ys] = lax.scan<Tensor, Tensor, Tensor>(
      (state, input) => {
        const isFirst = np.equal(lax.broadcastedIota("int32", state.shape, 0), 0);
        const inputs = np.where(isFirst, np.expandDims(input, 0), state);
        const outputs = vmap(stage)(w, withShardingConstraint(inputs, stageSharding));
        return [np.roll(outputs, 1, 0), lax.sliceInDim(outputs, depth - 1, depth)];
      },
      first,
      steps,
    );
    return energy(lax.sliceInDim(ys, depth - 1, ys.shape[0] ?? 0));
  };
}

const oneLayer = (w: Tensor, x: Tensor) => np.tanh(np.matmul(x, w));
const threeLayers = (w: Tensor, x: Tensor) =>
  lax.scan((h: Tensor, layer: Tensor) => [oneLayer(layer, h), null], x, w)[0];

/** One dimensional convolution over [batch, space, features] with zeros around. */
function convolve(x: Tensor, kernel: Tensor): Tensor {
  const [taps = 1, , features = 0] = kernel.shape;
  const length = x.shape[1] ?? 0;
  const half = Math.floor(taps / 2);
  const padded = np.pad(x, [
    [0, 0],
    [half, half],
    [0, 0],
  ]);
  return Array.from({ length: taps }, (_, i) =>
    np.matmul(
      lax.sliceInDim(padded, i, i + length, 1, 1),
      np.reshape(lax.sliceInDim(kernel, i, i + 1), [-1, features]),
    ),
  ).reduce((a, b) => a.add(b));
}

const imageFilter = nn.Conv({ features: 8, kernelSize: [3, 3] });
const imageFilterParams = { params: { kernel: f32(3, 3, 8, 8), bias: f32(8) } };
const filtered = (p: typeof imageFilterParams, x: Tensor) => imageFilter.apply(p, x);

const convolution = (features: number, size: readonly number[], stride: number) => {
  const layer = nn.Conv({ features, kernelSize: size, strides: size.map(() => stride), useBias: false });
  return (x: Tensor, kernel: Tensor) => layer.apply({ params: { kernel } }, x);
};
const plain = convolution(8, [3, 3], 1);
const strided = convolution(8, [3, 3], 2);
const wide = convolution(32, [5], 1);
const byInput = (fn: typeof plain) => grad((x: Tensor, kernel: Tensor) => energy(fn(x, kernel)));
const byKernel = (fn: typeof plain) => grad((kernel: Tensor, x: Tensor) => energy(fn(x, kernel)));
const filter = f32(3, 3, 8, 8);
const tiles = P(null, "data", "model");

const crossEntropy = (logits: Tensor, labels: Tensor) => {
  const largest = lax.stopGradient(np.max(logits, -1, { keepdims: true }));
  const shifted = logits.sub(largest);
  const own = np.squeeze(np.takeAlongAxis(shifted, np.expandDims(labels, -1), -1), -1);
  return np.mean(np.log(np.sum(np.exp(shifted), -1)).sub(own));
};

const layerNorm = (x: Tensor, scale: Tensor, bias: Tensor) => {
  const centred = x.sub(np.mean(x, -1, { keepdims: true }));
  return centred
    .mul(lax.rsqrt(np.mean(centred.mul(centred), -1, { keepdims: true }).add(1e-6)))
    .mul(scale)
    .add(bias);
};

const adam = (w: Tensor, g: Tensor, m: Tensor, v: Tensor): [Tensor, Tensor, Tensor] => {
  const mean = m.mul(0.9).add(g.mul(0.1));
  const square = v.mul(0.99).add(g.mul(g).mul(0.01));
  return [w.sub(mean.div(np.sqrt(square).add(1e-8)).mul(0.01)), mean, square];
};

const x128 = f32(128, 64);

/** All programs; names are those of `bench/jax/communication.py`. */
export const communicationPrograms: readonly CommunicationProgram[] = [
  program(
    "product with a row of scales",
    224,
    (x: Tensor, g: Tensor) => x.mul(g),
    [x128, f32(64)],
    line([d, d], d),
  ),
  program(
    "gradient of a product with a row of scales",
    448,
    grad((g: Tensor, x: Tensor) => energy(x.mul(g))),
    [f32(64), x128],
    line([d, d], d),
  ),
  program(
    "MLP with biases, all parameters split",
    231_616,
    grad((p: Mlp, x: Tensor) => energy(mlp(p, x))),
    [mlpParams, f32(8192, 64)],
    line([mlpSpecs(d, d, d, d), d], mlpSpecs(d, d, d, d)),
  ),
  program(
    "MLP with biases, one example a device",
    231_616,
    grad((p: Mlp, x: Tensor) => energy(mlp(p, x))),
    [mlpParams, f32(8, 64)],
    line([mlpSpecs(d, d, d, d), d], mlpSpecs(d, d, d, d)),
  ),
  program(
    "MLP, data parallel",
    231_616,
    grad((p: Mlp, x: Tensor) => energy(mlp(p, x))),
    [mlpParams, f32(512, 64)],
    line([mlpSpecs(whole, whole, whole, whole), d], mlpSpecs(whole, whole, whole, whole)),
  ),
  program(
    "MLP, tensor parallel",
    98_304,
    (p: Mlp, x: Tensor) => mlp(p, x),
    [mlpParams, f32(512, 64)],
    square([mlpSpecs(P(null, "model"), P("model"), P("model"), whole), P("data")], P("data")),
  ),
  program(
    "gradient of an MLP, tensor parallel",
    131_584,
    grad((p: Mlp, x: Tensor) => energy(mlp(p, x))),
    [mlpParams, f32(512, 64)],
    square(
      [mlpSpecs(P(null, "model"), P("model"), P("model"), whole), P("data")],
      mlpSpecs(P(null, "model"), P("model"), P("model"), whole),
    ),
  ),
  program(
    "scan of 4 FSDP layers, norms split",
    2_069_760,
    grad(scanned),
    [layerOf(4), f32(32, 16, width)],
    line([layerSpecs(second), d], layerSpecs(second)),
  ),
  program(
    "decoder layer FSDP, norms split",
    344_960,
    grad((p: Layer, x: Tensor) => energy(block(x, p))),
    [layerOf(), f32(32, 16, width)],
    line([layerSpecs(d), d], layerSpecs(d)),
  ),
  program(
    "pipeline of 2 stages, fsdp 4",
    2_752_512,
    grad(pipeline(oneLayer)),
    [f32(2, 128, 128), f32(8, 256, 128)],
    grid([P("stage", "fsdp"), P(null, "fsdp")], P("stage", "fsdp")),
  ),
  program(
    "pipeline of 2 stages, fsdp 4, small microbatches",
    1_425_408,
    grad(pipeline(oneLayer)),
    [f32(2, 128, 128), f32(8, 64, 128)],
    grid([P("stage", "fsdp"), P(null, "fsdp")], P("stage", "fsdp")),
  ),
  program(
    "pipeline of 2 stages of 3 scanned layers, fsdp 4",
    7_077_888,
    grad(pipeline(threeLayers)),
    [f32(2, 3, 128, 128), f32(8, 256, 128)],
    grid([P("stage", null, "fsdp"), P(null, "fsdp")], P("stage", null, "fsdp")),
  ),
  program(
    "pipeline of 2 stages, fsdp 4, large microbatches",
    4_411_392,
    grad(pipeline(oneLayer)),
    [f32(2, 128, 128), f32(8, 496, 128)],
    grid([P("stage", "fsdp"), P(null, "fsdp")], P("stage", "fsdp")),
  ),
  program(
    "pipeline of 2 stages of 3 scanned layers, fsdp 4, large microbatches",
    11_059_200,
    grad(pipeline(threeLayers)),
    [f32(2, 3, 128, 128), f32(8, 832, 128)],
    grid([P("stage", null, "fsdp"), P(null, "fsdp")], P("stage", null, "fsdp")),
  ),
  program(
    "shift by slice and concatenate",
    256,
    (x: Tensor) => np.concatenate([np.zeros([1, 64]), lax.sliceInDim(x, 0, 127)], 0),
    [x128],
    line([d], d),
  ),
  program(
    "shift of 1024 rows by slice and concatenate",
    1024,
    (x: Tensor) => np.concatenate([np.zeros([1, 256]), lax.sliceInDim(x, 0, 1023)], 0),
    [f32(1024, 256)],
    line([d], d),
  ),
  program("roll", 256, (x: Tensor) => np.roll(x, 1, 0), [x128], line([d], d)),
  program(
    "shift by a row in front",
    256,
    (x: Tensor, row: Tensor) => np.concatenate([row, lax.sliceInDim(x, 0, 127)], 0),
    [x128, f32(1, 64)],
    line([d, whole], d),
  ),
  program(
    "differences of neighbours",
    28_672,
    (x: Tensor) => lax.sliceInDim(x, 1, 128).sub(lax.sliceInDim(x, 0, 127)),
    [x128],
    line([d], whole),
  ),
  program(
    "convolution split in space",
    1024,
    convolve,
    [f32(4, 64, 32), f32(3, 32, 32)],
    line([second, whole], second),
  ),
  program(
    "gradient of a convolution split in space",
    22_528,
    grad((k: Tensor, x: Tensor) => energy(convolve(x, k))),
    [f32(3, 32, 32), f32(4, 64, 32)],
    line([whole, second], whole),
  ),
  program(
    "convolution split over the batch",
    0,
    convolve,
    [f32(16, 64, 32), f32(3, 32, 32)],
    line([d, whole], d),
  ),
  program(
    "convolution of images split in space",
    32_768,
    filtered,
    [imageFilterParams, f32(8, 64, 64, 8)],
    line([whole, second], second),
  ),
  program(
    "convolution of a small image split in space",
    512,
    filtered,
    [imageFilterParams, f32(1, 16, 8, 8)],
    line([whole, second], second),
  ),
  program(
    "gradient of a convolution of a small image split in space",
    4600,
    grad((p: typeof imageFilterParams, x: Tensor) => energy(filtered(p, x))),
    [imageFilterParams, f32(1, 16, 8, 8)],
    line([whole, second], whole),
  ),
  program(
    "convolution of five rows split in space",
    2048,
    wide,
    [f32(4, 64, 32), f32(5, 32, 32)],
    line([second, whole], second),
  ),
  program(
    "gradient of a convolution split in space by its input",
    2048,
    grad((x: Tensor, k: Tensor) => energy(convolve(x, k))),
    [f32(4, 64, 32), f32(3, 32, 32)],
    line([second, whole], second),
  ),
  program(
    "gradient of a convolution of images split in space by its input",
    1024,
    byInput(plain),
    [f32(1, 16, 8, 8), filter],
    line([second, whole], second),
  ),
  program(
    "strided convolution of images split in space",
    256,
    strided,
    [f32(1, 32, 8, 8), filter],
    line([second, whole], second),
  ),
  program(
    "gradient of a strided convolution of images split in space",
    4288,
    byKernel(strided),
    [filter, f32(1, 32, 8, 8)],
    line([whole, second], whole),
  ),
  program(
    "gradient of a strided convolution of images split in space by its input",
    384,
    byInput(strided),
    [f32(1, 32, 8, 8), filter],
    line([second, whole], second),
  ),
  program(
    "convolution of images split in two dims",
    896,
    plain,
    [f32(1, 16, 16, 8), filter],
    square([tiles, whole], tiles),
  ),
  program(
    "gradient of a convolution of images split in two dims",
    4928,
    byKernel(plain),
    [filter, f32(1, 16, 16, 8)],
    square([whole, tiles], whole),
  ),
  program(
    "gradient of a convolution of images split in two dims by its input",
    1792,
    byInput(plain),
    [f32(1, 16, 16, 8), filter],
    square([tiles, whole], tiles),
  ),
  program(
    "strided convolution of images split in two dims",
    416,
    strided,
    [f32(1, 16, 16, 8), filter],
    square([tiles, whole], tiles),
  ),
  program(
    "gradient of a strided convolution of images split in two dims by its input",
    640,
    byInput(strided),
    [f32(1, 16, 16, 8), filter],
    square([tiles, whole], tiles),
  ),
  program("sort along the split dim", 28_672, (x: Tensor) => np.sort(x, 0), [f32(256, 128)], line([d], d)),
  program("sort along another dim", 0, (x: Tensor) => np.sort(x, 1), [f32(256, 128)], line([d], d)),
  program(
    "argmax over a split dim",
    3584,
    (x: Tensor) => np.argmax(x, 1),
    [f32(128, 256)],
    line([second], whole),
  ),
  program(
    "argmin over a split dim",
    3584,
    (x: Tensor) => np.argmin(x, 1),
    [f32(128, 256)],
    line([second], whole),
  ),
  program(
    "write into a cache split along the sequence",
    0,
    (cache: Tensor, x: Tensor, i: Tensor) => lax.dynamicUpdateSlice(cache, x, [0, i, 0]),
    [f32(4, 256, 128), f32(4, 1, 128), i32()],
    line([second, whole, whole], second),
  ),
  program(
    "read a row of a cache split along the sequence",
    3584,
    (cache: Tensor, i: Tensor) => lax.dynamicSlice(cache, [0, i, 0], [4, 1, 128]),
    [f32(4, 256, 128), i32()],
    line([second, whole], whole),
  ),
  program("reverse along the split dim", 16_384, (x: Tensor) => np.flip(x, 0), [f32(256, 128)], line([d], d)),
  program(
    "cumulative sum along the split dim",
    28_672,
    (x: Tensor) => np.cumsum(x, 0),
    [f32(256, 128)],
    line([d], d),
  ),
  program(
    "cumulative sum along another dim",
    0,
    (x: Tensor) => np.cumsum(x, 1),
    [f32(256, 128)],
    line([d], d),
  ),
  program("transpose", 14_336, (x: Tensor) => np.transpose(x), [f32(256, 128)], line([d], d)),
  program(
    "reshape that keeps the split dim",
    0,
    (x: Tensor) => np.reshape(x, [16, 16, 128]),
    [f32(256, 128)],
    line([d], d),
  ),
  program("softmax over the split dim", 1792, softmax, [f32(128, 256)], line([second], second)),
  program(
    "layer norm over the split dim",
    1792,
    layerNorm,
    [f32(128, 256), f32(256), f32(256)],
    line([second, d, d], second),
  ),
  program(
    "layer norm, scales split, batch split",
    1792,
    layerNorm,
    [f32(128, 256), f32(256), f32(256)],
    line([d, d, d], d),
  ),
  program(
    "embedding, vocabulary split",
    14_336,
    (table: Tensor, ids: Tensor) => np.take(table, ids, 0),
    [f32(512, 64), i32(32)],
    line([d, whole], whole),
  ),
  program(
    "embedding, vocabulary split, ids split",
    14_336,
    (table: Tensor, ids: Tensor) => np.take(table, ids, 0),
    [f32(512, 64), i32(32)],
    line([d, d], d),
  ),
  program(
    "gradient of an embedding split by features",
    0,
    grad((table: Tensor, ids: Tensor) => energy(np.take(table, ids, 0))),
    [f32(512, 64), i32(32)],
    line([second, whole], second),
  ),
  program(
    "cross entropy over a split vocabulary",
    1344,
    crossEntropy,
    [f32(64, 512), i32(64)],
    line([second, whole], whole),
  ),
  program(
    "gradient of cross entropy over a split batch",
    0,
    grad(crossEntropy),
    [f32(64, 512), i32(64)],
    line([d, d], d),
  ),
  program(
    "attention, heads split",
    0,
    (q: Tensor, k: Tensor, v: Tensor) =>
      np.einsum("bhqk,bkhd->bqhd", softmax(np.einsum("bqhd,bkhd->bhqk", q, k)), v),
    [f32(2, 16, 8, 8), f32(2, 16, 8, 8), f32(2, 16, 8, 8)],
    line([P(null, null, "d"), P(null, null, "d"), P(null, null, "d")], P(null, null, "d")),
  ),
  program(
    "attention, queries split",
    14_336,
    (q: Tensor, k: Tensor, v: Tensor) =>
      np.einsum("bhqk,bkhd->bqhd", softmax(np.einsum("bqhd,bkhd->bhqk", q, k)), v),
    [f32(2, 16, 8, 8), f32(2, 16, 8, 8), f32(2, 16, 8, 8)],
    line([second, second, second], second),
  ),
  program(
    "scatter of split updates",
    14_336,
    (x: Tensor, ids: Tensor, updates: Tensor) => x.at(ids).add(updates),
    [f32(64, 32), i32(32), f32(32, 32)],
    line([whole, d, d], whole),
  ),
  program(
    "AdamW of split moments and whole gradients",
    0,
    adam,
    [f32(256, 128), f32(256, 128), f32(256, 128), f32(256, 128)],
    line([d, whole, d, d], [d, d, d]),
  ),
  program("mean over a split dim", 448, (x: Tensor) => np.mean(x, 0), [f32(256, 128)], line([d], d)),
  program(
    "outer product of split vectors",
    224,
    (a: Tensor, b: Tensor) => np.outer(a, b),
    [f32(1024), f32(64)],
    line([d, d], d),
  ),
];
