/** Training runs: data, tokenisers, checkpoints, metrics and reports. */

export { bundledText, type TextName } from "./data/sources/corpus.js";
export { readTokenizer } from "./data/tokenizers/tokenizerFile.js";
export { openTokenShards, type TokenShards, writeTokenShard } from "./data/tokens/tokenShards.js";
export * from "./files/checkpoints/checkpoint.js";
export type {
  Json,
  Manifest,
  ManifestFile,
  ManifestLeaf,
  StoredTree,
} from "./files/checkpoints/checkpointManifest.js";
export type { CheckpointExtras } from "./files/checkpoints/checkpointSnapshot.js";
export type { ProcessGroup } from "./files/checkpoints/processGroup.js";
export type { FileSystem, WritableFile } from "./files/disk/files.js";
export {
  type ExchangeOptions,
  exportSafetensors,
  type ImportOptions,
  importSafetensors,
} from "./files/safetensors/exchange.js";
export { readSafetensors, readSafetensorsHeader, writeSafetensors } from "./files/safetensors/safetensors.js";
export type { RestoreOptions } from "./files/safetensors/treeFiles.js";
export * from "./index.browser.js";
export { type CalibrateOptions, calibrate } from "./plan/calibrate.js";
export {
  type Calibration,
  type CollectiveSample,
  type CopySample,
  calibratedPrices,
  calibrationFile,
  type DeviceCalibration,
  type KernelSample,
  type ProbeSample,
  type ProductSample,
  readCalibration,
  writeCalibration,
} from "./plan/calibration.js";
export type { SearchSpace } from "./plan/candidates.js";
export type { DeviceSpeed } from "./plan/deviceSpeed.js";
export { type LinkSpeed, type Links, machinePrices } from "./plan/machine.js";
export {
  type PlannedStep,
  type PlanOptions,
  planTraining,
  priceConfig,
  type TrainingPlan,
} from "./plan/plan.js";
export { formatPlan } from "./plan/planText.js";
export type { Prices } from "./plan/prices.js";
export type { TimeParts } from "./plan/stepCost.js";
export { loadAdapters, type PretrainedAdapters, saveAdapters } from "./pretrained/adapters.js";
export { type LoadPretrainedOptions, loadPretrained, type Pretrained } from "./pretrained/loadPretrained.js";
export { type SavedModel, type SavePretrainedOptions, savePretrained } from "./pretrained/savePretrained.js";
export {
  type MetricsFileOptions,
  type MetricsWriter,
  openMetricsFile,
  writeToAll,
} from "./report/metrics.js";
export {
  type Progress,
  type ProgressOptions,
  type ProgressStream,
  type ProgressUpdate,
  startProgress,
} from "./report/progress.js";
export type { PageSection } from "./report/reportPage.js";
export { type EventFileOptions, openEventFile } from "./report/tensorboard.js";
export * from "./report/traceFile.js";
export type { RunControls, RunEnding, RunHost, RunView } from "./run/runOptions.js";
