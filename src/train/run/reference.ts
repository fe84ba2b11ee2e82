/** The log-probabilities that a model gives pairs of answers before it is trained: computed once, and kept. */
import { existsSync } from "#platform/fs";
import { join } from "#platform/path";
import * as tree from "../../trace/tree.js";
import { batchOf } from "../data/batches/batches.js";
import type { ReferencedRows } from "../data/batches/rows.js";
import { FileError } from "../files/disk/fileError.js";
import { readSafetensors, writeSafetensors } from "../files/safetensors/safetensors.js";
import { wholeOf } from "../files/safetensors/treeFiles.js";
import type { LanguageModelState } from "../step/state.js";
import type { BuiltRun } from "./build.js";
import { batchPart, placeBatch } from "./runBatches.js";

/** The file in a run's folder. */
const referenceFile = "reference.safetensors";

/** All pairs of a run, by names. */
function pairsOf({ data }: Pick<BuiltRun, "data">): (readonly [name: string, rows: ReferencedRows])[] {
  return Object.entries({ training: data.training, validation: data.validation }).flatMap(([part, rows]) =>
    (rows?.sources ?? []).flatMap((source, i) =>
      "reference" in source ? [[`${part}.${i}`, source as ReferencedRows] as const] : [],
    ),
  );
}

/** Computes the reference of a run's pairs with the state before the first step, and keeps it in the run's folder. */
export async function computeReference(run: BuiltRun, state: LanguageModelState): Promise<void> {
  const { config, group, life } = run;
  const all = pairsOf(run);
  if (all.length === 0) return;
  await life.phase("computing the reference of all pairs");
  for (const [, rows] of all) await scoreRows(run, state, rows);
  if (group.index > 0) return;
  const prints = all.map(([name, rows]) => [name, rows.fingerprint] as const);
  await writeSafetensors(
    join(config.out, referenceFile),
    all.map(([name, { reference }]) => [
      name,
      { dtype: "float32", shape: [reference.length], data: reference },
    ]),
    prints,
  );
}

async function scoreRows(
  { config, training }: BuiltRun,
  state: LanguageModelState,
  rows: ReferencedRows,
): Promise<void> {
  const { batchSharding } = training;
  const { rank, numRanks } = batchPart(batchSharding);
  const size = 2 * config.data.batch;
  const own = size / numRanks;
  for (let start = 0; start < rows.numRows; start += size) {
    // Every process reads its part; the last batch is filled up with rows of the first.
    const numbers = Array.from({ length: own }, (_, i) => (start + rank * own + i) % rows.numRows);
    const read = await Promise.all(numbers.map((row) => rows.read(row)));
    const shape = [own, rows.sequenceLength] as const;
    const batch = { ...batchOf(read, rows.sequenceLength), shape, epoch: 0 };
    const tokens = await placeBatch(batch, batchSharding, numRanks);
    const scores = training.logProbabilities(state, tokens);
    const values = (await wholeOf(scores, "dpo")) as Float32Array;
    rows.reference.set(values.subarray(0, Math.min(size, rows.numRows - start)), start);
    tree.dispose([tokens, scores]);
  }
}

/** Reads the reference that a run computed before its first step. */
export async function restoreReference(data: BuiltRun["data"], folder: string): Promise<void> {
  const all = pairsOf({ data });
  if (all.length === 0) return;
  const path = join(folder, referenceFile);
  if (!existsSync(path)) {
    throw new FileError(
      "dpo",
      path,
      0,
      "the log-probabilities of the model before training are missing: start a new run",
    );
  }
  const { tensors, metadata } = await readSafetensors(path);
  for (const [name, { fingerprint, reference }] of all) {
    const stored = tensors.get(name)?.data;
    if (
      !(stored instanceof Float32Array) ||
      stored.length !== reference.length ||
      metadata.get(name) !== fingerprint
    ) {
      throw new FileError(
        "dpo",
        path,
        0,
        `the log-probabilities of ${name} belong to other data: start a new run`,
      );
    }
    reference.set(stored);
  }
}
