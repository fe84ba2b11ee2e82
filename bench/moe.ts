/**
 * A training step of a mixture of experts, compared with that of a dense MLP of the same operations in products, alone
 * and together with an update of as many parameters as the experts have more: "the same operations" are both.
 *
 * A step of many experts also moves the weights of all of them, which no dense step has to. "Weights ms" is what this
 * takes at the speed of memory that the update alone shows; "floor" is how many times a dense step the two would take
 * if nothing else were added and products never ran while memory is read.
 *
 *     npm run bench -- moe
 */
import {
  devicePut,
  jit,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  Tensor,
  tree,
  valueAndGrad,
  withMesh,
} from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { bestInTurns, type Report, type Row, sum } from "./measure.js";
import { countsOption } from "./options.js";

const [batch, length, width, features, perToken] = [8, 256, 512, 512, 2];

/** A dense gated MLP. */
const Mlp = nn.module("Mlp", ({ inner }: { inner: number }) => (x: Tensor): Tensor => {
  const dense = (name: string, size: number) => nn.Dense({ name, features: size, useBias: false });
  return dense("down", width)(nn.silu(dense("gate", inner)(x)).mul(dense("up", inner)(x)));
});

/**
 * Steps of gradient descent of a layer, one after the other. Each device has a part of the rows and of the experts,
 * whose weights are the parameters with three dims.
 */
async function stepOf(
  mesh: Mesh,
  variables: nn.Variables,
  apply: (v: nn.Variables, x: Tensor) => Tensor,
  x: Tensor,
): Promise<() => Promise<void>> {
  const [split, whole] = [new NamedSharding(mesh, P("expert")), new NamedSharding(mesh, P())];
  const shardings = tree.map((leaf: Tensor) => (leaf.ndim === 3 ? split : whole), variables);
  const loss = (v: nn.Variables, a: Tensor) => np.mean(np.square(apply(v, a)));
  const step = jit(
    (v: nn.Variables, a: Tensor) => {
      const [, grads] = valueAndGrad(loss)(v, a);
      return tree.map((p: Tensor, g: Tensor) => p.sub(g.mul(1e-3)), v, grads);
    },
    { mesh, inShardings: [shardings, split], outShardings: shardings, donate: 0 },
  );
  let state: nn.Variables = await devicePut(variables, shardings);
  const rows = await devicePut(x, split);
  return async () => {
    state = withMesh(mesh, () => step(state, rows));
    await Promise.all(tree.leaves(state).map((leaf) => leaf instanceof Tensor && leaf.ready()));
  };
}

/**
 * How many times a step must read or write each weight of an expert: forward, in the product that gives the cotangents
 * of the hidden rows (`down` alone, since nobody asks for those of the inputs), and in the update, which does both.
 */
const passes = { gate: 3, up: 3, down: 4 };

/** The memory that a step moves for weights, as a multiple of what an update by gradients that are there moves. */
const weightsPerUpdate = sum(Object.values(passes)) / (3 * Object.keys(passes).length);

/** Updates of as many parameters as experts have besides those of the dense MLP, by gradients that are there. */
async function updateOf(mesh: Mesh, numExperts: number): Promise<() => Promise<void>> {
  const split = new NamedSharding(mesh, P("expert"));
  const shape = [numExperts - perToken, 3 * width, features];
  const [zeros, ones] = [np.zeros(shape), np.ones(shape)];
  const update = jit((p: Tensor, g: Tensor) => p.sub(g.mul(1e-3)), {
    mesh,
    inShardings: [split, split],
    outShardings: split,
    donate: 0,
  });
  let parameters = await devicePut(zeros, split);
  const gradients = await devicePut(ones, split);
  return async () => {
    parameters = update(parameters, gradients);
    await parameters.ready();
  };
}

/** Runs the benchmark. */
export async function moe(): Promise<Report> {
  const rows: Row[] = [];
  for (const devices of countsOption("devices", [1, 2])) {
    const engine = createThreadsEngine({ numDevices: devices });
    const mesh = Mesh.create({ expert: devices }, { engine });
    const x = random.normal(random.key(0), [batch, length, width]);
    const dense = Mlp({ inner: perToken * features });
    const steps = [await stepOf(mesh, dense.init(random.key(1), x), (v, a) => dense.apply(v, a), x)];
    const counts = [8, 16, 64];
    for (const numExperts of counts) {
      const layer = nn.MoE({ numExperts, features, numExpertsPerToken: perToken });
      steps.push(await stepOf(mesh, layer.init(random.key(1), x), (v, a) => layer.apply(v, a).output, x));
    }
    for (const numExperts of counts) steps.push(await updateOf(mesh, numExperts));
    const [denseMs = 0, ...times] = await bestInTurns(steps, { seconds: 10 });
    counts.forEach((numExperts, i) => {
      const [ms = 0, updateMs = 0] = [times[i], times[i + counts.length]];
      rows.push({
        ...{ devices, experts: numExperts, "step ms": ms, "dense ms": denseMs, "update ms": updateMs },
        "weights ms": updateMs * weightsPerUpdate,
        "times dense": ms / denseMs,
        floor: 1 + (updateMs * weightsPerUpdate) / denseMs,
        "times the same operations": ms / (denseMs + updateMs),
      });
    });
    await engine.close();
  }
  return { "mixture of experts": rows };
}
