/**
 * Context parallelism: every device has a part of each sequence. The model has to repeat what stood half a sequence
 * before, which other devices hold; keys and values travel around a ring. Tokens are placed in zigzag order, so that
 * every device has the same amount of causal attention to compute.
 *
 *   npm run example -- context
 */
import { costAnalysis, jit, lax, Mesh, np, P, random, shardMap, type Tensor, valueAndGrad } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";

const steps = Number(process.env.STEPS ?? 60);
const target = Number(process.env.TARGET ?? 0.1);
const numDevices = 4;
const [batch, length, vocabulary, width, heads] = [8, 32, 8, 32, 4];

const mesh = Mesh.create({ context: numDevices });

/** Tokens [batch, length of this device] and their positions to logits. */
const Model = nn.module("Model", () => (tokens: Tensor, positions: Tensor) => {
  const place = nn.Embed({ numEmbeddings: length, features: width, name: "positions" })(positions);
  const x = nn.Embed({ numEmbeddings: vocabulary, features: width, name: "tokens" })(tokens).add(place);
  const project = (name: string) => nn.DenseGeneral({ features: [heads, width / heads], name })(x);
  const options = { causal: true, placement: "zigzag" } as const;
  const { output } = nn.contextAttention(project("query"), project("key"), project("value"), options);
  const attended = x.add(nn.DenseGeneral({ features: width, axis: [-2, -1], name: "out" })(output));
  return nn.Dense({ features: vocabulary, name: "head" })(attended);
});
const model = Model({});
const optimizer = optim.adam({ learningRate: 0.01 });

const tokens = random.randint(random.key(0), [batch, length], 0, vocabulary);
const inputs = nn.zigzag(tokens, numDevices);
const targets = nn.zigzag(np.roll(tokens, length / 2, 1), numDevices);

let variables = model.init(random.key(1), tokens, np.arange(length).astype("int32"));
let state = optimizer.init(variables);

const part = P(null, "context");
const gradients = shardMap(
  (params: nn.Variables, own: Tensor, wanted: Tensor) => {
    const positions = nn.contextPositions(length / numDevices, { placement: "zigzag" });
    const isAsked = np.greaterEqual(positions, length / 2);
    const loss = (v: nn.Variables) => {
      const scores = nn.logSoftmax(model.apply(v, own, positions));
      const chosen = np.sum(scores.mul(nn.oneHot(wanted, vocabulary)), -1);
      return lax.psum(np.sum(np.where(isAsked, chosen, 0)), "context").mul(-2 / (batch * length));
    };
    return valueAndGrad(loss)(params);
  },
  { mesh, inSpecs: [P(), part, part], outSpecs: P() },
);
console.log("what a step sends, on every device:");
for (const { op, count, bytes } of costAnalysis(gradients)(variables, inputs, targets).collectives) {
  console.log(`  ${count} ${op}: ${bytes} bytes`);
}
const step = jit(
  (params: nn.Variables, before: typeof state) => {
    const [loss, grads] = gradients(params, inputs, targets);
    const [updates, after] = optimizer.update(grads, before, params);
    return [optim.applyUpdates(params, updates), after, loss] as const;
  },
  { mesh },
);
let loss = Number.POSITIVE_INFINITY;
for (let i = 1; i <= steps; i++) {
  const [next, after, value] = step(variables, state);
  [variables, state] = [next, after];
  if (i % 20 === 0 || i === steps) {
    loss = await value.item();
    console.log(`  step ${String(i).padStart(3)}  loss ${loss.toFixed(4)}`);
  }
}
if (!(loss < target))
  throw new Error(`the loss is ${loss} after ${steps} steps, it should be below ${target}`);
