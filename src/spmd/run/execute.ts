import { getOrInsert } from "../../ir/collections.js";
import { programHasEffects } from "../../ir/effects.js";
import type { DeviceBuffer, Engine, Executable } from "../../ir/engine.js";
import { ShardingError, ValueError } from "../../ir/errors.js";
import { blockShape, formatSpec, type Spec, sameSpec } from "../../ir/mesh.js";
import { afterPass } from "../../ir/passes.js";
import type { Program } from "../../ir/program.js";
import { Recent } from "../../ir/recent.js";
import { watch } from "../../ir/reclaim.js";
import { at, formatType, sameNumbers, sizeOf, type TensorType } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import {
  devicesKey,
  type ExecutionTarget,
  formatTarget,
  isFullyAddressable,
  isSameTarget,
} from "../../trace/executionTarget.js";
import * as ops from "../../trace/ops.js";
import { currentRuntime, type Runtime } from "../../trace/runtime.js";
import { blockOffsets, type Held, onDevice, type Placement, place, Storage } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import { refuseChecks } from "../../transforms/checks/checks.js";
import { meshAt } from "../mesh/mesh.js";
import { replicatedSpec } from "../mesh/partitionSpec.js";
import { samePlacement } from "../mesh/sharding.js";
import type { PartitionRequest, RunnableProgram } from "../partition/partition.js";
import { inlineCalls } from "../partition/passes/inlineCalls.js";
import { defer, isDeferred } from "./deferred.js";
import { noteEffects } from "./pendingCallbacks.js";

/** A program ready to run, with the placements its inputs must have and its outputs will have. */
export interface CompiledCall {
  readonly executable: Executable;
  readonly inPlacements: readonly Placement[];
  readonly outPlacements: readonly Placement[];
  /** For every output how it lies when it comes, where that is split further than its placement says. */
  readonly heldOutputs?: readonly (Held | undefined)[];
  /** The types of the whole outputs. */
  readonly outTypes: readonly TensorType[];
  readonly donated: readonly boolean[];
  /** What an input is called in messages; `input 0` by default. */
  readonly nameOfInput?: ((i: number) => string) | undefined;
  /** Where host callbacks are called while it runs; undefined when it calls none. */
  readonly effectsAt: ExecutionTarget | undefined;
}

/** What {@link compile} needs besides the program. */
export interface CompileRequest extends PartitionRequest {
  /** Where to run: a mesh, or one device of an engine. */
  readonly target: ExecutionTarget;
  readonly donated?: readonly boolean[];
  /** What an input is called in messages; `input 0` by default. */
  readonly nameOfInput?: (i: number) => string;
  readonly name?: string;
  /** The program per device, when it is known already. */
  readonly parts?: RunnableProgram | undefined;
  /** What another thread compiled for the engine. */
  readonly prepared?: unknown;
}

/** Partitions a program for its target and compiles it there; it is released when garbage-collected. */
export function compile(program: Program, request: CompileRequest): CompiledCall {
  const compiled = compileFor(program, request);
  const { executable } = compiled;
  if (!request.target.engine.selfCollecting) watch(compiled, () => executable.release());
  return compiled;
}

function compileFor(program: Program, request: CompileRequest): CompiledCall {
  const { target, name, prepared } = request;
  if (!target.engine.selfCollecting) refuseChecks(program, name ?? "run");
  const donated = request.donated ?? program.inputs.map(() => false);
  const extra = { donated, ...(name === undefined ? {} : { name }) };
  const { engine, mesh, devices } = target;
  const parts = request.parts ?? partitionFor(program, target, request);
  const executable = engine.compile(parts.program, { mesh, devices, ...extra, prepared });
  // One object for each spec, so that tensors which go round in a loop are seen to be in place without comparing.
  const placements = new Map<string, Placement>();
  const placementOf = (spec: Spec) => getOrInsert(placements, formatSpec(spec), () => ({ ...target, spec }));
  const outPlacements = parts.outSpecs.map(placementOf);
  return {
    executable,
    inPlacements: parts.held.inSpecs.map(placementOf),
    outPlacements,
    heldOutputs: parts.held.outSpecs.map((spec, i) => heldAs(placementOf(spec), at(outPlacements, i))),
    outTypes: program.outputs.map(({ type }) => type),
    donated,
    nameOfInput: request.nameOfInput,
    effectsAt: programHasEffects(parts.program) ? target : undefined,
  };
}

function heldAs(held: Placement, placement: Placement): Held | undefined {
  if (sameSpec(held.spec, placement.spec)) return undefined;
  return { placement: held, gather: (storage) => gathered(storage, placement) };
}

/** The program that every device of a target runs. */
export function partitionFor(
  program: Program,
  target: ExecutionTarget,
  request: PartitionRequest,
): RunnableProgram {
  return meshAt(target)?.partition(program, request) ?? unsplit(program);
}

/** A program for a single device in the form of a partitioned one: nothing is split, calls are gone as well. */
function unsplit(original: Program): RunnableProgram {
  const program = afterPass("inlineCalls", inlineCalls(original), "partitioned");
  const whole = (atoms: Program["outputs"]) => atoms.map(({ type }) => replicatedSpec(type.shape.length));
  const specs = { inSpecs: whole(program.inputs), outSpecs: whole(program.outputs) };
  return { program, ...specs, gathers: [], held: specs };
}

