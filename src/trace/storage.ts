import { allocateHost, byteSize, type HostData } from "../ir/dtype.js";
import type { DeviceBuffer, Engine } from "../ir/engine.js";
import { DisposedError, InternalError, NotAddressableError } from "../ir/errors.js";
import {
  blockShape,
  formatMesh,
  formatSpec,
  type MeshShape,
  positionAlong,
  type Spec,
  splitCount,
} from "../ir/mesh.js";
import { type Watch, watch } from "../ir/reclaim.js";
import { at, formatType, rowMajorStrides, type Shape, sizeOf, type TensorType } from "../ir/shape.js";
import { addressablePositions, type ExecutionTarget, isFullyAddressable } from "./executionTarget.js";

/** Where the blocks of a tensor are: on which devices, and which part each holds. */
export interface Placement extends ExecutionTarget {
  readonly spec: Spec;
}

const withoutAxes: MeshShape = { axes: [] };

/** The placement of a whole tensor on one device, by default the first that this process holds. */
export function onDevice(engine: Engine, device = firstAddressable(engine)): Placement {
  const devices = [device];
  return { engine, mesh: withoutAxes, devices, positions: addressablePositions(engine, devices), spec: [] };
}

function firstAddressable(engine: Engine): number {
  let device = 0;
  while (device < engine.numDevices - 1 && !engine.isAddressable(device)) device++;
  return device;
}

/** The layout of blocks that are split further than the tensor's placement says, until they are needed whole. */
export interface Held {
  readonly placement: Placement;
  /** The buffers in the layout of the tensor's placement; the storage releases the old ones. */
  gather(storage: Storage): readonly DeviceBuffer[];
}

/** A call that will be started when its program is compiled. */
export interface DeferredStart {
  /** Resolved when it was started. */
  readonly started: Promise<void>;
  /** Starts it now, after all that were made before it. */
  startNow(): void;
}

/** The values of a concrete tensor: one buffer for every position of its mesh that this process holds. */
export class Storage {
  readonly type: TensorType;
  private where: Placement | undefined;
  private buffers: readonly DeviceBuffer[] | undefined;
  private split: Held | undefined;
  private watched: Watch | undefined;
  private pins = 0;
  private abandoned = false;
  /** The call that gives it values, until that is started. */
  private source: DeferredStart | undefined;
  private failure: { readonly error: unknown } | undefined;
  /** The number of calls that will read it when they are started. */
  private readers = 0;
  /** Whether the memory is to be released as soon as no such call needs it. */
  private isLeft = false;

  /**
   * @param placement where the buffers are, or the call that {@link settle}s where they are and what they are
   * @param split the layout of the buffers, if not that of the placement
   */
  constructor(
    placement: Placement | DeferredStart,
    type: TensorType,
    buffers: readonly DeviceBuffer[] = [],
    split?: Held,
  ) {
    this.type = type;
    if ("startNow" in placement) {
      this.source = placement;
      return;
    }
    if (buffers.length !== placement.positions.length) {
      throw new InternalError(
        `[Storage] ${buffers.length} buffers for ${placement.positions.length} addressable devices`,
      );
    }
    this.where = placement;
    this.buffers = buffers;
    this.split = split;
  }

  /** Gives the result of a deferred call the values of another storage, which is not used again. */
  settle(values: Storage): void {
    this.source = undefined;
    this.where = values.where;
    this.buffers = values.buffers;
    this.split = values.split;
    if (this.isLeft) this.release();
  }

  /** Makes a result of a deferred call report why there are no values. */
  fail(error: unknown): void {
    this.source = undefined;
    this.failure = { error };
  }

  /** Waits until the call that computes it is started. */
  async settled(): Promise<void> {
    await this.source?.started;
  }

  /** Whether a deferred call computes or reads it, so that other calls with it have to wait their turn. */
  get isAwaited(): boolean {
    return this.source !== undefined || this.readers > 0;
  }

  /** Keeps the memory for a call that will be started later, even if it is released until then. */
  reserve(): void {
    this.readers++;
  }

  /** Runs calls on what was reserved for them. */
  static reserved<T>(storages: readonly Storage[], use: () => T): T {
    const left = storages.filter(({ isLeft }) => isLeft);
    for (const storage of storages) storage.readers--;
    for (const storage of left) storage.isLeft = false;
    try {
      return use();
    } finally {
      for (const storage of left) storage.release();
    }
  }

  /** Where the values are; whoever asks before a deferred call is started starts it. */
  get placement(): Placement {
    this.source?.startNow();
    if (this.failure) throw this.failure.error;
    if (!this.where) throw new InternalError("[Storage] no placement");
    return this.where;
  }

