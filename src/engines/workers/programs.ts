import { compileWasmModule } from "#engines/system/v8Flags";
import { buildGemmModule } from "../../compiler/gemm/gemmModule.js";
import { tileFor } from "../../compiler/gemm/tile.js";
import type { CompiledProgram, Step, StepInfo } from "../../compiler/steps.js";
import { forEachStep, someStep } from "../../compiler/stepTree.js";
import { ADDRESS_BYTES, type AddressType } from "../../compiler/wasm/addresses.js";
import type { WasmFeatures } from "../../compiler/wasm/features.js";
import { getOrInsert, zip } from "../../ir/collections.js";
import type { CompileOptions } from "../../ir/engine.js";
import { ValueError } from "../../ir/errors.js";
import type { FlightDevice, FlightProgram, FlightRecord } from "../../ir/flight.js";
import { newCounter } from "../../ir/identity.js";
import { at, range } from "../../ir/shape.js";
import { planStaging, type Staging } from "../collectives/collectives.js";
import { newCollectiveWords } from "../collectives/collectiveWords.js";
import { communicatorsOf } from "../collectives/desyncDetector.js";
import { newCallArea } from "../devices/hostCalls.js";
import type { DevicePosition } from "../errors.js";
import { collectiveText, fingerprintOf } from "../flight/fingerprint.js";
import { positionsIn } from "../flight/positions.js";
import type { LoadedModule } from "../kernels/loadKernels.js";
import { loadKernels, unloadKernels } from "../kernels/loadKernels.js";
import type { Allocation, DeviceMemory } from "../memory/deviceMemory.js";
import { roundUp } from "../memory/heap.js";
import type { MemoryLayout } from "../memory/memoryLayout.js";
import { type GemmChoice, isInMachineCode } from "../products/gemmChoice.js";
import { COMMAND, MAX_COMMAND_WORDS, PROGRAM_WORD } from "../protocol/commands.js";
import type { DeviceLocations } from "../protocol/locations.js";
import type { CodeMemory } from "../system/codeMemory.js";
import type { WorkerPool } from "./workerPool.js";

/** A program loaded on devices, as the main thread sees it. */
export interface WorkerProgram {
  readonly id: number;
  readonly name: string;
  compiled: CompiledProgram;
  /** The engine's device number at every position of the mesh. */
  readonly numbers: readonly number[];
  readonly locations: DeviceLocations;
  /** The mesh positions whose devices are in this process, ascending. */
  readonly positions: readonly number[];
  /** The device at each of these positions, counted in this process. */
  readonly devices: readonly number[];
  /** A description of every step, by its number. */
  readonly steps: readonly LoadedStep[];
  /** Memory for constants, address table and staging at each of these positions. */
  allocations: readonly Allocation[];
  /** The kernels, compiled. */
  modules: readonly LoadedModule[];
  /** Compiles it for memories with other addresses; a program without kernels does not depend on them. */
  readonly recompile: ((addressType: AddressType) => CompiledProgram) | undefined;
  /** Whether it has steps that the threads of a device share. */
  readonly isShared: boolean;
  /** The words that its collectives share since it was last sent. */
  words: Int32Array;
  /** Where the device at each of these positions passes values to host callbacks. */
  readonly calls: readonly (Uint8Array | undefined)[];
}

/** The description of a step in messages and traces. */
export interface LoadedStep {
  readonly kind: Step["op"];
  readonly ops: StepInfo["ops"];
  readonly source: StepInfo["source"];
  readonly role: StepInfo["role"];
  readonly flops: StepInfo["flops"];
}

/** Where programs are loaded. */
export interface LoadTarget {
  readonly pool: WorkerPool;
  readonly memories: readonly DeviceMemory[];
  readonly layout: MemoryLayout;
  readonly features: WasmFeatures;
  /** Which implementation multiplies matrices on the devices. */
  readonly gemm: GemmChoice;
  /** Whether there are more workers than cores. */
  readonly crowded: boolean;
  /** Memory for the machine code of kernels; undefined if all are WebAssembly. */
  readonly code: CodeMemory | undefined;
  /** Plans the staging memory of a position whose collectives may reach other processes. */
  readonly planStaging?: StagingPlanner | undefined;
}

/** Places the staging memory that collectives need at a position of the mesh. */
export type StagingPlanner = (
  program: CompiledProgram,
  position: number,
  locations: DeviceLocations,
  crowded: boolean,
) => Staging;

const nextId = newCounter(1);
const nextSending = newCounter(1);
const gemmModules = new Map<AddressType, WebAssembly.Module>();

