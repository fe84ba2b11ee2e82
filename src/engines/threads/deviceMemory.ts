import { HighWaterMark } from "../../ir/reclaim.js";
import { formatBytes } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { type Block, Heap } from "./heap.js";
import type { Region } from "./peers.js";

/** A block of a device's memory with what is known of its use. */
export interface Allocation {
  readonly block: Block;
  /** The last command that touches it. */
  lastUse: number;
  /** Downloads that still have to read it. */
  readers: number;
  /** Whether it is to be given back as soon as nobody reads it. */
  dropped: boolean;
}

/** How much of its memory a device may use before the tensors that nothing reaches are looked for, at most. */
const EASY_BYTES = 256 * 1024 * 1024;

/**
 * The memory of one device as the main thread manages it: scratch for collectives at the bottom, buffers and
 * loaded programs in a heap, and on top of them the arena, which all programs of the device share because they
 * run one after the other.
 *
 * Tensors that a program has dropped are given back when the mark is reached and before anything is refused, so
 * that what they take is at most as much as what is in use.
 */
export class DeviceMemory {
  readonly scratch: number;
  private readonly heap: Heap;
  private readonly arenas: number[] = [];
  private readonly mark: HighWaterMark;

  /** @param relieve gives back what can be given back, waiting for the devices if it must */
  constructor(
    private readonly device: number,
    private readonly region: Region,
    scratchBytes: number,
    private readonly relieve: () => void,
  ) {
    this.scratch = region.start;
    this.heap = new Heap(region.start + scratchBytes, region.end);
    this.mark = new HighWaterMark(Math.min(EASY_BYTES, this.heap.capacity / 4));
  }

  /** How many bytes buffers and loaded programs take, and how many they could. */
  get usage(): { readonly used: number; readonly capacity: number; readonly arena: number } {
    return { used: this.heap.used, capacity: this.heap.capacity, arena: this.arenaBytes };
  }

  /** Takes memory that commands may use from now on, or throws saying what was needed and what there was. */
  allocate(bytes: number, caller: string, what: () => string): Allocation {
    this.mark.check(() => this.heap.used);
    const block = this.heap.allocate(bytes) ?? this.relieved(() => this.heap.allocate(bytes));
    if (block === undefined) throw this.outOfMemory(bytes, caller, what());
    return { block, lastUse: 0, readers: 0, dropped: false };
  }

  /** Takes memory that no command after `completed` touches, if there is any. */
  allocateQuiet(bytes: number, completed: number): Allocation | undefined {
    this.mark.check(() => this.heap.used);
    const block = this.heap.allocate(bytes, completed);
    return block && { block, lastUse: 0, readers: 0, dropped: false };
  }

  /** Gives memory back, as soon as downloads have read it. */
  release(allocation: Allocation): void {
    allocation.dropped = true;
    if (allocation.readers === 0) this.heap.release(allocation.block, allocation.lastUse);
  }

  /** Ends one download's interest. */
  endRead(allocation: Allocation): void {
    allocation.readers--;
    if (allocation.dropped && allocation.readers === 0)
      this.heap.release(allocation.block, allocation.lastUse);
  }

  /** Makes room for a program's arena and returns where it begins. */
  reserveArena(bytes: number, caller: string): number {
    const size = Math.ceil(bytes / 64) * 64;
    const grow = () => size <= this.arenaBytes || this.heap.moveEnd(this.region.end - size);
    if (!grow() && !this.relieved(grow)) {
      throw this.outOfMemory(size, caller, "its intermediate values");
    }
    this.arenas.push(size);
    return this.region.end - size;
  }

  /** Gives a program's arena back. */
  releaseArena(bytes: number): void {
    const size = Math.ceil(bytes / 64) * 64;
    const i = this.arenas.indexOf(size);
    if (i >= 0) this.arenas.splice(i, 1);
    this.heap.moveEnd(this.region.end - this.arenaBytes);
  }

  private relieved<T>(attempt: () => T): T {
    this.relieve();
    return attempt();
  }

  private get arenaBytes(): number {
    return this.arenas.reduce((largest, bytes) => Math.max(largest, bytes), 0);
  }

  private outOfMemory(bytes: number, caller: string, what: string): OutOfMemoryError {
    const { used, capacity, arena } = this.usage;
    return new OutOfMemoryError(
      `[${caller}] device ${this.device} needs ${formatBytes(bytes)} for ${what}, but of its ` +
        `${formatBytes(capacity + arena)} buffers take ${formatBytes(used)} and intermediate values ` +
        `${formatBytes(arena)}; the largest free piece has ${formatBytes(this.heap.largestFree)}: release ` +
        `tensors, donate inputs, use more devices, or open the engine with a larger memoryBytes`,
    );
  }
}