  /** The actual layout of the buffers: that of the placement, or split further. */
  get held(): Placement {
    return this.split?.placement ?? this.placement;
  }

  /** Whether there are values, or only a type. */
  get hasValues(): boolean {
    return true;
  }

  /** Whether the memory was released. */
  get released(): boolean {
    return this.isLeft || (this.buffers === undefined && !this.source && !this.failure);
  }

  /** Whether a run that failed later has taken the buffers. */
  get isTaken(): boolean {
    return this.buffers?.some(({ isLive }) => isLive === false) ?? false;
  }

  /** The buffers in the layout of the placement. @param caller named in the error if they were released */
  read(caller: string): readonly DeviceBuffer[] {
    const held = this.readHeld(caller);
    if (!this.split) return held;
    const whole = this.split.gather(this);
    this.buffers = whole;
    this.split = undefined;
    for (const buffer of held) this.placement.engine.release(buffer);
    return whole;
  }

  /** The buffers as they are {@link held}. */
  readHeld(caller: string): readonly DeviceBuffer[] {
    this.source?.startNow();
    if (this.failure) throw this.failure.error;
    if (!this.buffers || this.isLeft) {
      throw new DisposedError(
        `[${caller}] this tensor's memory was released (by dispose(), using, or as a donated argument): keep a copy if it is needed again`,
      );
    }
    return this.buffers;
  }

  /** Releases the memory when `holder` becomes unreachable, unless the engine's buffers are collected automatically. */
  heldBy(holder: object): void {
    if (!this.source && this.placement.engine.selfCollecting) return;
    this.watched = watch(holder, () => {
      this.abandoned = true;
      if (this.pins === 0) this.release();
    });
  }

  /** Runs `use` and keeps the memory meanwhile, even if its holder becomes unreachable. */
  static pinned<T>(storages: readonly Storage[], use: () => T): T {
    for (const storage of storages) storage.pins++;
    try {
      return use();
    } finally {
      for (const storage of storages) {
        storage.pins--;
        if (storage.abandoned && storage.pins === 0) storage.release();
      }
    }
  }

  /** Releases the memory; later calls do nothing. */
  release(): void {
    if (this.isAwaited) {
      this.isLeft = true;
      return;
    }
    const buffers = this.buffers;
    this.forget();
    if (buffers) for (const buffer of buffers) this.placement.engine.release(buffer);
  }

  /** Drops the buffers without releasing them, because another owner has them now. */
  surrender(): void {
    this.forget();
  }

  private forget(): void {
    this.buffers = undefined;
    this.watched?.forget();
    this.watched = undefined;
  }

  /** One buffer of every distinct block with its mesh position; throws if other processes hold some of them. */
  blocks(caller: string): readonly HeldBlock[] {
    const { held, missing } = distinctBlocks(this.held, this.readHeld(caller));
    if (missing.length > 0) throw notAddressable(caller, this, held.length, missing);
    return held;
  }

  /** The elements of the whole tensor, assembled from the devices' blocks. */
  async download(caller: string): Promise<HostData> {
    if (this.source) await this.source.started;
    const { engine } = this.placement;
    const blocks = this.blocks(caller);
    return this.assemble(blocks, await Promise.all(blocks.map(({ buffer }) => engine.download(buffer))));
  }

  /** Whether parts can be copied without the rest: all blocks are here, and the engine copies ranges of them. */
  get hasParts(): boolean {
    const { engine, devices, positions } = this.placement;
    return engine.downloadInto !== undefined && isFullyAddressable({ devices, positions });
  }

  /**
   * Copies a part of the tensor that is one run of elements into memory that is used again for the next part: one dim of
   * the part may be shorter than the tensor's, those before it have size 1.
   *
   * @returns the bytes of the part, in the memory
   */
  async downloadPart({ shape, offsets }: HostPart, memory: PartMemory, caller: string): Promise<Uint8Array> {
    if (this.source) await this.source.started;
    const { engine } = this.placement;
    const { mesh, spec } = this.held;
    const bytesEach = byteSize(this.type.dtype);
    const block = blockShape(this.type.shape, spec, mesh);
    const addressIn = (sizes: Shape, index: readonly number[]) =>
      rowMajorStrides(sizes).reduce((sum, stride, d) => sum + at(index, d) * stride * bytesEach, 0);
    const inBytes = (sizes: readonly number[]) =>
      sizes.map((n, d) => (d === sizes.length - 1 ? n * bytesEach : n));
    const target = memory.target.subarray(0, sizeOf(shape) * bytesEach);
    for (const { position, buffer } of this.blocks(caller)) {
      const begin = blockOffsets(this.type.shape, spec, mesh, position);
      const low = offsets.map((offset, d) => Math.max(offset, at(begin, d)));
      const sizes = low.map(
        (n, d) => Math.min(at(offsets, d) + at(shape, d), at(begin, d) + at(block, d)) - n,
      );
      if (sizes.some((n) => n <= 0)) continue;
      const bytes = sizeOf(sizes) * bytesEach;
      const inBlock = low.map((n, d) => n - at(begin, d));
      const inPart = low.map((n, d) => n - at(offsets, d));
      // Its elements are one run in the block, and also in the part unless a later dim is split.
      const isRun = sizes.every((n, d) => n === shape[d] || shape.slice(0, d).every((m) => m === 1));
      const place = addressIn(shape, inPart);
      const into = isRun ? target.subarray(place, place + bytes) : memory.block.subarray(0, bytes);
      await engine.downloadInto?.(buffer, addressIn(block, inBlock), into);
      if (!isRun)
        copyBlock({ data: target, shape: inBytes(shape) }, into, inBytes(sizes), inBytes(inPart), "toWhole");
    }
    return target;
  }

