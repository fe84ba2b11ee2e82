import { ThreadsEngine } from "../engines/threads/engine.js";
import { sizeOf } from "../ir/shape.js";
import * as np from "../numpy/index.js";
import { jit } from "../spmd/jit.js";
import type { Mesh } from "../spmd/mesh.js";
import { PartitionSpec } from "../spmd/partitionSpec.js";
import { devicePut, NamedSharding } from "../spmd/sharding.js";
import type { Tensor } from "../trace/tensor.js";
import type { RunConfig } from "./runConfig.js";
import type { LanguageModelState } from "./training.js";
import { namedLeaves } from "./treeFiles.js";

/**
 * The floating-point operations that one step needs on all devices: six for each weight and token, and the
 * products of attention; what is computed again or beside them does not count.
 */
export function stepFlops(types: unknown, { model, data }: RunConfig): number {
  const { params } = types as LanguageModelState;
  const weights = namedLeaves(params, "stepFlops")
    .filter(({ path }) => model.tieEmbeddings || !path.endsWith("embed/embedding"))
    .reduce((sum, { type }) => sum + sizeOf(type.shape), 0);
  const inner = model.kind === "llama" ? model.width : model.mlpWidth;
  // Queries with keys and weights with values, 2 each, three times with the backward pass; half is masked.
  const mixing = 6 * model.numLayers * inner * data.sequence;
  return (6 * weights + mixing) * data.batch * data.sequence;
}

const size = 384;
const rounds = 3;

/** The floating-point operations a second that all devices of a mesh reach together in matrix products. */
export async function measurePeak(mesh: Mesh): Promise<number | undefined> {
  if (!(mesh.engine instanceof ThreadsEngine)) return undefined;
  const split = new NamedSharding(mesh, new PartitionSpec([mesh.axisNames]));
  const x = await devicePut(np.ones([mesh.size, size, size]), split);
  const multiply = jit((a: Tensor) => np.matmul(a, a), { mesh, outShardings: split, name: "peak" });
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds; round++) {
    const begin = performance.now();
    const y = await multiply(x).ready();
    best = Math.min(best, performance.now() - begin);
    y.dispose();
  }
  x.dispose();
  return (2 * size ** 3 * mesh.size) / (best / 1000);
}
