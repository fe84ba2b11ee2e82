import { allocateHost, byteSize, type HostData } from "../ir/dtype.js";
import type { DeviceBuffer, Engine } from "../ir/engine.js";
import { DisposedError, InternalError } from "../ir/errors.js";
import { axesSize, blockShape, type MeshShape, positionAlong, type Spec, splitCount } from "../ir/mesh.js";
import { at, rowMajorStrides, type Shape, sizeOf, type TensorType } from "../ir/shape.js";
import type { Place } from "./place.js";

/** Where the blocks of a tensor lie: on which devices, and which part each holds. */
export interface Placement extends Place {
  readonly spec: Spec;
}

/** The placement of a whole tensor on one device. */
export function onDevice(engine: Engine, device = 0): Placement {
  return { engine, mesh: { axes: [] }, devices: [device], spec: [] };
}

/** The values of a concrete tensor: one buffer for every position of its mesh. */
export class Storage {
  readonly placement: Placement;
  readonly type: TensorType;
  private buffers: readonly DeviceBuffer[] | undefined;

  constructor(placement: Placement, type: TensorType, buffers: readonly DeviceBuffer[]) {
    if (buffers.length !== axesSize(placement.mesh.axes)) {
      throw new InternalError(
        `[Storage] ${buffers.length} buffers for ${axesSize(placement.mesh.axes)} devices`,
      );
    }
    this.placement = placement;
    this.type = type;
    this.buffers = buffers;
  }

  /** Whether the memory was given back. */
  get released(): boolean {
    return this.buffers === undefined;
  }

  /** The buffers, for a reader named in the error if they are gone. */
  read(caller: string): readonly DeviceBuffer[] {
    if (!this.buffers) {
      throw new DisposedError(
        `[${caller}] this tensor's memory was given back (by dispose(), using, or as a donated argument): keep a copy if it is needed again`,
      );
    }
    return this.buffers;
  }

  /** Gives the memory back to the engine; later calls do nothing. */
  release(): void {
    const buffers = this.buffers;
    this.buffers = undefined;
    if (buffers) for (const buffer of buffers) this.placement.engine.release(buffer);
  }

  /** Forgets the buffers without giving them back, because somebody else owns them now. */
  surrender(): void {
    this.buffers = undefined;
  }

  /** The elements of the whole tensor, assembled from the devices' blocks. */
  async download(caller: string): Promise<HostData> {
    const { engine, mesh, spec } = this.placement;
    const buffers = this.read(caller);
    const blocks = distinctBlocks(mesh, spec).map((position) => engine.download(at(buffers, position)));
    return this.assemble(await Promise.all(blocks));
  }

  /** Waits until every block is computed. */
  async ready(caller: string): Promise<void> {
    await Promise.all(this.read(caller).map((buffer) => this.placement.engine.ready(buffer)));
  }

  /** Like {@link download}, if the engine can be read without waiting. */
  peek(caller: string): HostData | undefined {
    const { engine, mesh, spec } = this.placement;
    const buffers = this.read(caller);
    const blocks = distinctBlocks(mesh, spec).map((position) => engine.peek(at(buffers, position)));
    return blocks.every((block) => block !== undefined) ? this.assemble(blocks) : undefined;
  }

  private assemble(blocks: readonly HostData[]): HostData {
    if (blocks.length === 1) return at(blocks, 0);
    const { mesh, spec } = this.placement;
    const whole = allocateHost(this.type.dtype, sizeOf(this.type.shape));
    distinctBlocks(mesh, spec).forEach((position, i) => {
      copyBlock(whole, at(blocks, i), this.type.shape, spec, mesh, position, "toWhole");
    });
    return whole;
  }
}

/** The first mesh position that holds each different block of a tensor. */
export function distinctBlocks(mesh: MeshShape, spec: Spec): number[] {
  const seen = new Set<string>();
  const devices: number[] = [];
  for (let device = 0; device < axesSize(mesh.axes); device++) {
    const key = spec.map((axes) => positionAlong(mesh, device, axes)).join();
    if (!seen.has(key)) devices.push(device);
    seen.add(key);
  }
  return devices;
}

/** The index of the first element of a device's block along each dim. */
export function blockOffsets(shape: Shape, spec: Spec, mesh: MeshShape, device: number): number[] {
  const block = blockShape(shape, spec, mesh);
  return block.map((n, d) => n * positionAlong(mesh, device, spec[d] ?? []));
}

/** Copies between a whole tensor and one device's block of it. */
function copyBlock(
  whole: HostData,
  block: HostData,
  shape: Shape,
  spec: Spec,
  mesh: MeshShape,
  device: number,
  direction: "toWhole" | "toBlock",
): void {
  const sizes = blockShape(shape, spec, mesh);
  const offsets = blockOffsets(shape, spec, mesh, device);
  const strides = rowMajorStrides(shape);
  const row = sizes.at(-1) ?? 1;
  const rows = row === 0 ? 0 : sizeOf(sizes) / row;
  const index = sizes.map(() => 0);
  for (let r = 0; r < rows; r++) {
    const start = index.reduce((sum, i, d) => sum + (i + at(offsets, d)) * at(strides, d), 0);
    if (direction === "toWhole") whole.set(block.subarray(r * row, (r + 1) * row), start);
    else block.set(whole.subarray(start, start + row), r * row);
    for (let d = sizes.length - 2; d >= 0; d--) {
      const next = at(index, d) + 1;
      index[d] = next === at(sizes, d) ? 0 : next;
      if (next !== at(sizes, d)) break;
    }
  }
}

/** Copies a host array to the devices, each its block. */
export function place(placement: Placement, type: TensorType, data: HostData): Storage {
  const { engine, mesh, devices, spec } = placement;
  const whole = spec.every((axes) => splitCount(mesh, axes) === 1);
  const block = { dtype: type.dtype, shape: blockShape(type.shape, spec, mesh) };
  const buffers = devices.map((device, position) => {
    if (whole) return engine.upload(block, data, device);
    const part = allocateHost(type.dtype, sizeOf(block.shape));
    copyBlock(data, part, type.shape, spec, mesh, position, "toBlock");
    return engine.upload(block, part, device);
  });
  return new Storage(placement, type, buffers);
}

/** The bytes that one device holds of a tensor. */
export function bytesPerDevice(type: TensorType, { mesh, spec }: Placement): number {
  return sizeOf(blockShape(type.shape, spec, mesh)) * byteSize(type.dtype);
}