  /** Waits until every addressable block is computed. */
  async ready(caller: string): Promise<void> {
    if (this.source) await this.source.started;
    await Promise.all(this.readHeld(caller).map((buffer) => this.placement.engine.ready(buffer)));
  }

  /** Like {@link download}, if all blocks are addressable and the engine can be read without waiting. */
  peek(caller: string): HostData | undefined {
    if (this.source) return undefined;
    const { engine } = this.placement;
    const { held, missing } = distinctBlocks(this.held, this.readHeld(caller));
    if (missing.length > 0) return undefined;
    const data = held.map(({ buffer }) => engine.peek(buffer));
    return data.every((block) => block !== undefined) ? this.assemble(held, data) : undefined;
  }

  /** Like {@link download}, on the calling thread; undefined where the engine cannot be read so. */
  readNow(caller: string): HostData | undefined {
    const { engine } = this.placement;
    const blocks = this.blocks(caller);
    const data = blocks.map(({ buffer }) => engine.readNow?.(buffer) ?? engine.peek(buffer));
    return data.every((block) => block !== undefined) ? this.assemble(blocks, data) : undefined;
  }

  private assemble(blocks: readonly HeldBlock[], data: readonly HostData[]): HostData {
    if (data.length === 1) return at(data, 0);
    const { mesh, spec } = this.held;
    const whole = allocateHost(this.type.dtype, sizeOf(this.type.shape));
    const block = blockShape(this.type.shape, spec, mesh);
    blocks.forEach(({ position }, i) => {
      const offsets = blockOffsets(this.type.shape, spec, mesh, position);
      copyBlock({ data: whole, shape: this.type.shape }, at(data, i), block, offsets, "toWhole");
    });
    return whole;
  }
}

/** Memory for parts of tensors, of which none is larger. */
export interface PartMemory {
  readonly target: Uint8Array;
  /** For what a device holds of a part. */
  readonly block: Uint8Array;
}

/** A block of a tensor that this process holds. */
export interface HeldBlock {
  /** A mesh position that holds it. */
  readonly position: number;
  readonly buffer: DeviceBuffer;
}

/** One buffer of each distinct addressable block, and the first mesh position of each of the others. */
function distinctBlocks(
  { mesh, spec, devices, positions }: Placement,
  buffers: readonly DeviceBuffer[],
): { readonly held: readonly HeldBlock[]; readonly missing: readonly number[] } {
  const blockAt = (position: number) => spec.map((axes) => positionAlong(mesh, position, axes)).join();
  const held = new Map<string, HeldBlock>();
  positions.forEach((position, i) => {
    const block = blockAt(position);
    if (!held.has(block)) held.set(block, { position, buffer: at(buffers, i) });
  });
  const missing = new Map<string, number>();
  if (!isFullyAddressable({ devices, positions })) {
    devices.forEach((_, position) => {
      const block = blockAt(position);
      if (!held.has(block) && !missing.has(block)) missing.set(block, position);
    });
  }
  return { held: [...held.values()], missing: [...missing.values()] };
}

function notAddressable(
  caller: string,
  { type, placement, held }: Storage,
  numHeld: number,
  missing: readonly number[],
): NotAddressableError {
  const { engine, mesh, spec, devices } = held;
  const { index, count } = engine.process;
  const kept = held === placement ? "" : ", as an update that devices share leaves its state";
  const where = missing.map((position) => at(devices, position)).join(", ");
  return new NotAddressableError(
    `[${caller}] ${formatType(type)} split as ${formatSpec(spec)} over ${formatMesh(mesh)}${kept}: ${numHeld} of its ` +
      `${numHeld + missing.length} blocks are in this process (${index} of ${count}), the others on devices ${where} ` +
      "of other processes: read tensor.addressableShards, or gather it in every process with " +
      "await processAllGather(tensor)",
  );
}

