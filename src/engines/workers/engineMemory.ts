import { availableMemory } from "#engines/system/machineMemory";
import { discardPages } from "#engines/system/pages";
import { mayBlock } from "#platform/system";
import { ValueError } from "../../ir/errors.js";
import { at, formatBytes, range } from "../../ir/shape.js";
import { SCRATCH } from "../devices/scratch.js";
import { OutOfMemoryError } from "../errors.js";
import { DeviceMemory, MemoryBudget, type MemoryOwner } from "../memory/deviceMemory.js";
import {
  createMemories,
  describeReach,
  farthest,
  type LayoutChoice,
  type LayoutKind,
  layoutChoices,
  type MemoryLayout,
} from "../memory/memoryLayout.js";

/** The share of the free memory that devices may take; JavaScript and the system need some, too. */
const SHARE_OF_FREE = 0.9;

/** What a device may have at least, however little is free. */
const LEAST_BYTES = 64 * 1024 * 1024;

/** What the memory of an engine asks of it. */
export interface EngineMemoryHooks {
  /** Gives back what can be given back, waiting for the devices if it must. */
  relieve(): void;
  /** Lets every device move to a layout, with its programs, and waits until all have. */
  move(layout: MemoryLayout, before: MemoryLayout): void;
}

/** How the memory of an engine is made. */
export interface EngineMemoryOptions {
  readonly numDevices: number;
  /** The most that each device may have; without it devices grow into what the machine has. */
  readonly memoryBytes?: number | undefined;
  /** The share of the machine's memory that is this process's; all of it by default. */
  readonly share?: number | undefined;
  /** The layout to begin with, whatever would be chosen. */
  readonly layout?: LayoutKind | undefined;
  /** The layouts that devices can have; those of this runtime by default. */
  readonly choices?: readonly LayoutChoice[] | undefined;
}

/**
 * The memories of an engine's devices: they begin in the fastest layout, and move to one that reaches further when
 * a device needs more. What they take together is bounded by what the machine had free when the engine was opened.
 */
export class EngineMemory implements MemoryOwner {
  readonly devices: readonly DeviceMemory[];
  readonly budget: MemoryBudget;
  readonly scratchBytes = SCRATCH.size;
  readonly reach: number;
  private current: MemoryLayout;
  private views: readonly Uint8Array[];
  /** Layouts that reach further than the current one. */
  private further: LayoutChoice[];
  private isMoving = false;
  /** What sets the budget, for messages. */
  private readonly limit: string;

  constructor(
    private readonly options: EngineMemoryOptions,
    private readonly hooks: EngineMemoryHooks,
  ) {
    const { numDevices, memoryBytes, layout, share = 1 } = options;
    // Growing into another layout waits for the devices.
    const numChoices = memoryBytes === undefined && !mayBlock() ? 1 : undefined;
    const { choices = layoutChoices(numDevices).slice(0, numChoices) } = options;
    if (memoryBytes === undefined) {
      const { bytes, limit } = availableMemory();
      this.limit = limit;
      this.budget = new MemoryBudget(
        Math.floor(Math.max(SHARE_OF_FREE * bytes * share, numDevices * LEAST_BYTES)),
      );
    } else {
      this.limit = "";
      this.budget = new MemoryBudget(Number.POSITIVE_INFINITY);
    }
    const wanted = memoryBytes === undefined ? this.budget.limit : memoryBytes + SCRATCH.size;
    if (memoryBytes !== undefined) checkMemoryBytes(memoryBytes, farthest(choices));
    this.reach = Math.min(farthest(choices), wanted);
    const begin = choices.findIndex(({ kind, reach }) =>
      layout === undefined ? memoryBytes === undefined || reach >= wanted : kind === layout,
    );
    const choice = at(choices, Math.max(0, begin));
    const bytes = Math.min(choice.reach, wanted);
    this.further = memoryBytes === undefined ? choices.slice(begin + 1) : [];
    this.current = createMemories(choice, numDevices, bytes, memoryBytes !== undefined);
    this.views = viewsOf(this.current);
    this.devices = range(numDevices).map((device) => new DeviceMemory(device, this.partOf(device), this));
  }

  /** The layout that the devices have now. */
  get layout(): MemoryLayout {
    return this.current;
  }

  /** The most bytes that tensors and programs of one device can take. */
  get bytesPerDevice(): number {
    return this.reach - SCRATCH.size;
  }

  /** All bytes of a device's memory. */
  bytesOf(device: number): Uint8Array {
    return at(this.views, device);
  }

  relieve(): void {
    this.hooks.relieve();
  }

  grow(): boolean {
    if (this.isMoving) return false;
    for (let next = this.further.shift(); next !== undefined; next = this.further.shift()) {
      const bytes = Math.min(next.reach, this.reach);
      if (bytes > this.current.bytes && this.moveTo(next, bytes)) return true;
    }
    return false;
  }

  advice(bytes: number): string {
    if (this.options.memoryBytes !== undefined) return "open the engine with a larger memoryBytes";
    if (bytes <= this.budget.left) return `smaller pieces: a device can have ${describeReach(this.reach)}`;
    return (
      `make room on the machine: devices may take ${formatBytes(this.budget.limit)} together ` +
      `(${SHARE_OF_FREE * 100} % of ${this.limit})`
    );
  }

  /** Gives the real memory back to the system; no device may run any more. */
  discard(): void {
    discardLayout(this.current);
  }

  private moveTo(choice: LayoutChoice, bytes: number): boolean {
    const old = this.current;
    let layout: MemoryLayout;
    try {
      layout = createMemories(choice, this.options.numDevices, bytes, true);
    } catch (error) {
      if (error instanceof OutOfMemoryError) return false;
      throw error;
    }
    this.current = layout;
    this.devices.forEach((memory, device) => {
      memory.moveTo(this.partOf(device));
    });
    this.isMoving = true;
    try {
      this.hooks.move(layout, old);
    } finally {
      this.isMoving = false;
    }
    this.views = viewsOf(layout);
    discardLayout(old);
    return true;
  }

  private partOf(device: number): { readonly base: number; readonly bytes: number } {
    return { base: at(this.current.bases, device), bytes: this.current.bytes };
  }
}

function discardLayout({ memories }: MemoryLayout): void {
  for (const memory of new Set(memories)) discardPages(memory);
}

function viewsOf({ memories }: MemoryLayout): Uint8Array[] {
  return memories.map((memory) => new Uint8Array(memory.buffer));
}

function checkMemoryBytes(bytes: number, most: number): void {
  if (Number.isFinite(bytes) && bytes > 0 && bytes + SCRATCH.size <= most) return;
  const wanted = bytes > 0 ? `${bytes} (${formatBytes(bytes)})` : bytes;
  throw new ValueError(
    `[createThreadsEngine] memoryBytes is ${wanted}: use at least 1 byte; a device can have ${describeReach(most)}`,
  );
}
