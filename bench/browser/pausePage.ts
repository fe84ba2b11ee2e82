/** Programs of the benchmark of pauses: what compiles them on the page's thread, and what leaves most of that to another. */
import { grad, jit, Mesh, np, P, random, Tensor, tree } from "shardwise";
import * as nn from "shardwise/nn";
import { adamw } from "shardwise/optim";
import { createTraining, readRunConfig } from "shardwise/train";

/** A function, and how it is compiled; with the arguments of a call. */
interface Program {
  readonly call: () => unknown;
  readonly compile: () => Promise<void>;
}

/** Layers one after the other, each dense, norm and gelu, with their gradient. */
function layers(depth: number): Program {
  const mesh = Mesh.create({ data: 2 });
  const x = random.normal(random.key(1), [8, 16]);
  const list = Array.from({ length: depth }, () => [nn.Dense({ features: 16 }), nn.LayerNorm(), nn.gelu]);
  const net = nn.Sequential({ layers: list.flat() });
  const variables = net.init(random.key(0), x);
  const loss = (v: typeof variables, x: Tensor) => np.sum(net.apply(v, x) as Tensor);
  const step = jit(grad(loss), { mesh, inShardings: [P(), P("data")] });
  return { call: () => step(variables, x), compile: () => step.compile(variables, x) };
}

/** A step of a language model of width 256 with four layers. */
function decoder(): Program {
  const { model } = readRunConfig({
    model: { width: 256, numLayers: 4, numHeads: 4, numKvHeads: 4, mlpWidth: 1024 },
  }).config;
  const { init, step } = createTraining({
    model: { ...model, vocabSize: 512 },
    optimizer: adamw({ learningRate: 1e-3 }),
    mesh: Mesh.create({ data: 2, fsdp: 1, pipe: 1, model: 1 }),
  });
  const [state, tokens] = [init(0), np.zeros([4, 65], "int32")];
  return { call: () => step(state, tokens), compile: () => step.compile(state, tokens) };
}

let program: Program | undefined;
let pending: Promise<void> | undefined;

Object.assign(globalThis, {
  make: (depth: number) => {
    program = depth > 0 ? layers(depth) : decoder();
  },
  trace: () => {
    pending = program?.compile();
  },
  load: () => pending,
  /** A call that asks where its results are, which compiles it on the spot. */
  call: () => {
    for (const leaf of tree.leaves(program?.call())) if (leaf instanceof Tensor) leaf.sharding;
  },
});