/** The index of the first element of a device's block along each dim. */
export function blockOffsets(shape: Shape, spec: Spec, mesh: MeshShape, device: number): number[] {
  const block = blockShape(shape, spec, mesh);
  return block.map((n, d) => n * positionAlong(mesh, device, spec[d] ?? []));
}

/** Copies between an array and a block of it that begins at `offsets`. */
function copyBlock(
  { data: whole, shape }: { readonly data: HostData; readonly shape: Shape },
  block: HostData,
  sizes: Shape,
  offsets: readonly number[],
  direction: "toWhole" | "toBlock",
): void {
  const strides = rowMajorStrides(shape);
  // Dims that the block has whole are copied with the one before them.
  const depth = sizes.findLastIndex((n, d) => n !== shape[d]);
  const outer = sizes.slice(0, Math.max(0, depth));
  const row = sizeOf(sizes.slice(outer.length));
  const rows = sizeOf(outer);
  const index = sizes.map(() => 0);
  for (let r = 0; r < rows; r++) {
    const start = index.reduce((sum, i, d) => sum + (i + at(offsets, d)) * at(strides, d), 0);
    if (direction === "toWhole") whole.set(block.subarray(r * row, (r + 1) * row), start);
    else block.set(whole.subarray(start, start + row), r * row);
    for (let d = outer.length - 1; d >= 0; d--) {
      const next = at(index, d) + 1;
      index[d] = next === at(sizes, d) ? 0 : next;
      if (next !== at(sizes, d)) break;
    }
  }
}

/** The part of a tensor that an array holds: its shape, and its offset in the tensor. */
export interface HostPart {
  readonly shape: Shape;
  readonly offsets: readonly number[];
}

/**
 * Copies a host array to the devices that this process holds, each its block.
 *
 * @param part which part of the tensor the array holds, at least all blocks of these devices; everything by default
 */
export function place(placement: Placement, type: TensorType, data: HostData, part?: HostPart): Storage {
  const { engine, mesh, devices, positions, spec } = placement;
  const whole = part === undefined && spec.every((axes) => splitCount(mesh, axes) === 1);
  const block = { dtype: type.dtype, shape: blockShape(type.shape, spec, mesh) };
  const buffers = positions.map((position) => {
    const device = at(devices, position);
    if (whole) return engine.upload(block, data, device);
    const elements = allocateHost(type.dtype, sizeOf(block.shape));
    const offsets = blockOffsets(type.shape, spec, mesh, position);
    const within = offsets.map((offset, d) => offset - (part?.offsets[d] ?? 0));
    copyBlock({ data, shape: part?.shape ?? type.shape }, elements, block.shape, within, "toBlock");
    return engine.upload(block, elements, device);
  });
  return new Storage(placement, type, buffers);
}

/** A function that reads a part of a tensor: into given memory, if there is any, or into its own. */
export type ReadPart = (part: HostPart, memory?: Uint8Array) => Promise<HostData>;

/**
 * Like {@link place} with a function that reads one part at a time, into memory of the devices where the engine can: no
 * process holds more than it needs.
 */
export async function placeParts(placement: Placement, type: TensorType, read: ReadPart): Promise<Storage> {
  const { engine, mesh, devices, positions, spec } = placement;
  const block = { dtype: type.dtype, shape: blockShape(type.shape, spec, mesh) };
  const parts = positions.map((position) => blockOffsets(type.shape, spec, mesh, position));
  const buffers: DeviceBuffer[] = [];
  // Devices with equal blocks are filled together, so that each block is read once and then forgotten.
  for (const key of new Set(parts.map(String))) {
    const first = parts.map(String).indexOf(key);
    const part = { shape: block.shape, offsets: at(parts, first) };
    let data: HostData | undefined;
    const filled = await engine.uploadBy?.(block, at(devices, at(positions, first)), async (memory) => {
      data = await read(part, memory);
    });
    const elements = data ?? (await read(part));
    positions.forEach((position, i) => {
      if (String(parts[i]) !== key) return;
      const isFilled = i === first && filled !== undefined;
      buffers[i] = isFilled ? filled : engine.upload(block, elements, at(devices, position));
    });
  }
  return new Storage(placement, type, buffers);
}

/** The bytes that one device holds of a tensor. */
export function bytesPerDevice(type: TensorType, { mesh, spec }: Placement): number {
  return sizeOf(blockShape(type.shape, spec, mesh)) * byteSize(type.dtype);
}
