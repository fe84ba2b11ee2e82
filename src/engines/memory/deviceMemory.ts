import type { MemoryUsage } from "../../ir/engineReports.js";
import { HighWaterMark } from "../../ir/reclaim.js";
import { formatBytes } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { type Block, Heap, roundUp } from "./heap.js";

/** A block of a device's memory and its current uses. */
export interface Allocation {
  /** Its offset in the device's part of the memory. */
  readonly block: Block;
  /** The last command that touches it. */
  lastUse: number;
  /** Number of downloads that still have to read it. */
  readers: number;
  /** Whether to free it once all downloads have read it. */
  dropped: boolean;
}

/** The physical memory that the devices of an engine may use together; pages that were touched stay counted. */
export class MemoryBudget {
  private taken = 0;

  constructor(readonly limit: number) {}

  /** How many bytes may still be taken. */
  get left(): number {
    return this.limit - this.taken;
  }

  /** Takes all the bytes, or none if fewer are left; returns whether it did. */
  take(bytes: number): boolean {
    if (bytes > this.left) return false;
    this.taken += bytes;
    return true;
  }
}

/** What a device's memory needs of its engine. */
export interface MemoryOwner {
  readonly budget: MemoryBudget;
  /** Scratch that each device needs at the beginning of its part, for collectives and products. */
  readonly scratchBytes: number;
  /** Maximum size of a device's part in bytes, even after {@link MemoryOwner.grow}. */
  readonly reach: number;
  /** Frees whatever can be freed, waiting for the devices if necessary. */
  relieve(): void;
  /** Moves all devices to larger parts; returns whether it did. */
  grow(): boolean;
  /** Advice for messages, besides using less, if this many bytes are missing. */
  advice(bytes: number): string;
}

/** A device's part of the memory. */
export interface MemoryPart {
  /** Address of its first byte. */
  readonly base: number;
  readonly bytes: number;
}

/** Upper limit of the memory a device may use before unreachable tensors are collected. */
const RECLAIM_THRESHOLD_BYTES = 256 * 1024 * 1024;

/** The heap grows by at least this many bytes. */
const GROWTH = 4 * 1024 * 1024;

/**
 * The memory of one device as the main thread manages it: scratch for collectives at the bottom, buffers and
 * loaded programs in a heap that grows upwards, and at the other end the arena, which all programs of the device
 * share because they run one after the other. Blocks are offsets into the device's part, which may move as a whole.
 *
 * Unreachable tensors are freed when usage reaches the threshold and before an allocation fails, so that they never
 * take more memory than what is in use.
 */
export class DeviceMemory {
  private readonly heap: Heap;
  private readonly arenas: number[] = [];
  private readonly mark: HighWaterMark;
  /** The largest extents that heap and arena have had: that memory is physical. */
  private readonly touched = { heap: 0, arena: 0 };

  constructor(
    private readonly device: number,
    private part: MemoryPart,
    private readonly owner: MemoryOwner,
  ) {
    const { scratchBytes, budget } = owner;
    const end = Math.min(part.bytes, scratchBytes + GROWTH);
    budget.take(end);
    this.touched.heap = end;
    this.heap = new Heap(scratchBytes, end);
    this.mark = new HighWaterMark(Math.min(RECLAIM_THRESHOLD_BYTES, this.usage.capacity / 4));
  }

  /** How many bytes buffers and loaded programs use, and how many they could. */
  get usage(): MemoryUsage {
    const { reach, budget, scratchBytes } = this.owner;
    const arena = this.arenaBytes;
    const end = Math.min(reach - arena, this.touched.heap + budget.left);
    const { used, peak } = this.heap;
    return { used, peak, capacity: end - scratchBytes, arena, together: budget.left };
  }

  /** Address of the device's scratch memory. */
  get scratch(): number {
    return this.part.base;
  }

  /** How much of the part, from its beginning, is in use. */
  get bytesInUse(): number {
    return this.heap.top;
  }

  /** The current address of a block. */
  addressOf({ block }: Allocation): number {
    return this.part.base + block.address;
  }

  /** Where an arena of this many bytes begins. */
  arenaAddress(bytes: number): number {
    return this.part.base + this.part.bytes - arenaSize(bytes);
  }

  /** Replaces the device's part with a larger one; blocks keep their offsets in it. */
  moveTo(part: MemoryPart): void {
    this.part = part;
  }

