/**
 * A convolutional network with batch norm and pooling, trained data parallel on two devices to tell apart ten shapes
 * that are drawn with noise. It ends with an error unless it names 97 of 100 images that it has not seen.
 *
 *   npm run example -- cnn
 */
import { jit, Mesh, np, P, random, type Tensor, valueAndGrad } from "shardwise";
import * as nn from "shardwise/nn";
import { adam, applyUpdates, softmaxCrossEntropyWithIntegerLabels } from "shardwise/optim";

const steps = Number(process.env.STEPS ?? 120);
const target = Number(process.env.TARGET ?? 0.97);
const [side, batch] = [16, 64];

/** Ten shapes as functions of a place between −1 and 1: bars, a cross, rings, corners, a checkerboard, … */
const shapes: readonly ((x: number, y: number) => boolean)[] = [
  (x) => Math.abs(x) < 0.25,
  (_, y) => Math.abs(y) < 0.25,
  (x, y) => Math.abs(x) < 0.2 || Math.abs(y) < 0.2,
  (x, y) => Math.abs(x - y) < 0.3,
  (x, y) => Math.abs(x + y) < 0.3,
  (x, y) => Math.hypot(x, y) < 0.55,
  (x, y) => Math.abs(Math.hypot(x, y) - 0.6) < 0.18,
  (x, y) => Math.max(Math.abs(x), Math.abs(y)) < 0.5,
  (x, y) => Math.abs(Math.max(Math.abs(x), Math.abs(y)) - 0.6) < 0.18,
  (x, y) => (Math.floor(2 * x) + Math.floor(2 * y)) % 2 === 0,
];

/** So many labelled images: shapes that are moved, scaled and hidden in noise. */
function draw(count: number, seed: number): { images: Tensor; labels: Tensor } {
  let state = seed;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const labels = Int32Array.from({ length: count }, () => Math.floor(uniform() * shapes.length));
  const pixels = new Float32Array(count * side * side);
  labels.forEach((label, i) => {
    const [left, top, scale] = [uniform() * 0.4 - 0.2, uniform() * 0.4 - 0.2, 0.85 + uniform() * 0.3];
    for (let p = 0; p < side * side; p++) {
      const at = (k: number, move: number) => ((2 * (k + 0.5)) / side - 1 - move) / scale;
      const inside = shapes[label]?.(at(p % side, left), at(Math.floor(p / side), top));
      pixels[i * side * side + p] = (inside ? 1 : 0) + (uniform() - 0.5) * 0.8;
    }
  });
  return { images: np.array(pixels).reshape([count, side, side, 1]), labels: np.array(labels) };
}

const Block = nn.module("Block", ({ features }: { features: number }) => (x: Tensor, train: boolean) => {
  const h = nn.Conv({ features, kernelSize: [3, 3], useBias: false })(x);
  const normal = nn.BatchNorm({ momentum: 0.9 })(h, { useRunningAverage: !train });
  return nn.maxPool(nn.relu(normal), [2, 2], { strides: [2, 2] });
});

const Cnn = nn.module("Cnn", () => (images: Tensor, train: boolean) => {
  const h = Block({ features: 16 })(Block({ features: 8 })(images, train), train);
  return nn.Dense({ features: shapes.length })(h.reshape([h.shape[0] ?? 0, -1]));
});

const model = Cnn();
const optimizer = adam({ learningRate: 3e-3 });
const mesh = Mesh.create({ data: 2 });
const start = model.init(random.key(0), np.zeros([1, side, side, 1]), false);
const first = { variables: start, moments: optimizer.init(start.params) };
type State = typeof first;

/** The batch is split over the devices; the partitioner makes batch norm and gradients those of the whole batch. */
const step = jit(
  ({ variables, moments }: State, images: Tensor, labels: Tensor): [State, Tensor] => {
    const loss = (params: nn.VariableTree): [Tensor, nn.Variables] => {
      const apply = model.with({ mutable: ["batch_stats"] }).apply;
      const [logits, updates] = apply({ ...variables, params }, images, true);
      return [np.mean(softmaxCrossEntropyWithIntegerLabels(logits, labels)), updates];
    };
    const { params = {} } = variables;
    const [[value, updates], grads] = valueAndGrad(loss, { hasAux: true })(params);
    const [moves, next] = optimizer.update(grads, moments, params);
    return [{ variables: { ...updates, params: applyUpdates(params, moves) }, moments: next }, value];
  },
  { mesh, inShardings: [P(), P("data"), P("data")], donate: 0 },
);

let state = first;
for (let i = 0; i < steps; i++) {
  const { images, labels } = draw(batch, i + 1);
  const [next, loss] = step(state, images, labels);
  state = next;
  if (i % 20 === 19) console.log(`step ${i + 1}: loss ${(await loss.item()).toFixed(4)}`);
}

const unseen = draw(500, 123_456_789);
const predict = jit((variables: nn.Variables, images: Tensor) =>
  np.argmax(model.apply(variables, images, false), -1),
);
const right = np.mean(np.equal(predict(state.variables, unseen.images), unseen.labels).astype("float32"));
const accuracy = await right.item();
console.log(`${(100 * accuracy).toFixed(1)} % of ${unseen.labels.size} unseen images are named rightly`);
if (accuracy < target) throw new Error(`accuracy ${accuracy} is below ${target}`);
