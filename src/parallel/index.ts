/** Data, tensor and pipeline parallelism on device meshes, one file for each kind. */
export * from "./accumulateGradients.js";
export * from "./arrays.js";
export * from "./circularPipeline.js";
export * from "./dataParallel.js";
export * from "./initSharded.js";
export { consoleLogger, type Logger, setLogger } from "./logger.js";
export * from "./parallelMesh.js";
export type { PipelineSettings } from "./pipelineConfig.js";
export type { PipelineLoop } from "./pipelineLoop.js";
export * from "./pipelineParallel.js";
export * from "./ringCollectives.js";
export { checkSchedule, type ScheduleReport } from "./schedule/check.js";
export * from "./schedule/draw.js";
export * from "./schedule/makers.js";
export {
  type ActionKind,
  type PipelineAction,
  type PipelinePlacement,
  type PipelineSchedule,
  ScheduleError,
  type ScheduleViolation,
} from "./schedule/schedule.js";
export * from "./schedule/simulate.js";
export * from "./schedule/tables.js";
export {
  type ActionCosts,
  type CostOf,
  type PairCostOf,
  type TimedAction,
  type Timeline,
  timeline,
} from "./schedule/timeline.js";
export * from "./schedule/trainStep.js";
export * from "./tensorParallel.js";
export * from "./trainState.js";
