import { GEMM_SCRATCH_BYTES } from "../../compiler/gemm/blockedGemm.js";
import { ModuleBuilder, sharedMemory } from "../../compiler/wasm/assembler.js";
import { byteSize, type HostData, viewHost } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { HighWaterMark, reclaim, type Watch, watch } from "../../ir/reclaim.js";
import { sizeOf, type TensorType } from "../../ir/shape.js";
import { type Block, Heap, roundUp } from "../memory/heap.js";

/** How much may be in use before unreachable arrays are collected. */
const RECLAIM_THRESHOLD_BYTES = 256 * 1024 * 1024;

const PAGE = 65536;
const MAX_PAGES = 65536;
/** Less address space than this is not worth having. */
const MIN_PAGES = (64 * 1024 * 1024) / PAGE;
/** Bytes after the last block, which kernels may read but which belong to no block. */
const TAIL = 1024;

/**
 * The memory in which kernels on the calling thread compute: scratch for matrix products, then a heap of arrays,
 * programs and intermediate values. It is address space of a fixed size, so that views of it stay valid; pages are
 * committed when they are first touched.
 *
 * An array is a view of its block and keeps it alive: the block is released when the view is unreachable, or at once by
 * {@link InlineMemory.free}. When there is no room, callers keep their elements in JavaScript arrays.
 */
export class InlineMemory {
  /** Where matrix products pack their operands. */
  readonly gemmScratch = 0;
  readonly bytes: Uint8Array;
  /** The buffer of the memory, cached because reading the property is slower. */
  private readonly buffer: ArrayBufferLike;
  /** How many requests in a row found no room. */
  private refused = 0;
  private copyBytes: CopyBytes | undefined;
  private readonly heap: Heap;
  private readonly mark: HighWaterMark;
  private readonly blocks = new WeakMap<HostData, { readonly block: Block; readonly watched: Watch }>();

  private constructor(readonly memory: WebAssembly.Memory) {
    this.buffer = memory.buffer;
    this.bytes = new Uint8Array(this.buffer);
    this.heap = new Heap(roundUp(GEMM_SCRATCH_BYTES), this.bytes.length - TAIL);
    this.mark = new HighWaterMark(Math.min(RECLAIM_THRESHOLD_BYTES, this.heap.capacity / 4));
  }

  /** Reserves address space, 4 GiB or what the system grants; undefined if that is too little. */
  static reserve(maxBytes = MAX_PAGES * PAGE): InlineMemory | undefined {
    for (let pages = Math.floor(maxBytes / PAGE); pages >= MIN_PAGES; pages = Math.floor(pages / 2)) {
      try {
        return new InlineMemory(new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }));
      } catch {
        // The system may grant half of it.
      }
    }
    return undefined;
  }

  /** How many bytes are in use. */
  get used(): number {
    return this.heap.used;
  }

  /** Whether an array lies here. */
  holds(data: HostData): boolean {
    return data.buffer === this.buffer;
  }

  /** Allocates a block, collecting unreachable ones if necessary; undefined when out of memory. */
  allocate(bytes: number): Block | undefined {
    this.mark.check(() => this.heap.used);
    const block = this.heap.allocate(bytes) ?? this.reclaimed(bytes);
    if (block !== undefined) this.refused = 0;
    return block;
  }

  /** Collects unreachable blocks, less and less often while that does not help. */
  private reclaimed(bytes: number): Block | undefined {
    const isPowerOfTwo = (this.refused & (this.refused - 1)) === 0;
    this.refused++;
    if (!isPowerOfTwo) return undefined;
    reclaim();
    return this.heap.allocate(bytes);
  }

  /** Copies bytes from one address to another, many times faster than typed arrays on shared memory. */
  copy(target: number, source: number, bytes: number): void {
    this.copyBytes ??= instantiateCopy(this.memory);
    this.copyBytes(target, source, bytes);
  }

  /** Releases a block. */
  release(block: Block): void {
    this.heap.release(block, 0);
  }

  /** The elements of a block as an array, which owns the block from now on. */
  adopt(type: TensorType, block: Block): HostData {
    const data = viewHost(type.dtype, this.buffer, block.address, sizeOf(type.shape));
    const { heap } = this;
    this.blocks.set(data, { block, watched: watch(data, () => heap.release(block, 0)) });
    return data;
  }

  /** Copies an array's elements into the memory; undefined when out of memory. */
  moveIn(type: TensorType, data: HostData): HostData | undefined {
    const block = this.allocate(byteLength(type));
    if (block === undefined) return undefined;
    const moved = this.adopt(type, block);
    moved.set(data);
    return moved;
  }

  /** Releases the block of an array; does nothing if the array lies elsewhere. */
  free(data: HostData): void {
    const owned = this.blocks.get(data);
    if (owned === undefined) return;
    this.blocks.delete(data);
    owned.watched.forget();
    this.heap.release(owned.block, 0);
  }
}

type CopyBytes = (target: number, source: number, bytes: number) => void;

function instantiateCopy(memory: WebAssembly.Memory): CopyBytes {
  const builder = new ModuleBuilder();
  builder.importMemory(sharedMemory("i32"));
  const signature = { params: ["i32", "i32", "i32"], results: [] } as const;
  builder.function(signature, (f) => f.get(f.param(0)).get(f.param(1)).get(f.param(2)).memoryCopy(), "copy");
  const module = new WebAssembly.Module(builder.toBytes());
  const { copy } = new WebAssembly.Instance(module, { env: { memory } }).exports;
  if (typeof copy !== "function") throw new InternalError("[inline] the copy module exports no copy");
  return (target, source, bytes) => void copy(target, source, bytes);
}

/** The bytes of a tensor's elements. */
export function byteLength({ dtype, shape }: TensorType): number {
  return sizeOf(shape) * byteSize(dtype);
}
