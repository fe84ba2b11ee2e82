/** A piece of a device's memory that is in use. */
export interface Block {
  readonly address: number;
  readonly bytes: number;
}

interface Node {
  address: number;
  bytes: number;
  free: boolean;
  /** A free block may still be written by commands up to this one. */
  busyUntil: number;
  previous: Node | undefined;
  next: Node | undefined;
}

function freeNode(address: number, bytes: number, previous?: Node): Node {
  return { address, bytes, free: true, busyUntil: 0, previous, next: undefined };
}

const ALIGNMENT = 64;

/** The size that is actually allocated for a request. */
export function roundUp(bytes: number): number {
  return Math.max(ALIGNMENT, Math.ceil(bytes / ALIGNMENT) * ALIGNMENT);
}

/**
 * The allocator of one device's memory, kept by the main thread: best fit, with the lowest address first among
 * equals; adjacent free blocks are merged.
 *
 * A device runs its commands in order, so freed memory can be given to a later command at once although earlier
 * ones still use it: a block records the last command that may touch it, and only writes outside that order (the
 * main thread's uploads) need quiet blocks.
 */
export class Heap {
  private readonly nodes = new Map<number, Node>();
  /** Free blocks by size, then address. */
  private readonly free: Node[] = [];
  private last: Node;
  private usedBytes = 0;
  private maxBytes = 0;

  constructor(
    readonly start: number,
    private end: number,
  ) {
    this.last = freeNode(start, end - start);
    this.insertFree(this.last);
  }

  /** Total number of bytes. */
  get capacity(): number {
    return this.end - this.start;
  }

  /** Where the heap ends. */
  get limit(): number {
    return this.end;
  }

  /** The bytes of the free block at the end. */
  get freeAtEnd(): number {
    return this.last.free ? this.last.bytes : 0;
  }

  /** Where the last block that is in use ends. */
  get top(): number {
    return this.end - this.freeAtEnd;
  }

  /** How many bytes are in use. */
  get used(): number {
    return this.usedBytes;
  }

  /** The most bytes that were in use at any time. */
  get peak(): number {
    return this.maxBytes;
  }

  /** The size of the largest free block. */
  get largestFree(): number {
    return this.free.at(-1)?.bytes ?? 0;
  }

  /**
   * Allocates a block, or returns `undefined` if none fits.
   *
   * @param quietAt only blocks that no command after this number touches are used
   */
  allocate(bytes: number, quietAt = Number.POSITIVE_INFINITY): Block | undefined {
    const size = roundUp(bytes);
    for (let i = this.lowerBound(size, 0); i < this.free.length; i++) {
      const node = this.free[i];
      if (node === undefined || node.busyUntil > quietAt) continue;
      this.free.splice(i, 1);
      this.split(node, size);
      node.free = false;
      this.nodes.set(node.address, node);
      this.usedBytes += size;
      this.maxBytes = Math.max(this.maxBytes, this.usedBytes);
      return { address: node.address, bytes: size };
    }
    return undefined;
  }

  /** Frees a block; commands up to `busyUntil` may still touch it. */
  release(block: Block, busyUntil: number): void {
    const node = this.nodes.get(block.address);
    if (node === undefined) throw new RangeError(`[heap] no block begins at ${block.address}`);
    this.nodes.delete(block.address);
    this.usedBytes -= node.bytes;
    node.free = true;
    node.busyUntil = busyUntil;
    const { previous, next } = node;
    if (next?.free) {
      this.removeFree(next);
      this.absorbNext(node, next);
    }
    if (previous?.free) {
      this.removeFree(previous);
      this.absorbNext(previous, node);
      this.insertFree(previous);
    } else {
      this.insertFree(node);
    }
  }

  /** Moves the end of the heap; returns whether the memory in between was free. */
  moveEnd(end: number): boolean {
    const { last } = this;
    if (end < this.end && !(last.free && last.address + ALIGNMENT <= end)) return false;
    if (last.free) {
      this.removeFree(last);
      last.bytes = end - last.address;
      this.insertFree(last);
    } else if (end > this.end) {
      const node = freeNode(this.end, end - this.end, last);
      last.next = node;
      this.last = node;
      this.insertFree(node);
    }
    this.end = end;
    return true;
  }

  private split(node: Node, size: number): void {
    if (node.bytes === size) return;
    const rest = freeNode(node.address + size, node.bytes - size, node);
    rest.busyUntil = node.busyUntil;
    rest.next = node.next;
    if (node.next) node.next.previous = rest;
    else this.last = rest;
    node.next = rest;
    node.bytes = size;
    this.insertFree(rest);
  }

  private absorbNext(node: Node, next: Node): void {
    node.bytes += next.bytes;
    node.busyUntil = Math.max(node.busyUntil, next.busyUntil);
    node.next = next.next;
    if (next.next) next.next.previous = node;
    else this.last = node;
  }

  private lowerBound(bytes: number, address: number): number {
    let low = 0;
    let high = this.free.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const node = this.free[middle];
      if (node && (node.bytes < bytes || (node.bytes === bytes && node.address < address))) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private insertFree(node: Node): void {
    this.free.splice(this.lowerBound(node.bytes, node.address), 0, node);
  }

  private removeFree(node: Node): void {
    const i = this.lowerBound(node.bytes, node.address);
    if (this.free[i] !== node) throw new RangeError(`[heap] the free list lost the block at ${node.address}`);
    this.free.splice(i, 1);
  }
}