/** Compiles the kernels, allocates memory on every device and sends the program there. */
export function loadProgram(
  compiled: CompiledProgram,
  options: CompileOptions,
  target: LoadTarget,
  locations: DeviceLocations,
  recompile?: WorkerProgram["recompile"],
): WorkerProgram {
  const { memories } = target;
  checkOperands(compiled);
  const id = nextId();
  const name = options.name ?? compiled.name;
  const caller = `compile ${JSON.stringify(name)}`;
  const modules = loadKernels(compiled, target.code);
  const positions = range(locations.devices.length).filter(
    (i) => locations.processes[i] === locations.process,
  );
  const devices = positions.map((position) => at(locations.devices, position));
  const allocations = makeRoom(
    devices.map((device) => at(memories, device)),
    positions.map((position) => programBytes(compiled, position, locations, target).whole),
    compiled.arenaBytes,
    caller,
  );
  const steps = describeSteps(compiled);
  const isShared = hasSharedSteps(compiled.steps);
  const words = new Int32Array();
  const where = { numbers: options.devices, locations, positions, devices };
  const calls = devices.map(() => newCallArea(compiled));
  const what = { compiled, steps, allocations, modules, recompile, isShared, words, calls };
  const loaded = { id, name, ...where, ...what };
  sendProgram(loaded, target);
  return loaded;
}

/** Recompiles a program for the addresses that its devices have now, and allocates memory for it. */
export function adaptProgram(loaded: WorkerProgram, target: LoadTarget): void {
  if (loaded.recompile === undefined) return;
  const memories = loaded.devices.map((device) => at(target.memories, device));
  loaded.compiled = loaded.recompile(target.layout.addressType);
  unloadKernels(loaded.modules, target.code);
  loaded.modules = loadKernels(loaded.compiled, target.code);
  for (const [memory, allocation] of zip(memories, loaded.allocations)) memory.release(allocation);
  const { compiled, positions, locations } = loaded;
  const caller = `compile ${JSON.stringify(loaded.name)}`;
  loaded.allocations = memories.map((memory, i) => {
    const { whole } = programBytes(compiled, at(positions, i), locations, target);
    return memory.allocate(whole, caller, () => "its constants and tables");
  });
}

/** The kernel for matrix products, for all programs whose memories have addresses of this type. */
function gemmModuleFor(addressType: AddressType, features: WasmFeatures): WebAssembly.Module {
  return getOrInsert(gemmModules, addressType, () =>
    compileWasmModule(buildGemmModule(features, tileFor(features), addressType)),
  );
}

/** Whether a program has products that machine code does not compute. */
function readsGemmModule({ steps }: CompiledProgram, gemm: GemmChoice): boolean {
  return someStep(steps, (step) => step.op === "gemm" && !isInMachineCode(gemm, step));
}

/** Sends a program to its devices, with the current addresses of its parts. */
export function sendProgram(loaded: WorkerProgram, target: LoadTarget): void {
  const { id, name, compiled, locations, positions, devices, allocations, modules, isShared } = loaded;
  const { pool, memories, layout, features, gemm } = target;
  const gemmModule = readsGemmModule(compiled, gemm)
    ? gemmModuleFor(layout.addressType, features)
    : undefined;
  const { count } = communicatorsOf(compiled.collectives);
  const words = newCollectiveWords(compiled.collectives.length, count, locations.devices.length);
  loaded.words = words;
  const sending = nextSending();
  devices.forEach((device, i) => {
    const position = at(positions, i);
    if (isShared) {
      pool.tellHelpers(device, {
        kind: "kernels",
        id,
        sending,
        modules,
        memory: at(layout.memories, device),
      });
    }
    const memory = at(memories, device);
    const bytes = programBytes(compiled, position, locations, target);
    const constants = memory.addressOf(at(allocations, i));
    const table = constants + bytes.constants;
    pool.post(device, {
      kind: "load",
      id,
      sending,
      name,
      modules,
      gemmModule,
      steps: compiled.steps,
      slots: compiled.slots,
      numInputs: compiled.inputs.length,
      numOutputs: compiled.outputs.length,
      constants: compiled.constants,
      collectives: compiled.collectives,
      addresses: {
        constants,
        table,
        staging: table + bytes.table,
        arena: memory.arenaAddress(compiled.arenaBytes),
        arenaBytes: compiled.arenaBytes,
      },
      staging: bytes.staging.offsets,
      position,
      locations,
      words,
      calls: loaded.calls[i],
    });
  });
}

