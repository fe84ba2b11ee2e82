/** Small runs for tests. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type RunConfig, readRunConfig } from "../../src/train/config/runConfig.js";
import type { ModelConfig } from "../../src/train/models/config.js";

/** A new folder, which `remove` takes away. */
export function temporaryFolder(): { readonly path: string; readonly remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), "shardwise-test-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** A text with some structure to learn. */
export function writeText(folder: string): string {
  const path = join(folder, "text.txt");
  const words = ["the ", "whale ", "sea ", "ship ", "a ", "of ", "and ", "old "];
  writeFileSync(path, Array.from({ length: 400 }, (_, i) => words[(i * i + (i >> 2)) % 8]).join(""));
  return path;
}

/** A model whose steps take moments. */
export const tinyModel: ModelConfig = {
  kind: "llama",
  vocabSize: 16,
  width: 8,
  numLayers: 2,
  numHeads: 2,
  numKvHeads: 2,
  mlpWidth: 8,
  tieEmbeddings: true,
  ropeBase: 10_000,
  normEpsilon: 1e-6,
  dtype: "float32",
  remat: "none",
};

/** The configuration of a run that takes moments. */
export function tinyConfig(folder: string, changes: Readonly<Record<string, unknown>> = {}): RunConfig {
  const settings = {
    "model.width": 8,
    "model.numLayers": 4,
    "model.numHeads": 2,
    "model.numKvHeads": 2,
    "model.mlpWidth": 8,
    "mesh.data": 1,
    "pipeline.microbatches": 2,
    "data.source": join(folder, "text.txt"),
    "data.sequence": 8,
    "data.batch": 4,
    "optimizer.warmup": 2,
    "optimizer.learningRate": 0.01,
    steps: 6,
    checkpointEvery: 100,
    evalEvery: 100,
    sample: 0,
    out: join(folder, "run"),
    ...changes,
  };
  const list = Object.entries(settings).map(([path, value]) => ({ path, value }));
  const { config, violations } = readRunConfig({}, list);
  if (violations.length > 0) throw new Error(violations.join("\n"));
  return config;
}

/** Takes what progress says and says nothing. */
export const silent = { write: () => true };
