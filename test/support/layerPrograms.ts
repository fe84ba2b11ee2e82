/**
 * Training steps of the layers of `shardwise/parallel` on eight devices, under the names of `bench/jax/layers.py`. Most
 * call their collectives themselves, so that XLA can only add to them: the bound is what they send now, and stays. The
 * same step of fully sharded parameters over whole tensors stands beside the one whose layers gather their weights.
 */
import { grad, lax, Mesh, np, P, type PartitionSpec, random, shardMap, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import {
  CircularPipeline,
  initSharded,
  ModelParallelismWrapper,
  PipelineModule,
  shardModuleParams,
  syncGradients,
  TPAsyncDense,
  TPDense,
} from "shardwise/parallel";
import { hostEngine } from "../../src/engines/host.js";
import { partitionCall } from "../../src/spmd/run/call.js";
import type { CommunicationProgram } from "./communicationPrograms.js";

const devices = 8;
const [width, hidden] = [16, 64];
const energy = (x: Tensor) => np.mean(np.square(x));

interface Model {
  readonly init: (key: Tensor, x: Tensor) => nn.Variables;
  readonly apply: (variables: nn.Variables, x: Tensor) => Tensor;
}

/** The step that gives the gradients of a module's parameters in a shard map over one axis. */
function inShardMap(
  name: string,
  most: number,
  axis: string,
  split: PartitionSpec,
  model: Model,
  loss: (y: Tensor) => Tensor = energy,
): CommunicationProgram {
  const mesh = Mesh.create({ [axis]: devices }, { engine: hostEngine });
  const perDevice = () => {
    const x = np.zeros([32, width]);
    const variables = initSharded(model.init, { mesh, inSpecs: [P(), split] })(random.key(0), x);
    const specs = nn.getPartitionSpec(variables);
    const step = shardMap(
      (params: nn.Variables, part: Tensor) =>
        syncGradients(grad((v: nn.Variables) => loss(model.apply(v, part)))(params), axis),
      { mesh, inSpecs: [specs, split], outSpecs: specs, checkReplication: false },
    );
    return partitionCall(step, [variables, x], { mesh });
  };
  return { name, most, mesh, perDevice };
}

/**
 * A block of two layers that gathers features and scatters them again.
 *
 * @param features those of the layer that scatters: all of them, or in a ring a device's share
 */
const block = (Layer: typeof TPDense | typeof TPAsyncDense, features: number) =>
  nn.module("Block", () => (x: Tensor) => {
    const up = Layer({
      denseFn: (config) => nn.Dense({ features: hidden / devices, ...config }),
      modelAxisName: "model",
      tpMode: "gather",
      name: "up",
    });
    const down = Layer({
      denseFn: (config) => nn.Dense({ features, ...config }),
      modelAxisName: "model",
      tpMode: "scatter",
      name: "down",
    });
    return x.add(down(nn.gelu(up(x))));
  })();

const Stage = nn.module("Stage", () => (x: Tensor) => {
  const h = nn.silu(nn.Dense({ features: hidden })(nn.RMSNorm()(x)));
  return x.add(nn.Dense({ features: width })(h));
});

const Mlp = nn.module("Mlp", () => (x: Tensor) => {
  const h = nn.gelu(nn.Dense({ features: hidden })(x));
  return nn.Dense({ features: width })(h);
});

interface DenseParams {
  readonly kernel: Tensor;
  readonly bias: Tensor;
}

/** The step of fully sharded parameters written over whole tensors: what to gather is left to the partitioner. */
function fsdpOfWholeTensors(most: number): CommunicationProgram {
  const mesh = Mesh.create({ fsdp: devices }, { engine: hostEngine });
  const params = {
    up: { kernel: np.zeros([width, hidden]), bias: np.zeros([hidden]) },
    down: { kernel: np.zeros([hidden, width]), bias: np.zeros([width]) },
  };
  const specs = {
    up: { kernel: P(null, "fsdp"), bias: P() },
    down: { kernel: P("fsdp"), bias: P() },
  };
  const dense = (p: DenseParams, x: Tensor) => np.matmul(x, p.kernel).add(p.bias);
  const step = grad((p: typeof params, x: Tensor) => energy(dense(p.down, nn.gelu(dense(p.up, x)))));
  const split = { mesh, inShardings: [specs, P("fsdp")], outShardings: specs };
  const perDevice = () => partitionCall(step, [params, np.zeros([32, width])], split);
  return { name: "FSDP of an MLP, whole tensors", most, mesh, perDevice };
}

const onLastStage = (y: Tensor) =>
  lax.psum(np.where(lax.axisIndex("pipe").eq(devices - 1), energy(y), 0), "pipe");

function circularPipeline(most: number): CommunicationProgram {
  const mesh = Mesh.create({ data: 2, stage: 4 }, { engine: hostEngine });
  const perDevice = () => {
    const pipeline = CircularPipeline({
      layers: Stage(),
      mesh,
      numPipelineMicrobatches: 8,
      numPipelineRepeats: 2,
    });
    const x = np.zeros([16, 4, width]);
    const variables = pipeline.init(random.key(0), x);
    const step = grad((v: nn.Variables, a: Tensor) => energy(pipeline.apply(v, a)));
    return partitionCall(step, [variables, x], { mesh });
  };
  return { name: "CircularPipeline, 4 stages twice, data 2", most, mesh, perDevice };
}

/** All steps. */
export const layerPrograms: readonly CommunicationProgram[] = [
  inShardMap("TPDense, gather and scatter", 5376, "model", P(null, "model"), block(TPDense, width)),
  inShardMap(
    "TPAsyncDense, gather and scatter",
    5376,
    "model",
    P(null, "model"),
    block(TPAsyncDense, width / devices),
  ),
  inShardMap(
    "FSDP of an MLP",
    14_896,
    "fsdp",
    P("fsdp"),
    shardModuleParams(Mlp, "fsdp", { minWeightSize: 100 })(),
  ),
  fsdpOfWholeTensors(5600),
  inShardMap(
    "GPipe of 8 stages",
    7687,
    "pipe",
    P(),
    PipelineModule({
      modelAxisName: "pipe",
      numMicrobatches: 8,
      moduleFn: () => ModelParallelismWrapper({ modelAxisName: "pipe", moduleFn: (config) => Stage(config) }),
    }),
    onLastStage,
  ),
  circularPipeline(47_616),
];
