/** Training runs: data, tokenisers, checkpoints, metrics and reports. */
import "./install.js";

export { type RunConfig, readRunConfig, runSchema } from "./config/runConfig.js";
export type { Config, Field, ReadConfig, Schema, Setting } from "./config/schema.js";
export { type Batch, Batches, type BatchesOptions, openBatches } from "./data/batches.js";
export { type AddedToken, type BpeModel, BpeTokenizer, type Cut } from "./data/bpe.js";
export { type TrainBpeOptions, trainBpe } from "./data/bpeTrainer.js";
export {
  type ChatMessage,
  type ChatOptions,
  type ChatTemplate,
  type EncodedChat,
  encodeChat,
  parseChatTemplate,
} from "./data/chatTemplate.js";
export { bundledText, type TextName } from "./data/corpus.js";
export {
  type DataStatistics,
  type DataStatisticsOptions,
  type DuplicatePair,
  dataStatistics,
  type Lengths,
  type SampledExample,
} from "./data/dataStatistics.js";
export { JsonTokenizer } from "./data/jsonTokenizer.js";
export { packDocuments, type Row, type RowDocuments, type RowSource } from "./data/rows.js";
export {
  type Example,
  type ExampleFields,
  type ExampleKind,
  type ExampleOptions,
  readExamples,
  type TextOrChat,
} from "./data/sources/examples.js";
export {
  type DataRecord,
  type DataSource,
  type Fields,
  type OnDataError,
  type RecordOptions,
  readRecords,
} from "./data/sources/records.js";
export { byteTokenizer, type Tokenizer } from "./data/tokenizer.js";
export { readTokenizer } from "./data/tokenizerFile.js";
export { formatTokenizer, parseTokenizer } from "./data/tokenizerJson.js";
export { openTokenShards, type TokenShards, writeTokenShard } from "./data/tokenShards.js";
export { type TokenSource, tokenMarks, tokenRange, tokensInMemory } from "./data/tokens.js";
export {
  Checkpoint,
  type CheckpointEntry,
  type CheckpointRestoreOptions,
  Checkpoints,
  type CheckpointsOptions,
  openCheckpoint,
  openCheckpoints,
  type PendingSave,
} from "./files/checkpoint.js";
export type { Json, Manifest, ManifestFile, ManifestLeaf, StoredTree } from "./files/checkpointManifest.js";
export type { CheckpointExtras } from "./files/checkpointSnapshot.js";
export {
  type ExchangeOptions,
  exportSafetensors,
  type ImportOptions,
  importSafetensors,
} from "./files/exchange.js";
export { FileError, type FileErrorOptions } from "./files/fileError.js";
export type { FileSystem, WritableFile } from "./files/files.js";
export {
  checkpointsIn,
  type PageCheckpoint,
  type PageCheckpoints,
  type PageRestoreOptions,
} from "./files/pageCheckpoints.js";
export {
  downloadBytes,
  downloadFolder,
  type OriginFiles,
  openOriginFiles,
  type ReadBytesOptions,
  readBytes,
} from "./files/pageFiles.js";
export type { ProcessGroup } from "./files/processGroup.js";
export { readSafetensors, readSafetensorsHeader, writeSafetensors } from "./files/safetensors.js";
export {
  encodeSafetensors,
  parseSafetensors,
  type SafetensorsContents,
  SafetensorsError,
  type StoredArray,
  type StoredDType,
} from "./files/safetensorsBytes.js";
export type { ForeignType, SafetensorsHeader, StoredTensor, StoredType } from "./files/safetensorsHeader.js";
export type { RestoreOptions } from "./files/treeFiles.js";
export { type ContinueOptions, continueText, type NextLogits } from "./generation/continueText.js";
export { type GeneratedToken, type GenerateOptions, generate } from "./generation/generate.js";
export type { LayerLayout } from "./models/canonical.js";
export type { ModelConfig } from "./models/config.js";
export type { DecoderConfig } from "./models/decoder.js";
export type { ExpertsConfig } from "./models/experts.js";
export { logProbabilities } from "./models/loss.js";
export type { TensorParallelism } from "./models/names.js";
export { type DpoOptions, dpoLoss, type PairLogProbabilities } from "./models/preference.js";
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
export { type DeviceSpeed, type LinkSpeed, type Links, machinePrices } from "./plan/machine.js";
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
export { type CurvePoint, type PlotOptions, plotCurve } from "./report/lossCurve.js";
export {
  type Metrics,
  type MetricsFileOptions,
  type MetricsWriter,
  openMetricsFile,
  readMetrics,
  writeToAll,
} from "./report/metrics.js";
export {
  type Progress,
  type ProgressOptions,
  type ProgressStream,
  type ProgressUpdate,
  startProgress,
} from "./report/progress.js";
export type { EvaluationRecord, PageSection, StepRecord } from "./report/reportPage.js";
export { type EventFileOptions, openEventFile } from "./report/tensorboard.js";
export {
  openTraceFile,
  type TraceCounter,
  type TraceFile,
  type TraceFileEvent,
  type TraceTrack,
} from "./report/traceFile.js";
export type { RunControls, RunEnding, RunHost, RunOptions, RunOutcome, RunView } from "./run/runOptions.js";
export { trainRun } from "./run/trainRun.js";
export { DivergedError } from "./step/health.js";
export type { ParamDtype } from "./step/parameterUpdates.js";
export type { LanguageModelState, StepMetrics } from "./step/state.js";
export type { TrainingOptions } from "./step/stepFunctions.js";
export type { TokenBatch, TokenInput } from "./step/tokenBatch.js";
export { createTraining, type StepMemory, type Training } from "./step/training.js";
