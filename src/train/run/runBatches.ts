import { positionAlong, splitCount } from "../../ir/mesh.js";
import { axesOf } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, type NamedSharding } from "../../spmd/mesh/sharding.js";
import { makeArrayFromProcessLocalData } from "../../spmd/run/processInfo.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import type { RunConfig } from "../config/runConfig.js";
import { type Batch, type Batches, type BatchesOptions, openBatches } from "../data/batches/batches.js";
import type { Json } from "../files/checkpoints/checkpointManifest.js";
import type { TokenInput } from "../step/tokenBatch.js";
import type { Training } from "../step/training.js";
import type { RunRows } from "./runData.js";

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
  readonly tokens: TokenInput;
  readonly position: Json;
}

/** The batches of a run. */
export interface RunBatches extends Pick<Batches, "position" | "rowsPerEpoch"> {
  next(): Promise<RunBatch>;
}

/** Opens the batches of a run: each process reads the rows that its devices need. */
export function openRunBatches(
  { sources, weights }: RunRows,
  { batchSharding }: Pick<Training, "batchSharding">,
  { data }: RunConfig,
  options: Pick<BatchesOptions, "seed" | "shuffle" | "position">,
): RunBatches {
  const part = batchPart(batchSharding);
  const rowsPerExample = sources.some((source) => "groupSize" in source && source.groupSize === 2) ? 2 : 1;
  const sizes = { sequenceLength: data.sequence, batchSize: data.batch * rowsPerExample };
  const batches = openBatches(sources, { ...sizes, ...part, ...options, weights });
  const next = async () => {
    const batch = await batches.next();
    const position = batches.position();
    return { tokens: await placeBatch(batch, batchSharding, part.numRanks), position };
  };
  const rowsPerEpoch = batches.rowsPerEpoch / rowsPerExample;
  return { next, position: () => batches.position(), rowsPerEpoch };
}

/** Puts a batch on the devices of a mesh; its rows are pairs if there is a reference. */
export async function placeBatch(
  batch: Batch,
  sharding: NamedSharding,
  numRanks: number,
): Promise<TokenInput> {
  const { documents, reference, shape } = batch;
  const inPairs = (x: Tensor) =>
    reference ? ops.reshape(x, [(x.shape[0] ?? 0) / 2, 2, ...x.shape.slice(1)]) : x;
  const place = (given: Tensor): Promise<Tensor> => {
    const rows = inPairs(given);
    if (numRanks === 1) return devicePut(rows, sharding);
    const [own = 0, ...rest] = rows.shape;
    return makeArrayFromProcessLocalData(sharding, rows, [own * numRanks, ...rest]);
  };
  const tokens = await place(rowsOf(batch));
  if (!documents) return tokens;
  const ids = (values: Int32Array) => place(Tensor.fromHost({ dtype: "int32", shape }, values));
  return {
    tokens,
    segmentIds: await ids(documents.segmentIds),
    positions: await ids(documents.positions),
    lossMask: await place(Tensor.fromHost({ dtype: "bool", shape }, documents.lossMask)),
    ...(reference && {
      reference: await place(Tensor.fromHost({ dtype: "float32", shape: [shape[0]] }, reference)),
    }),
  };
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
