import { at } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { type Block, Heap } from "../memory/heap.js";
import { type Gpu, USAGE } from "./gpu.js";

/** A piece of GPU memory: a block of a slab. */
export interface GpuBlock extends Block {
  readonly slab: number;
}

/** The size of the first slab; each further one is twice as large, so that there are few. */
const FIRST_SLAB = 2 ** 26;

/**
 * The memory of a GPU: large buffers, the slabs, in which all tensors lie. Commands run in the order in which they are
 * submitted, so memory can be given to the next run while an earlier one still uses it.
 */
export class GpuMemory {
  readonly buffers: GPUBuffer[] = [];
  private readonly heaps: Heap[] = [];
  /** The largest block, a multiple of 256 bytes. */
  readonly largest: number;

  /**
   * @param capacity how many bytes it may take
   * @param watch tells the engine of errors of an allocation, which arrive later
   */
  constructor(
    private readonly gpu: Gpu,
    readonly capacity: number,
    private readonly watch: (errors: Promise<GPUError | null>, what: string) => void,
  ) {
    const { maxBufferSize, maxStorageBufferBindingSize } = gpu.facts.limits;
    this.largest =
      Math.floor(Math.min(maxBufferSize, maxStorageBufferBindingSize, 2 ** 32 - 256) / 256) * 256;
  }

  /** Allocates a block; throws if the GPU cannot have one of this size. @param what it is for, for messages */
  allocate(bytes: number, what = "a tensor"): GpuBlock {
    for (const [slab, heap] of this.heaps.entries()) {
      const block = heap.allocate(bytes);
      if (block) return { ...block, slab };
    }
    const slab = this.add(bytes, what);
    const block = at(this.heaps, slab).allocate(bytes);
    if (block === undefined) throw new OutOfMemoryError(`[webgpu] no block of ${bytes} bytes`);
    return { ...block, slab };
  }

  release(block: GpuBlock): void {
    at(this.heaps, block.slab).release(block, 0);
  }

  /** The buffer of a slab. */
  buffer(slab: number): GPUBuffer {
    return at(this.buffers, slab);
  }

  private add(bytes: number, what: string): number {
    const { largest } = this;
    const least = Math.ceil(bytes / 256) * 256;
    if (least > largest) {
      throw new OutOfMemoryError(
        `[webgpu] ${what} of ${bytes} bytes is too large: buffers of ${this.gpu.facts.name} have at most ${largest}: split it over devices or into parts`,
      );
    }
    const taken = this.heaps.reduce((sum, heap) => sum + heap.capacity, 0);
    const size = Math.max(
      least,
      Math.min(FIRST_SLAB * 2 ** this.heaps.length, largest, this.capacity - taken),
    );
    if (taken + size > this.capacity) {
      throw new OutOfMemoryError(
        `[webgpu] ${bytes} more bytes do not fit: ${taken} of ${this.capacity} are in use; release tensors, donate them, or raise memoryBytes`,
      );
    }
    const { device } = this.gpu;
    device.pushErrorScope("out-of-memory");
    const usage = USAGE.storage | USAGE.copySource | USAGE.copyTarget;
    this.buffers.push(device.createBuffer({ size, usage, label: `slab ${this.heaps.length}` }));
    this.watch(device.popErrorScope(), `memory of ${size} bytes`);
    this.heaps.push(new Heap(0, size));
    return this.heaps.length - 1;
  }

  destroy(): void {
    for (const buffer of this.buffers) buffer.destroy();
  }
}
