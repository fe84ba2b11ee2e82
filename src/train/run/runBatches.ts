import { positionAlong, splitCount } from "../../ir/mesh.js";
import { axesOf } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, type NamedSharding } from "../../spmd/mesh/sharding.js";
import { makeArrayFromProcessLocalData } from "../../spmd/run/processes.js";
import { Tensor } from "../../trace/tensor.js";
import type { RunConfig } from "../config/runConfig.js";
import { type Batch, type Batches, type BatchesOptions, openBatches } from "../data/batches.js";
import type { TokenSource } from "../data/tokens.js";
import type { Json } from "../files/checkpointManifest.js";
import type { Training } from "../step/training.js";

/** The part of every batch that a process reads. */
export interface BatchPart {
  readonly rank: number;
  readonly numRanks: number;
}

/**
 * The part of every batch that the devices of this process need. If that is not an equal share of contiguous rows, as
 * with a custom order of devices, it is the whole batch.
 */
export function batchPart({ mesh, spec }: NamedSharding): BatchPart {
  const axes = axesOf(spec.entries[0]);
  const count = splitCount(mesh, axes);
  const held = [
    ...new Set(mesh.addressablePositions.map((position) => positionAlong(mesh, position, axes))),
  ].sort((a, b) => a - b);
  const [first = 0] = held;
  const isShare =
    held.length > 0 &&
    held.every((block, i) => block === first + i) &&
    count % held.length === 0 &&
    first % held.length === 0;
  return isShare ? { rank: first / held.length, numRanks: count / held.length } : { rank: 0, numRanks: 1 };
}

/** A batch on its devices, and the position in the data after it. */
export interface RunBatch {
  readonly tokens: Tensor;
  readonly position: Json;
}

/** The batches of a run. */
export interface RunBatches extends Pick<Batches, "position" | "rowsPerEpoch"> {
  next(): Promise<RunBatch>;
}

/** Opens the batches of a run: each process reads the rows that its devices need. */
export function openRunBatches(
  source: TokenSource,
  { batchSharding }: Pick<Training, "batchSharding">,
  { data }: RunConfig,
  options: Pick<BatchesOptions, "seed" | "shuffle" | "position">,
): RunBatches {
  const part = batchPart(batchSharding);
  const sizes = { sequenceLength: data.sequence, batchSize: data.batch };
  const batches = openBatches(source, { ...sizes, ...part, ...options });
  const next = async () => {
    const batch = await batches.next();
    const position = batches.position();
    return { tokens: await placeBatch(batch, batchSharding, part.numRanks), position };
  };
  return { next, position: () => batches.position(), rowsPerEpoch: batches.rowsPerEpoch };
}

function placeBatch(batch: Batch, sharding: NamedSharding, numRanks: number): Promise<Tensor> {
  const rows = rowsOf(batch);
  if (numRanks === 1) return devicePut(rows, sharding);
  const [own, length] = batch.shape;
  return makeArrayFromProcessLocalData(sharding, rows, [own * numRanks, length + 1]);
}

/** Rows including the token after the last input, [batch, length + 1]. */
function rowsOf({ inputs, targets, shape: [batch, length] }: Batch): Tensor {
  const all = new Int32Array(batch * (length + 1));
  for (let row = 0; row < batch; row++) {
    all.set(inputs.subarray(row * length, (row + 1) * length), row * (length + 1));
    all[row * (length + 1) + length] = targets[(row + 1) * length - 1] ?? 0;
  }
  return Tensor.fromHost({ dtype: "int32", shape: [batch, length + 1] }, all);
}
