/**
 * An LSTM that learns to add: every step shows a number and a mark, and the answer is the sum of the two numbers that
 * were marked, however far apart. It ends with an error unless the mean squared error falls below the target.
 *
 *   npm run example -- lstm
 */
import { jit, np, random, type Tensor, valueAndGrad } from "shardwise";
import * as nn from "shardwise/nn";
import { adam, applyUpdates, chain, clipByGlobalNorm, l2Loss } from "shardwise/optim";

const steps = Number(process.env.STEPS ?? 300);
const target = Number(process.env.TARGET ?? 0.01);
const [batch, length] = [64, 12];

/** Sequences of numbers and marks, [batch, time, 2], and the sums of the marked numbers. */
function sequences(key: Tensor): { inputs: Tensor; sums: Tensor } {
  const [first, second, third] = [0, 1, 2].map((i) => random.split(key, 3).get(i)) as [
    Tensor,
    Tensor,
    Tensor,
  ];
  const numbers = random.uniform(first, [batch, length]);
  // One mark in either half.
  const half = length / 2;
  const places = [random.randint(second, [batch], 0, half), random.randint(third, [batch], half, length)];
  const marks = places.map((place) => nn.oneHot(place, length)).reduce((a, b) => a.add(b));
  return { inputs: np.stack([numbers, marks], -1), sums: np.sum(numbers.mul(marks), 1) };
}

const Adder = nn.module("Adder", () => (inputs: Tensor) => {
  const outputs = nn.RNN({ cell: nn.OptimizedLSTMCell({ features: 32 }) })(inputs);
  return nn.Dense({ features: 1 })(outputs.get(":", -1)).reshape([-1]);
});

const model = Adder();
const optimizer = chain(clipByGlobalNorm(1), adam({ learningRate: 1e-2 }));
const { params: start = {} } = model.init(random.key(0), sequences(random.key(1)).inputs);
let state = { params: start, moments: optimizer.init(start) };

const step = jit(
  ({ params, moments }: typeof state, key: Tensor): [typeof state, Tensor] => {
    const { inputs, sums } = sequences(key);
    const loss = (given: typeof params) =>
      np.mean(l2Loss(model.apply({ params: given }, inputs), sums)).mul(2);
    const [value, grads] = valueAndGrad(loss)(params);
    const [moves, next] = optimizer.update(grads, moments, params);
    return [{ params: applyUpdates(params, moves), moments: next }, value];
  },
  { donate: 0 },
);

let recent = 1;
for (let i = 0; i < steps; i++) {
  const [next, loss] = step(state, random.foldIn(random.key(2), i));
  state = next;
  recent = 0.95 * recent + 0.05 * (await loss.item());
  if (i % 50 === 49) console.log(`step ${i + 1}: mean squared error ${recent.toFixed(4)}`);
}
if (!(recent < target)) throw new Error(`mean squared error ${recent} is not below ${target}`);