  /** Allocates memory for later commands, or throws with what was needed and what was available. */
  allocate(bytes: number, caller: string, what: () => string): Allocation {
    this.mark.check(() => this.heap.used);
    const block = this.insist(bytes, () => this.take(bytes));
    if (block === undefined) throw this.outOfMemory(bytes, caller, what());
    return { block, lastUse: 0, readers: 0, dropped: false };
  }

  /** Allocates memory that no command after `completed` touches, if there is any. */
  allocateQuiet(bytes: number, completed: number): Allocation | undefined {
    this.mark.check(() => this.heap.used);
    const block = this.take(bytes, completed);
    return block && { block, lastUse: 0, readers: 0, dropped: false };
  }

  /** Frees memory once all downloads have read it. */
  release(allocation: Allocation): void {
    allocation.dropped = true;
    if (allocation.readers === 0) this.heap.release(allocation.block, allocation.lastUse);
  }

  /** Ends one download. */
  endRead(allocation: Allocation): void {
    allocation.readers--;
    if (allocation.dropped && allocation.readers === 0)
      this.heap.release(allocation.block, allocation.lastUse);
  }

  /** Reserves a program's arena. */
  reserveArena(bytes: number, caller: string): void {
    const size = arenaSize(bytes);
    const isReserved = this.insist(size, () => size <= this.arenaBytes || this.makeArena(size) || undefined);
    if (!isReserved) throw this.outOfMemory(size, caller, "its intermediate values");
    this.arenas.push(size);
  }

  /** Releases a program's arena. */
  releaseArena(bytes: number): void {
    const i = this.arenas.indexOf(arenaSize(bytes));
    if (i >= 0) this.arenas.splice(i, 1);
  }

  /** Retries after freeing what can be freed, then in larger memories if the machine has enough. */
  private insist<T>(bytes: number, attempt: () => T | undefined): T | undefined {
    const first = attempt();
    if (first !== undefined) return first;
    const { owner, heap } = this;
    owner.relieve();
    let result = attempt();
    const fits = () => bytes - heap.freeAtEnd <= owner.budget.left;
    while (result === undefined && fits() && owner.grow()) result = attempt();
    return result;
  }

  private take(bytes: number, quietAt?: number): Block | undefined {
    const { heap } = this;
    return (
      heap.allocate(bytes, quietAt) ?? (this.extendHeap(bytes) ? heap.allocate(bytes, quietAt) : undefined)
    );
  }

  /** Grows the heap until a block fits at its end; returns whether it does. */
  private extendHeap(bytes: number): boolean {
    const { heap } = this;
    const room = this.part.bytes - this.arenaBytes;
    const needed = heap.top + roundUp(bytes);
    if (needed <= heap.limit || needed > room) return false;
    const generous = Math.min(room, Math.max(needed, heap.limit + GROWTH));
    const end = [generous, needed].find((to) => this.touch("heap", to));
    return end !== undefined && heap.moveEnd(end);
  }

  private makeArena(size: number): boolean {
    const end = this.part.bytes - size;
    if (this.heap.limit > end && !this.heap.moveEnd(end)) return false;
    return this.touch("arena", size);
  }

  /** Takes from the budget what the heap or the arena needs for these extents. */
  private touch(what: "heap" | "arena", bytes: number): boolean {
    if (!this.owner.budget.take(Math.max(0, bytes - this.touched[what]))) return false;
    this.touched[what] = Math.max(this.touched[what], bytes);
    return true;
  }

  private get arenaBytes(): number {
    return this.arenas.reduce((largest, bytes) => Math.max(largest, bytes), 0);
  }

  private outOfMemory(bytes: number, caller: string, what: string): OutOfMemoryError {
    const { used, capacity, arena } = this.usage;
    const atEnd = Math.min(this.part.bytes - arena, this.touched.heap + this.owner.budget.left);
    const largest = Math.max(this.heap.largestFree, atEnd - this.heap.top);
    return new OutOfMemoryError(
      `[${caller}] device ${this.device} needs ${formatBytes(bytes)} for ${what}, but of its ` +
        `${formatBytes(capacity + arena)} buffers take ${formatBytes(used)} and intermediate values ` +
        `${formatBytes(arena)}; the largest free piece has ${formatBytes(largest)}: release ` +
        `tensors, donate inputs, use more devices, or ${this.owner.advice(bytes)}`,
    );
  }
}

function arenaSize(bytes: number): number {
  return Math.ceil(bytes / 64) * 64;
}
