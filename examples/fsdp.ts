/**
 * Fully sharded data parallelism: every device keeps a part of the parameters and of the optimiser's state,
 * gathers the rest when a layer needs it, and sees its own part of the batch.
 *
 *   npm run example -- fsdp
 */
import { costAnalysis, jit, lax, Mesh, np, P, random, shardMap, type Tensor, valueAndGrad } from "shardwise";
import * as nn from "shardwise/nn";
import { adam } from "shardwise/optim";
import { initSharded, shardModuleParams, syncGradients, TrainState } from "shardwise/parallel";

const steps = Number(process.env.STEPS ?? 60);
const target = Number(process.env.TARGET ?? 0.05);

/** A model that knows nothing of devices. */
const Model = nn.module("Model", () => (x: Tensor) => {
  const h = nn.gelu(nn.Dense({ features: 128 })(x));
  return nn.Dense({ features: 1 })(h);
});

const model = shardModuleParams(Model, "fsdp", { minWeightSize: 64 })();
const x = random.normal(random.key(0), [256, 16]);
const t = np.sin(np.sum(x, 1, { keepdims: true }).mul(0.5));

/** Makes the state and a training step on a mesh of that many devices. */
function prepare(numDevices: number) {
  const mesh = Mesh.create({ fsdp: numDevices });
  const batch = P("fsdp");
  const create = (key: Tensor, input: Tensor) =>
    TrainState.create({
      applyFn: model.apply,
      params: model.init(key, input),
      optimizer: adam({ learningRate: 0.01 }),
      rng: key,
    });
  const state = initSharded(create, { mesh, inSpecs: [P(), batch] })(random.key(1), x);
  const specs = nn.getPartitionSpec(state);
  const step = shardMap(
    (current: typeof state, input: Tensor, truth: Tensor) => {
      const loss = (params: nn.Variables) => np.mean(np.square(current.applyFn(params, input).sub(truth)));
      const [value, grads] = valueAndGrad(loss)(current.params);
      const next = current.applyGradients(syncGradients(grads, "fsdp"));
      return [next, lax.pmean(value, "fsdp")] as const;
    },
    { mesh, inSpecs: [specs, batch, batch], outSpecs: [specs, P()], checkReplication: false },
  );
  return { state, step };
}

console.log("what one training step costs a device:");
for (const numDevices of [1, 2, 4]) {
  const { state, step } = prepare(numDevices);
  const { inputBytes, collectives } = costAnalysis(step)(state, x, t);
  const sent = collectives.map(({ op, count, bytes }) => `${count} ${op} (${bytes} bytes)`);
  console.log(
    `  ${numDevices} devices: state and batch ${inputBytes} bytes; ${sent.join(", ") || "nothing sent"}`,
  );
}

let { state, step } = prepare(4);
console.log("\nthe parameters of four devices:");
const { params = {} } = state.params;
for (const [layer, values] of Object.entries(params)) {
  for (const [name, value] of Object.entries(values as Record<string, unknown>)) {
    console.log(
      `  ${layer}/${name}: ${value instanceof nn.Partitioned ? `${value}` : "whole on every device"}`,
    );
  }
}

const train = jit(step, { donate: 0 });
let loss = Number.POSITIVE_INFINITY;
console.log("\ntraining:");
for (let i = 1; i <= steps; i++) {
  const [next, value] = train(state, x, t);
  state = next;
  if (i % 10 === 0 || i === steps) {
    loss = await value.item();
    console.log(`  step ${String(i).padStart(3)}  loss ${loss.toFixed(4)}`);
  }
}
if (!(loss < target))
  throw new Error(`the loss is ${loss} after ${steps} steps, it should be below ${target}`);