/**
 * Runs a compiled program. Donated inputs lose their memory to it when the run is started, whatever becomes of it; those
 * that have to be moved first, when they are moved.
 */
export function run(compiled: CompiledCall, inputs: readonly Tensor[]): Tensor[] {
  return runStored(compiled, inputs).map((storage) => Tensor.stored(storage));
}

/** Like {@link run}, without tensors that hold the results. */
export function runStored(compiled: CompiledCall, inputs: readonly Tensor[]): Storage[] {
  const storages = inputs.map((tensor) => tensor.storage("jit"));
  if (compiled.donated.includes(true)) checkAliases(compiled, storages);
  return Storage.pinned(storages, () => runOn(compiled, storages));
}

/** Refuses tensors whose memory a run would overwrite while it reads them by another input. */
function checkAliases(
  { donated, nameOfInput = (i) => `input ${i}` }: CompiledCall,
  storages: readonly Storage[],
): void {
  const known = new Map<Storage, number>();
  storages.forEach((storage, i) => {
    const before = known.get(storage);
    known.set(storage, before !== undefined && donated[before] ? before : i);
    if (before === undefined || !(donated[before] || donated[i])) return;
    const [taken, other] = donated[before] ? [before, i] : [i, before];
    throw new ValueError(
      `[jit] ${nameOfInput(taken)} is donated, but the same tensor of ${formatType(storage.type)} is also ${nameOfInput(other)}: pass a copy (np.copy), or do not donate it`,
    );
  });
}

function runOn(compiled: CompiledCall, storages: readonly Storage[]): Storage[] {
  const placed: Storage[] = [];
  try {
    storages.forEach((storage, i) => {
      const used = moveTo(storage, at(compiled.inPlacements, i));
      placed.push(used);
      // Immediately, so that not all of them exist twice.
      if (used !== storage && compiled.donated[i]) storage.release();
    });
    const results = compiled.executable.execute(placed.map((storage) => storage.readHeld("jit")));
    if (compiled.effectsAt) noteEffects(compiled.effectsAt);
    for (const [i, storage] of placed.entries()) if (compiled.donated[i]) storage.surrender();
    return results.map((buffers, i) => {
      const [placement, held] = [at(compiled.outPlacements, i), compiled.heldOutputs?.[i]];
      return new Storage(placement, at(compiled.outTypes, i), buffers, held);
    });
  } finally {
    placed.forEach((used, i) => {
      if (used.isTaken) used.surrender();
      if (used !== storages[i]) used.release();
    });
  }
}

/** From this many elements on, devices cut and join their own blocks sooner than the calling thread copies them. */
const worthAProgram = 2 ** 17;

/** The same values in another placement; the same storage when it has that already. */
function moveTo(storage: Storage, placement: Placement): Storage {
  if (samePlacement(storage.held, placement)) return storage;
  if (samePlacement(storage.placement, placement)) {
    storage.read("jit");
    return storage;
  }
  const { engine } = storage.placement;
  const inPlace = isSameTarget(storage.placement, placement);
  // All processes have to go the same way, and what can be read without waiting differs between them.
  const stays = !isFullyAddressable(placement) || sizeOf(storage.type.shape) >= worthAProgram;
  if (inPlace && stays) return reshardInPlace(storage, placement);
  const data = storage.peek("jit");
  if (data) return place(placement, storage.type, data);
  if (engine !== placement.engine) {
    throw new ShardingError(
      `a tensor on engine "${engine.name}" is used on engine "${placement.engine.name}": move it with \`await devicePut(tensor, sharding)\` first`,
    );
  }
  return inPlace ? reshardInPlace(storage, placement) : copyBlocks(storage, placement);
}

/** The same values under another spec of their mesh, moved by collectives: all processes that hold them do it together. */
export function reshardInPlace(storage: Storage, to: Placement): Storage {
  return new Storage(to, storage.type, gathered(storage, to));
}

/** The buffers of a tensor under another spec of its mesh. */
function gathered(storage: Storage, to: Placement): readonly DeviceBuffer[] {
  const { engine, mesh, devices } = to;
  const from = storage.held.spec;
  const { dtype, shape } = storage.type;
  const key = `${devicesKey(to)} ${formatType(storage.type)} ${formatSpec(from)} ${formatSpec(to.spec)}`;
  const executable = keptBy(engine).moves.get(key, () => {
    const blockType = { dtype, shape: blockShape(shape, from, mesh) };
    const moved = (block: Tensor) => meshAt(to)?.reshard(block, from, to.spec) ?? block;
    const { program } = traceFlat((blocks) => [moved(at(blocks, 0))], [blockType]);
    return engine.compile(program, { mesh, devices, name: "reshard" });
  });
  return at(executable.execute([storage.readHeld("reshard")]), 0);
}