/** The memory that a program needs on the device at a position besides its arena. */
function programBytes(
  compiled: CompiledProgram,
  position: number,
  locations: DeviceLocations,
  target: LoadTarget,
) {
  const { crowded } = target;
  const staging =
    target.planStaging?.(compiled, position, locations, crowded) ??
    planStaging(compiled.collectives, crowded);
  const constants = roundUp(compiled.constants.byteLength);
  const table = roundUp(ADDRESS_BYTES.i64 * compiled.slots.length);
  return { constants, table, staging, whole: constants + table + staging.bytes };
}

/** Products of at least this many operations are worth a helper thread. */
const LARGE_FLOPS = 4e6;

/** Whether a program has steps that the threads of a device share. */
function hasSharedSteps(steps: readonly Step[]): boolean {
  return someStep(steps, (step) => {
    if (step.op === "kernel") return step.rows !== undefined;
    if (step.op !== "gemm") return false;
    const count = step.batch.reduce((product, batch) => product * batch.count, 1);
    return 2 * step.m * step.n * step.k * count >= LARGE_FLOPS;
  });
}

function describeSteps({ steps, infos }: CompiledProgram): LoadedStep[] {
  const described: LoadedStep[] = [];
  forEachStep(steps, (step) => {
    const { ops = [step.op], source, role, flops = 0 } = infos[step.info] ?? {};
    described.push({ kind: step.op, ops, source, role, flops });
  });
  return described;
}

/** A program as flight recordings name it. */
export function describeProgram({ id, name, compiled, numbers }: WorkerProgram): FlightProgram {
  const collectives = compiled.collectives.map((spec) => ({
    text: collectiveText(spec),
    fingerprint: fingerprintOf(spec),
    groups: spec.groups.map((group) => group.map((position) => at(numbers, position))),
    source: compiled.infos[spec.info]?.source?.text ?? null,
  }));
  return { id, name, collectives };
}

/**
 * Where every device of a program that is in this process stands among the collectives of one kind of groups.
 *
 * @param recorded what the flight recorders of the process's devices kept
 */
export function positionsOf(
  loaded: WorkerProgram,
  communicator: number,
  recorded: readonly FlightDevice[],
): DevicePosition[] {
  const { of } = communicatorsOf(loaded.compiled.collectives);
  const devices = loaded.positions.map((position, i) => {
    const one = at(recorded, at(loaded.devices, i));
    return { ...one, device: at(loaded.numbers, position) };
  });
  const counts = ({ program, kind, collective }: FlightRecord) =>
    program === loaded.id && (kind === "run" || of[collective] === communicator);
  return positionsIn({ programs: [describeProgram(loaded)], devices }, counts);
}

/** Memory for constants and tables, and for intermediate values, on every device or on none. */
function makeRoom(
  memories: readonly DeviceMemory[],
  bytes: readonly number[],
  arenaBytes: number,
  caller: string,
): Allocation[] {
  const allocations: Allocation[] = [];
  let numArenas = 0;
  try {
    memories.forEach((memory, i) => {
      allocations.push(memory.allocate(at(bytes, i), caller, () => "its constants and tables"));
      memory.reserveArena(arenaBytes, caller);
      numArenas++;
    });
  } catch (error) {
    allocations.forEach((allocation, i) => {
      at(memories, i).release(allocation);
    });
    for (const memory of memories.slice(0, numArenas)) memory.releaseArena(arenaBytes);
    throw error;
  }
  return allocations;
}

/** Removes a program from the devices and releases its memory. */
export function unloadProgram(
  loaded: WorkerProgram,
  { pool, memories, code }: LoadTarget,
  whenGone: () => void,
): void {
  const { devices } = loaded;
  const sent = devices.map((device) => ({ device, command: pool.send(device, [COMMAND.unload, loaded.id]) }));
  // Peers may read a device's staging memory until they have finished too.
  pool.afterwards(sent, () => {
    devices.forEach((device, i) => {
      // Runs that were requested earlier may still be waiting for the device, and its helpers take part in them.
      if (loaded.isShared) pool.tellHelpers(device, { kind: "forget", id: loaded.id });
      const memory = at(memories, device);
      memory.release(at(loaded.allocations, i));
      memory.releaseArena(loaded.compiled.arenaBytes);
    });
    unloadKernels(loaded.modules, code);
    whenGone();
  });
}

/** Throws if a run has more operands than a command can hold. */
function checkOperands(compiled: CompiledProgram): void {
  const numOperands = compiled.inputs.length + compiled.outputs.length;
  const most = MAX_COMMAND_WORDS - PROGRAM_WORD.size;
  if (numOperands > most) {
    throw new ValueError(`[compile] ${numOperands} inputs and outputs are more than ${most}`);
  }
}
