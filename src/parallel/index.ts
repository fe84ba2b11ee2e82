/** Data, tensor and pipeline parallelism on device meshes, one file for each kind. */
export { type AccumulateOptions, accumulateGradients, type MinibatchLoss } from "./accumulateGradients.js";
export {
  foldRngOverAxis,
  type StackOptions,
  splitArrayOverMesh,
  stackParams,
  unstackParams,
} from "./arrays.js";
export {
  CircularPipeline,
  type CircularPipelineConfig,
  type CircularPipelineInstance,
  CircularPipelineParts,
  type InitFunction,
  type IterationArguments,
  type LoopState,
  type PipelineBuffers,
  type PipelineFunction,
  type SpecTree,
  type StageFunction,
  type StagesFunction,
} from "./circularPipeline.js";
export {
  type GatherOptions,
  gatherArrayWithMeanGrads,
  gatherParams,
  type ShardModuleOptions,
  shardModuleParams,
  shardParams,
  syncGradients,
} from "./dataParallel.js";
export { type InitShardedOptions, initSharded } from "./initSharded.js";
export { consoleLogger, type Logger, setLogger } from "./logger.js";
export { initializeMesh, type ParallelConfig, type ParallelMeshOptions } from "./parallelMesh.js";
export type { PipelineSettings } from "./pipelineConfig.js";
export type { PipelineLoop } from "./pipelineLoop.js";
export {
  executePipeline,
  executePipelineStep,
  type PipelineConfig,
  PipelineModule,
  type PipelineModuleClass,
  type PipelineOptions,
  type PipelineStepOptions,
  type Stage,
} from "./pipelineParallel.js";
export {
  asyncGather,
  asyncGatherBidirectional,
  asyncGatherSplit,
  asyncScatter,
  asyncScatterSplit,
  type RingOptions,
  type RingPart,
} from "./ringCollectives.js";
export { checkSchedule, type ScheduleReport } from "./schedule/check.js";
export { drawSchedule, type ScheduleSvgOptions, scheduleSvg } from "./schedule/draw.js";
export {
  breadthFirst,
  circular,
  dualPipeV,
  gpipe,
  interleaved,
  makeSchedule,
  oneForwardOneBackward,
  type ScheduleName,
  type ScheduleSizes,
  scheduleNames,
  zeroBubbleH1,
  zeroBubbleH2,
  zeroBubbleV,
} from "./schedule/makers.js";
export {
  type ActionKind,
  type PipelineAction,
  type PipelinePlacement,
  type PipelineSchedule,
  ScheduleError,
  type ScheduleViolation,
} from "./schedule/schedule.js";
export {
  type ActionSeconds,
  type KeptBytes,
  type PipelineLink,
  type SimulatedStage,
  type Simulation,
  type SimulationOptions,
  simulateSchedule,
} from "./schedule/simulate.js";
export {
  scheduleFromCsv,
  scheduleFromJson,
  scheduleOf,
  scheduleToCsv,
  scheduleToJson,
} from "./schedule/tables.js";
export {
  type ActionCosts,
  type CostOf,
  type PairCostOf,
  type TimedAction,
  type Timeline,
  timeline,
} from "./schedule/timeline.js";
export {
  type PipelineFunctions,
  type PipelineGradients,
  type PipelineTrainStepOptions,
  type PipelineWeights,
  partsInOrder,
  pipelineTrainStep,
  placeParts,
} from "./schedule/trainStep.js";
export {
  type DenseOptions,
  type ModelParallelismConfig,
  ModelParallelismWrapper,
  type ModelParallelismWrapperClass,
  scaleInit,
  TPAsyncDense,
  type TPAsyncDenseConfig,
  TPDense,
  type TPDenseCommon,
  type TPDenseConfig,
  type TPMode,
} from "./tensorParallel.js";
export { type Optimizer, TrainState, type TrainStateParts } from "./trainState.js";
