import { formatBytes } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { addressSpace } from "../machineMemory.js";

/**
 * Where the devices' tensors lie. One `WebAssembly.Memory` for all devices is fastest, because a kernel can read
 * a peer's elements where they are, but it ends at 4 GiB; beyond that every device has a memory of its own and
 * peers' elements are copied over.
 */
export interface MemoryLayout {
  readonly kind: LayoutKind;
  /** The memory of every device; all the same one when it is shared. */
  readonly memories: readonly WebAssembly.Memory[];
  /** Where each device's part of its memory begins. */
  readonly bases: readonly number[];
  /** The bytes of every device's part. */
  readonly bytes: number;
}

/** Whether all devices share one memory or have one each. */
export type LayoutKind = "shared" | "separate";

/** A kind of layout, and the most bytes that a device can have in it. */
export interface LayoutChoice {
  readonly kind: LayoutKind;
  readonly reach: number;
}

const PAGE = 65536;
const MAX_PAGES = 65536;
/** Bytes after the last part, which kernels may read but nobody owns. */
const TAIL = 1024;
/** Less memory than this is not worth having. */
const LEAST_BYTES = 16 * 1024 * 1024;

/** The layouts that so many devices can have here: the fastest first, then those that reach further. */
export function layoutChoices(numDevices: number): LayoutChoice[] {
  const choices: LayoutChoice[] = [
    { kind: "shared", reach: align((MAX_PAGES * PAGE - TAIL) / numDevices) },
    { kind: "separate", reach: align(MAX_PAGES * PAGE - TAIL) },
  ];
  return choices.filter(({ reach }, i) => i === 0 || reach > (choices[i - 1]?.reach ?? 0));
}

/** The most bytes that a device can have in any of some layouts. */
export function farthest(choices: readonly LayoutChoice[]): number {
  return choices.at(-1)?.reach ?? 0;
}

/** How far a device's memory reaches here and where it would reach further, for messages. */
export function describeReach(reach: number): string {
  const most = `${formatBytes(reach)} on Node ${process.versions.node}`;
  return reach < MAX_PAGES * PAGE
    ? `${most}, and up to 16 GiB from Node 24 on, which has 64-bit memories`
    : most;
}

function align(bytes: number): number {
  return Math.floor(bytes / 64) * 64;
}

/**
 * Reserves address space for all devices; pages become real when they are first touched.
 *
 * @param bytes what each device has
 * @param isExact whether less will not do; otherwise it is halved while the system refuses it
 */
export function createMemories(
  kind: LayoutKind,
  numDevices: number,
  bytes: number,
  isExact: boolean,
): MemoryLayout {
  for (let tried = Math.ceil(bytes / 64) * 64; ; tried = align(tried / 2)) {
    try {
      return reserve(kind, numDevices, tried);
    } catch (cause) {
      if (isExact || tried / 2 < LEAST_BYTES) throw refusal(numDevices, tried, cause);
    }
  }
}

function reserve(kind: LayoutKind, numDevices: number, bytes: number): MemoryLayout {
  if (kind === "shared") {
    const memory = newMemory(bytes * numDevices + TAIL);
    return {
      kind,
      memories: new Array<WebAssembly.Memory>(numDevices).fill(memory),
      bases: Array.from({ length: numDevices }, (_, device) => device * bytes),
      bytes,
    };
  }
  const memories = Array.from({ length: numDevices }, () => newMemory(bytes + TAIL));
  return { kind, memories, bases: memories.map(() => 0), bytes };
}

function newMemory(bytes: number): WebAssembly.Memory {
  const pages = Math.min(MAX_PAGES, Math.ceil(bytes / PAGE));
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
}

/** Before this version of Node a memory of any size reserved all that its addresses can name. */
const THRIFTY_NODE = 24;

function refusal(numDevices: number, bytes: number, cause: unknown): OutOfMemoryError {
  const wanted = `[createThreadsEngine] the system refused address space for ${numDevices} x ${formatBytes(bytes)} (${String(cause)})`;
  const limited = addressSpace();
  const node = process.versions.node;
  if (limited === undefined) return new OutOfMemoryError(`${wanted}: ask for less with memoryBytes`);
  const why = `${limited.limit} and has ${formatBytes(limited.bytes)} left`;
  if (Number.parseInt(node, 10) >= THRIFTY_NODE) {
    return new OutOfMemoryError(`${wanted} because of ${why}: raise it, or ask for less with memoryBytes`);
  }
  return new OutOfMemoryError(
    `${wanted} because of ${why}; Node ${node} reserves 10 GiB for every WebAssembly memory: raise the limit, start node with --disable-wasm-trap-handler, or use Node ${THRIFTY_NODE}`,
  );
}