/** Builds every block of the new placement on its device from copies of the old blocks. */
function copyBlocks(storage: Storage, to: Placement): Storage {
  const { engine } = to;
  const { mesh, spec } = storage.held;
  const held = storage.blocks("devicePut");
  const buffers = to.positions.map((position) => {
    const device = at(to.devices, position);
    const copies = held.map(({ buffer }) => engine.transfer(buffer, device));
    const offsets = blockOffsets(storage.type.shape, to.spec, to.mesh, position);
    const sizes = blockShape(storage.type.shape, to.spec, to.mesh);
    const { program } = traceFlat(
      (blocks) => {
        let whole = ops.zeros(storage.type);
        blocks.forEach((block, i) => {
          const first = blockOffsets(storage.type.shape, spec, mesh, at(held, i).position);
          const starts = first.map((start) => Tensor.scalar(start, "int32"));
          whole = ops.dynamicUpdateSlice(whole, block, starts);
        });
        const limits = offsets.map((start, d) => start + at(sizes, d));
        return [ops.slice(whole, offsets, limits)];
      },
      copies.map((copy) => copy.type),
    );
    const executable = engine.compile(program, { mesh: { axes: [] }, devices: [device], name: "devicePut" });
    const [result] = executable.execute(copies.map((copy) => [copy]));
    executable.release();
    for (const copy of copies) engine.release(copy);
    return at(result ?? [], 0);
  });
  return new Storage(to, storage.type, buffers);
}

/** Where a program on these tensors should run when it names no mesh itself. */
export function targetOf(inputs: readonly Tensor[]): ExecutionTarget | undefined {
  const host = currentRuntime().hostEngine;
  let first: Placement | undefined;
  for (const tensor of inputs) {
    const { placement } = tensor.storage("run");
    const mesh = meshAt(placement);
    if (mesh) return mesh.target;
    if (placement.engine !== host) first ??= placement;
  }
  return first && onDevice(first.engine, at(first.devices, 0));
}

/**
 * Throws when an input is not on the devices that the program runs on. What is on the calling thread or on one device
 * of the same engine goes where it is needed, and the same devices may be named by other axes.
 */
export function checkInputs(target: ExecutionTarget, inputs: readonly Tensor[], name: string): void {
  const host = currentRuntime().hostEngine;
  inputs.forEach((tensor, i) => {
    const { placement } = tensor.storage("run");
    const { engine, devices } = placement;
    const isSplit = devices.length > 1;
    if (engine === host && !isSplit) return;
    const isHere = engine === target.engine && (!isSplit || sameNumbers(devices, target.devices));
    if (isHere) return;
    throw new ShardingError(
      `[${name}] input ${i}, ${formatType(tensor.type)}, lies on ${formatTarget(placement, target)}, but the program runs on ${formatTarget(target, placement)}: move it with \`await devicePut(tensor, sharding)\` first`,
    );
  });
}

/** The specs that inputs already have on the target's mesh; others are left to the partitioner. */
export function specsOn(target: ExecutionTarget, inputs: readonly Tensor[]): (Spec | undefined)[] {
  return inputs.map((tensor) => {
    const { placement } = tensor.storage("run");
    return meshAt(target) && isSameTarget(placement, target) ? placement.spec : undefined;
  });
}

/** Maximum number of small programs to cache for each engine: those of eager ops, and those that move tensors. */
const maxKept = 1024;

interface Kept {
  readonly ops: Recent<CompiledCall>;
  readonly moves: Recent<Executable>;
}

const keptPrograms = new WeakMap<Engine, Kept>();

function keptBy(engine: Engine): Kept {
  return getOrInsert(keptPrograms, engine, () => ({
    ops: new Recent<CompiledCall>(maxKept, ({ executable }) => executable.release()),
    moves: new Recent<Executable>(maxKept, (executable) => executable.release()),
  }));
}

/** The runtime behind the array API outside of `jit`: every op is a small program of its own, kept by its key. */
export function createRuntime(hostEngine: Engine): Runtime {
  const host = onDevice(hostEngine);
  return {
    hostEngine,
    run(key: string, program: () => Program, inputs: readonly Tensor[], place?: ExecutionTarget): Tensor[] {
      if (isDeferred(inputs)) {
        const made = program();
        const types = made.outputs.map(({ type }) => type);
        return defer(
          inputs,
          types,
          () => undefined,
          () =>
            runStored(
              compiledOp(key, () => made, inputs, place),
              inputs,
            ),
        );
      }
      return run(compiledOp(key, program, inputs, place), inputs);
    },
  };

  function compiledOp(
    key: string,
    program: () => Program,
    inputs: readonly Tensor[],
    place: ExecutionTarget | undefined,
  ): CompiledCall {
    const target = place ?? targetOf(inputs) ?? host;
    if (target !== host) checkInputs(target, inputs, "run");
    const inSpecs = target === host ? [] : specsOn(target, inputs);
    const where =
      target === host ? "" : ` ${devicesKey(target)} ${inSpecs.map((spec) => spec && formatSpec(spec))}`;
    return keptBy(target.engine).ops.get(`${key}${where}`, () => {
      const made = program();
      return compile(made, { target, inSpecs, name: made.eqns[0]?.op ?? "copy" });
    });
  }
}
