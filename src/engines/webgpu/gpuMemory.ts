import { InternalError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { type Block, Heap } from "../memory/heap.js";
import { type Gpu, USAGE } from "./gpu.js";

/** A piece of GPU memory: a block of a slab. */
export interface GpuBlock extends Block {
  readonly slab: number;
}

/** A range of a buffer. */
export interface Range {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly bytes: number;
}

/** The size of the first slab; each further one is twice as large, so that there are few. */
const FIRST_SLAB = 2 ** 26;

/** Shaders compute addresses in a slab with 32 bits. */
const LARGEST_BLOCK = 2 ** 32 - 256;

/** Buffers that shaders see as one, and what lies in them. */
interface Slab {
  /** All but the last have the largest size. */
  readonly buffers: readonly GPUBuffer[];
  readonly heap: Heap;
}

/**
 * The memory of a GPU: large buffers, the slabs, in which all tensors lie. A block that is larger than a buffer has a slab
 * of its own that consists of several. Commands run in the order in which they are submitted, so memory can be given to
 * the next run while an earlier one still uses it.
 */
export class GpuMemory {
  /** Slabs that were given back have left a gap. */
  private readonly slabs: (Slab | undefined)[] = [];
  /** The size of the largest buffer, a multiple of 256 bytes. */
  readonly largest: number;

  /**
   * @param capacity how many bytes it may take
   * @param watch tells the engine of errors of an allocation, which arrive later
   * @param submit hands commands to the GPU that may use memory which is about to be given back
   */
  constructor(
    private readonly gpu: Gpu,
    readonly capacity: number,
    private readonly watch: (errors: Promise<GPUError | null>, what: string) => void,
    private readonly submit: () => void,
  ) {
    const { maxBufferSize, maxStorageBufferBindingSize } = gpu.facts.limits;
    this.largest =
      Math.floor(Math.min(maxBufferSize, maxStorageBufferBindingSize, LARGEST_BLOCK) / 256) * 256;
  }

  /** Allocates a block; throws if the GPU cannot have one of this size. @param what it is for, for messages */
  allocate(bytes: number, what = "a tensor"): GpuBlock {
    const numBuffers = this.numBuffers(bytes);
    for (const [slab, one] of this.slabs.entries()) {
      // A shader can use few buffers, and reaches one faster than several.
      if (one?.buffers.length !== numBuffers) continue;
      const block = one.heap.allocate(bytes);
      if (block) return { ...block, slab };
    }
    const slab = this.add(bytes, what);
    const block = this.slab(slab).heap.allocate(bytes);
    if (block === undefined) throw new OutOfMemoryError(`[webgpu] no block of ${bytes} bytes`);
    return { ...block, slab };
  }

  release(block: GpuBlock): void {
    this.slab(block.slab).heap.release(block, 0);
  }

  /** How many buffers a block of this size lies in. */
  numBuffers(bytes: number): number {
    return Math.max(1, Math.ceil(bytes / this.largest));
  }

  /** The buffers of a slab. */
  buffers(slab: number): readonly GPUBuffer[] {
    return this.slab(slab).buffers;
  }

  /** The parts of a block, each in one buffer. */
  ranges({ slab, address, bytes }: GpuBlock): Range[] {
    const { largest } = this;
    const end = address + bytes;
    const [first, last] = [Math.floor(address / largest), Math.ceil(end / largest)];
    return this.buffers(slab)
      .slice(first, last)
      .map((buffer, i) => {
        const start = (first + i) * largest;
        const from = Math.max(address, start);
        return { buffer, offset: from - start, bytes: Math.min(end, start + largest) - from };
      });
  }

  private slab(slab: number): Slab {
    const found = at(this.slabs, slab);
    if (found === undefined) throw new InternalError(`[webgpu] slab ${slab} was given back`);
    return found;
  }

  private add(bytes: number, what: string): number {
    const { largest } = this;
    const least = Math.ceil(bytes / 256) * 256;
    if (least > LARGEST_BLOCK) {
      throw new OutOfMemoryError(
        `[webgpu] ${what} of ${bytes} bytes is too large: the webgpu engine has tensors of at most ${LARGEST_BLOCK}: split it over devices or into parts`,
      );
    }
    if (least > largest) this.giveBack();
    const taken = this.slabs.reduce((sum, slab) => sum + (slab?.heap.capacity ?? 0), 0);
    const size = Math.max(
      least,
      Math.min(FIRST_SLAB * 2 ** this.slabs.length, largest, this.capacity - taken),
    );
    if (taken + size > this.capacity) {
      throw new OutOfMemoryError(
        `[webgpu] ${bytes} more bytes do not fit: ${taken} of ${this.capacity} are in use; release tensors, donate them, or raise memoryBytes`,
      );
    }
    const { device } = this.gpu;
    device.pushErrorScope("out-of-memory");
    const usage = USAGE.storage | USAGE.copySource | USAGE.copyTarget;
    const label = `slab ${this.slabs.length}`;
    const buffers = range(this.numBuffers(size)).map((i) =>
      device.createBuffer({ size: Math.min(largest, size - i * largest), usage, label }),
    );
    this.watch(device.popErrorScope(), `memory of ${size} bytes`);
    return this.slabs.push({ buffers, heap: new Heap(0, size) }) - 1;
  }

  /** Gives the empty slabs of several buffers back: nothing else would use them. */
  private giveBack(): void {
    this.submit();
    this.slabs.forEach((slab, i) => {
      if (slab === undefined || slab.buffers.length === 1 || slab.heap.used > 0) return;
      for (const buffer of slab.buffers) buffer.destroy();
      this.slabs[i] = undefined;
    });
  }

  destroy(): void {
    for (const slab of this.slabs) for (const buffer of slab?.buffers ?? []) buffer.destroy();
  }
}
