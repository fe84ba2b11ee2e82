import { InternalError } from "../../ir/errors.js";
import { at, formatBytes } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import type { MoveKernels } from "./moveKernels.js";

/**
 * Where the devices' tensors lie. One `WebAssembly.Memory` for all devices is fastest, because a kernel can read
 * a peer's elements where they are, but it ends at 4 GiB; beyond that every device has a memory of its own and
 * peers' elements are copied over. Nothing but this file knows which of the two it is.
 */
export interface MemoryLayout {
  readonly kind: "shared" | "separate";
  /** The memory of every device; all the same one when it is shared. */
  readonly memories: readonly WebAssembly.Memory[];
  /** The part of its memory that belongs to each device. */
  readonly regions: readonly Region[];
}

/** A range of addresses. */
export interface Region {
  readonly start: number;
  readonly end: number;
}

const PAGE = 65536;
const MAX_PAGES = 65536;
/** Bytes after the last region, which kernels may read but nobody owns. */
const TAIL = 1024;

/** The most memory a device can have. */
export const MAX_DEVICE_BYTES = MAX_PAGES * PAGE - TAIL;

/** The number of bytes a device can have when all share one memory. */
export function sharedLimit(numDevices: number): number {
  return Math.floor((MAX_PAGES * PAGE - TAIL) / numDevices / 64) * 64;
}

/**
 * Reserves address space for all devices; pages become real when they are first touched.
 *
 * @param scratchBytes what each device needs besides what was asked for
 * @param kind which layout; by default one shared memory where it is large enough
 */
export function createMemories(
  numDevices: number,
  bytesPerDevice: number,
  scratchBytes: number,
  kind?: MemoryLayout["kind"],
): MemoryLayout {
  const bytes = Math.ceil((bytesPerDevice + scratchBytes) / 64) * 64;
  if (kind === "shared" || (kind === undefined && bytes <= sharedLimit(numDevices))) {
    const memory = reserve(bytes * numDevices + TAIL);
    return {
      kind: "shared",
      memories: new Array<WebAssembly.Memory>(numDevices).fill(memory),
      regions: Array.from({ length: numDevices }, (_, d) => ({ start: d * bytes, end: (d + 1) * bytes })),
    };
  }
  const capped = Math.min(bytes, MAX_DEVICE_BYTES);
  return {
    kind: "separate",
    memories: Array.from({ length: numDevices }, () => reserve(capped + TAIL)),
    regions: new Array<Region>(numDevices).fill({ start: 0, end: capped }),
  };
}

function reserve(bytes: number): WebAssembly.Memory {
  const pages = Math.min(MAX_PAGES, Math.ceil(bytes / PAGE));
  try {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  } catch (cause) {
    throw new OutOfMemoryError(
      `[createThreadsEngine] the system refused ${formatBytes(pages * PAGE)} of address space (${String(cause)}): ask for less with memoryBytes`,
    );
  }
}

/** A device's access to the elements of its peers; addresses are those of the device that owns the elements. */
export interface Peers {
  /** Whether kernels can read and write peers' elements where they are. */
  readonly direct: boolean;
  /** Copies from a peer. */
  pull(target: number, peer: number, source: number, bytes: number): void;
  /** Copies rows from a peer. */
  pullRows(
    target: number,
    peer: number,
    source: number,
    bytes: number,
    rows: number,
    targetStride: number,
    sourceStride: number,
  ): void;
  /** Copies to a peer. */
  push(peer: number, target: number, source: number, bytes: number): void;
  /** An own address where a peer's elements can be read: where they are, or `scratch` after copying them there. */
  borrow(peer: number, source: number, bytes: number, scratch: number): number;
}

/** The access of `device` to its peers in this layout. */
export function connectPeers(layout: MemoryLayout, device: number, kernels: MoveKernels): Peers {
  return layout.kind === "shared" ? sharedPeers(kernels) : separatePeers(layout, device, kernels);
}

function sharedPeers(kernels: MoveKernels): Peers {
  return {
    direct: true,
    pull: (target, _peer, source, bytes) => kernels.copy(target, source, bytes),
    pullRows: (target, _peer, source, bytes, rows, targetStride, sourceStride) =>
      kernels.copyRows(target, source, bytes, rows, targetStride, sourceStride),
    push: (_peer, target, source, bytes) => kernels.copy(target, source, bytes),
    borrow: (_peer, source) => source,
  };
}

function separatePeers(layout: MemoryLayout, device: number, kernels: MoveKernels): Peers {
  const views = layout.memories.map((memory) => new Uint8Array(memory.buffer));
  const own = at(views, device);
  const view = (peer: number): Uint8Array => {
    const found = views[peer];
    if (found === undefined) throw new InternalError(`[threads] there is no device ${peer}`);
    return found;
  };
  const pull: Peers["pull"] = (target, peer, source, bytes) => {
    if (peer === device) kernels.copy(target, source, bytes);
    else own.set(view(peer).subarray(source, source + bytes), target);
  };
  return {
    direct: false,
    pull,
    pullRows(target, peer, source, bytes, rows, targetStride, sourceStride) {
      if (peer === device) kernels.copyRows(target, source, bytes, rows, targetStride, sourceStride);
      else
        for (let r = 0; r < rows; r++)
          pull(target + r * targetStride, peer, source + r * sourceStride, bytes);
    },
    push(peer, target, source, bytes) {
      if (peer === device) kernels.copy(target, source, bytes);
      else view(peer).set(own.subarray(source, source + bytes), target);
    },
    borrow(peer, source, bytes, scratch) {
      if (peer === device) return source;
      pull(scratch, peer, source, bytes);
      return scratch;
    },
  };
}
