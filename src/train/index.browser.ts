/** What training needs in a page: models, data, tokenisers, steps, safetensors in memory, and runs in the origin's files. */
import "./install.js";

export type { AbortSignalLike, BlobLike, UrlLike } from "../platform/hostTypes.js";
export type { Config, Field, ReadConfig, Schema, Setting } from "./config/configSchema.js";
export { type RunConfig, readRunConfig, runSchema } from "./config/runConfig.js";
export { type Batch, Batches, type BatchesOptions, openBatches } from "./data/batches/batches.js";
export { packDocuments, type Row, type RowDocuments, type RowSource } from "./data/batches/rows.js";
export { type BatchStream, type StreamOptions, streamBatches } from "./data/batches/stream.js";
export * from "./data/chat/chatTemplate.js";
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
export { type AddedToken, type BpeModel, BpeTokenizer, type Cut } from "./data/tokenizers/bpe.js";
export { type TrainBpeOptions, trainBpe } from "./data/tokenizers/bpeTrainer.js";
export { JsonTokenizer } from "./data/tokenizers/jsonTokenizer.js";
export { byteTokenizer, type Tokenizer } from "./data/tokenizers/tokenizer.js";
export { formatTokenizer, parseTokenizer } from "./data/tokenizers/tokenizerJson.js";
export {
  type DataStatistics,
  type DataStatisticsOptions,
  type DuplicatePair,
  dataStatistics,
  type Lengths,
  type SampledExample,
} from "./data/tokens/dataStatistics.js";
export { type TokenSource, tokenMarks, tokenRange, tokensInMemory } from "./data/tokens/tokens.js";
export * from "./files/checkpoints/pageCheckpoints.js";
export { FileError, type FileErrorOptions } from "./files/disk/fileError.js";
export * from "./files/disk/pageFiles.js";
export {
  encodeSafetensors,
  parseSafetensors,
  type SafetensorsContents,
  type StoredArray,
  type StoredDType,
} from "./files/safetensors/safetensorsBytes.js";
export {
  type ForeignType,
  SafetensorsError,
  type SafetensorsHeader,
  type StoredTensor,
  type StoredType,
} from "./files/safetensors/safetensorsHeader.js";
export { type ContinueOptions, continueText, type NextLogits } from "./generation/continueText.js";
export type { DraftModel } from "./generation/draft.js";
export { type FuseProjectionsOptions, fuseProjections } from "./generation/fuseProjections.js";
export { type GeneratedToken, type GenerateOptions, generate } from "./generation/generate.js";
export type { ModelConfig } from "./models/config.js";
export type { DecoderConfig } from "./models/decoder.js";
export type { ExpertsConfig } from "./models/experts.js";
export type { LayerLayout } from "./models/layerOrder.js";
export { logProbabilities } from "./models/loss.js";
export type { TensorParallelism } from "./models/names.js";
export { type DpoOptions, dpoLoss, type PairLogProbabilities } from "./models/preference.js";
export type { TuneConfig } from "./models/tune.js";
export { type CurvePoint, type PlotOptions, plotCurve } from "./report/lossCurve.js";
export { type Metrics, readMetrics } from "./report/metrics.js";
export type { EvaluationRecord, StepRecord } from "./report/reportPage.js";
export type { RunOptions, RunOutcome } from "./run/runOptions.js";
export { trainRun } from "./run/trainRun.js";
export { DivergedError } from "./step/health.js";
export type { ParamDtype } from "./step/parameterUpdates.js";
export type { LanguageModelState, StepMetrics } from "./step/state.js";
export type { TrainingOptions } from "./step/stepFunctions.js";
export type { TokenBatch, TokenInput } from "./step/tokenBatch.js";
export { createTraining, type StepMemory, type Training } from "./step/training.js";
