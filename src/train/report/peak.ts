import { OutOfMemoryError } from "../../engines/errors.js";
import { sizeOf } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding } from "../../spmd/mesh/sharding.js";
import { jit } from "../../spmd/run/jit.js";
import type { Tensor } from "../../trace/tensor.js";
import type { RunConfig } from "../config/runConfig.js";
import { namedLeaves } from "../files/safetensors/treeFiles.js";
import type { Training } from "../step/training.js";
import { recordWork } from "./stepTrace.js";

/**
 * The floating-point operations that one step needs on all devices: six for each weight and token, and the products of
 * attention; recomputed and other operations do not count.
 */
export function stepFlops({ params }: Pick<Training["types"], "params">, { model, data }: RunConfig): number {
  const weights = namedLeaves(params, "stepFlops")
    .filter(({ path }) => model.tieEmbeddings || !path.endsWith("embed/embedding"))
    .reduce((sum, { path, type }) => sum + sizeOf(type.shape) * shareUsed(model, path), 0);
  const inner = model.kind === "llama" || model.kind === "moe" ? model.width : model.mlpWidth;
  // Queries with keys and weights with values, 2 each, three times with the backward pass; half is masked.
  const mixing = 6 * model.numLayers * inner * data.sequence;
  return (6 * weights + mixing) * data.batch * data.sequence;
}

/** The share of a weight that a token is multiplied with: only that of its experts. */
function shareUsed({ kind, experts }: RunConfig["model"], path: string): number {
  const isOfExperts = kind === "moe" && /\/mlp\/(gate|up|down)$/.test(path);
  return isOfExperts ? experts.numExpertsPerToken / experts.numExperts : 1;
}

/**
 * The side of the multiplied square matrices: large enough for the full speed of a core, and small enough that some
 * products are not interrupted on a busy machine.
 */
const size = 384;
/** The time budget in milliseconds, and the minimum and maximum number of rounds. */
const [budget, minRounds, maxRounds] = [150, 5, 100];

/**
 * The floating-point operations per second that the devices of a mesh reach together in matrix products; those of this
 * process if several share the mesh, and undefined if the engine does not record them. All devices multiply their own
 * matrices at the same time, and the fastest recorded product of each counts, because other processes only make
 * products slower. At most as many devices as cores take part, because more would share the cores.
 */
export async function measurePeak(mesh: Mesh): Promise<number | undefined> {
  try {
    return await measureProducts(mesh);
  } catch (error) {
    // If the run leaves no memory for the measurement, the run continues without it.
    if (error instanceof OutOfMemoryError) return undefined;
    throw error;
  }
}

async function measureProducts({ engine, deviceIds }: Mesh): Promise<number | undefined> {
  // Events of whole runs say nothing about products, so compiling one would only delay the first step.
  if (!engine.tracer || engine.tracer.wholeRuns) return undefined;
  const here = deviceIds.filter((device) => engine.isAddressable(device));
  const devices = here.slice(0, engine.info?.().numCores);
  const mesh = Mesh.create({ device: devices.length }, { engine, devices });
  const split = new NamedSharding(mesh, new PartitionSpec(["device"]));
  const x = await devicePut(np.ones([devices.length, size, size]), split);
  const multiply = jit((a: Tensor) => np.matmul(a, a), { mesh, outShardings: split, name: "peak" });
  const run = async (count: number) => {
    let last: Tensor | undefined;
    for (let i = 0; i < count; i++) {
      last?.dispose();
      last = multiply(x);
    }
    await last?.ready();
    last?.dispose();
  };
  // The first product includes compilation; the second is at full speed and determines the number of rounds.
  await run(1);
  const begin = performance.now();
  await run(1);
  const rounds = Math.ceil(budget / (performance.now() - begin));
  const { work } = await recordWork(engine, () => run(Math.min(maxRounds, Math.max(minRounds, rounds))));
  x.dispose();
  const best = new Map<number, number>();
  for (const { device, kind, begin: from, end } of work) {
    if (kind === "gemm") best.set(device, Math.min(best.get(device) ?? Number.POSITIVE_INFINITY, end - from));
  }
  if (best.size === 0) return undefined;
  return [...best.values()].reduce((sum, time) => sum + (2 * size ** 3) / (time / 1000), 0);
}
