/** Training for real: data, tokenisers, checkpoints, and what tells how a run goes. */
export { type Batch, Batches, type BatchesOptions, openBatches } from "./batches.js";
export { type AddedToken, type BpeModel, BpeTokenizer } from "./bpe.js";
export { type TrainBpeOptions, trainBpe } from "./bpeTrainer.js";
export {
  Checkpoint,
  type CheckpointEntry,
  type CheckpointExtras,
  Checkpoints,
  type CheckpointsOptions,
  openCheckpoint,
  openCheckpoints,
  type PendingSave,
} from "./checkpoint.js";
export type { Json, Manifest, ManifestFile, ManifestLeaf } from "./checkpointManifest.js";
export { bundledText, type TextName } from "./corpus.js";
export { type ExchangeOptions, exportSafetensors, importSafetensors } from "./exchange.js";
export { FileError } from "./fileError.js";
export type { FileSystem, WritableFile } from "./files.js";
export { type GenerateOptions, generate, type NextLogits } from "./generate.js";
export { DivergedError } from "./health.js";
export { type CurvePoint, type PlotOptions, plotCurve } from "./lossCurve.js";
export {
  type Metrics,
  type MetricsFileOptions,
  type MetricsWriter,
  openMetricsFile,
  readMetrics,
  writeToAll,
} from "./metrics.js";
export {
  type Progress,
  type ProgressOptions,
  type ProgressStream,
  type ProgressUpdate,
  startProgress,
} from "./progress.js";
export { type RunConfig, readRunConfig, runSchema } from "./runConfig.js";
export {
  parseSafetensors,
  readSafetensors,
  readSafetensorsHeader,
  type SafetensorsContents,
  SafetensorsError,
  type StoredArray,
  writeSafetensors,
} from "./safetensors.js";
export { type EventFileOptions, openEventFile } from "./tensorboard.js";
export { byteTokenizer, type Tokenizer } from "./tokenizer.js";
export { formatTokenizer, parseTokenizer, readTokenizer } from "./tokenizerJson.js";
export {
  openTokenShards,
  type TokenShards,
  type TokenSource,
  tokenRange,
  tokensInMemory,
  writeTokenShard,
} from "./tokenShards.js";
export {
  openTraceFile,
  type TraceCounter,
  type TraceEvent,
  type TraceFile,
  type TraceTrack,
} from "./traceFile.js";
export { type RunOptions, type RunOutcome, trainRun } from "./trainer.js";
export {
  createTraining,
  type LanguageModelState,
  type StepMetrics,
  type Training,
  type TrainingOptions,
} from "./training.js";
export type { RestoreOptions } from "./treeFiles.js";
