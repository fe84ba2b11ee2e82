/** Engines that run programs, and everything needed to write another one; see `docs/engines.md`. */

export { readRecordings, writeRecording } from "#engines/flight/file";
export { createMpiEngine, createXlaEngine } from "#engines/processEngines";
export type { WasmFeatures } from "../compiler/wasm/features.js";
export { callHost, type HostCall, type HostFunction, type HostValue } from "../ir/callbacks.js";
export {
  allocateHost,
  byteSize,
  type DType,
  decode,
  encode,
  type HostData,
  viewHost,
} from "../ir/dtype.js";
export type { CompileOptions, DeviceBuffer, DevicePlace, Engine, Executable } from "../ir/engine.js";
export type { EngineInfo, MemoryUsage, TraceEvent, Tracer } from "../ir/engineReports.js";
export type {
  FlightAgreement,
  FlightCollective,
  FlightDevice,
  FlightProgram,
  FlightRecord,
  FlightRecording,
  FlightState,
} from "../ir/flight.js";
export {
  axesCoordinates,
  axesSize,
  type DimAxes,
  type DimConstraint,
  formatMesh,
  type MeshAxis,
  type MeshShape,
  type Spec,
} from "../ir/mesh.js";
export type { CollectiveOp, Family, OpsOf } from "../ir/opFacts.js";
export type {
  Attention,
  AttentionExtra,
  AttentionWant,
  CallbackBatching,
  CallbackKind,
  Collective,
  CompareDirection,
  ControlRole,
  Float8,
  None,
  OpName,
  OpParams,
  PipelineLoop,
  Precision,
  RaggedDim,
  Reduction,
  RematPolicy,
  XlaFunction,
} from "../ir/ops.js";
export {
  type Atom,
  type Eqn,
  forEachEqn,
  type Literal,
  type Program,
  type SourceLocation,
  type Var,
} from "../ir/program.js";
export { formatType, type Shape, sameType, sizeOf, type TensorType } from "../ir/shape.js";
export { printProgram } from "../ir/text/print.js";
export { verify } from "../ir/verify.js";
export type { AbortSignalLike } from "../platform/hostTypes.js";
export {
  DesyncError,
  DeviceFailedError,
  type DevicePosition,
  EngineLoadError,
  type FailurePlace,
  OutOfMemoryError,
  ProgramsDifferError,
} from "./errors.js";
export { type CollectiveIdentity, collectiveText, fingerprintOf } from "./flight/fingerprint.js";
export { type Blame, findBlame, formatBlame } from "./flight/flightAnalysis.js";
export { FLIGHT_RECORDS, FlightRecorder, newFlightRing, readFlightRing } from "./flight/recorder.js";
export { formatRecording, parseRecording } from "./flight/recordingText.js";
export type { ThreadsBuffer } from "./memory/buffers.js";
export type { LayoutKind } from "./memory/memoryLayout.js";
export type { MpiEngine, MpiEngineInfo, MpiEngineOptions } from "./mpi/engine.js";
export {
  createOneThreadEngine,
  type OneThreadEngine,
  type OneThreadEngineOptions,
} from "./oneThread/engine.js";
export type { GemmKind } from "./products/gemmChoice.js";
export { createReferenceEngine, type ReferenceEngineOptions } from "./reference/engine.js";
export { type HostTensor, hostTensor, numbersOf } from "./reference/hostTensor.js";
export { interpret, interpretSpmd } from "./reference/interpret.js";
export type { EngineSettings } from "./settings.js";
export {
  EngineBuffer,
  EngineShell,
  type EngineState,
  type LoadedProgram,
  type Rows,
  type ShellExecutable,
  type Signature,
} from "./shell.js";
export { simulateDevices } from "./simulateDevices.js";
export { checkHostData } from "./sizeChecks.js";
export { type EngineModule, type EngineOptions, engineNames, importEngine, openEngine } from "./table.js";
export { createThreadsEngine, type ThreadsEngine } from "./threads/engine.js";
export type { ThreadsEngineInfo, ThreadsEngineOptions } from "./threads/engineOptions.js";
export {
  createWebGpuEngine,
  type WebGpuEngine,
  type WebGpuEngineInfo,
  type WebGpuEngineOptions,
} from "./webgpu/engine.js";
export type { WorkersEngine } from "./workers/workersEngine.js";
export type { WorkersInfo } from "./workers/workersOptions.js";
export type { XlaEngineInfo } from "./xla/engine.js";
export { XlaError, XlaPluginError } from "./xla/errors.js";
export type { XlaEngineOptions } from "./xla/openXla.js";
export type { XlaFlag } from "./xla/pjrt/compileOptions.js";
export type { XlaProcesses } from "./xla/processes.js";
