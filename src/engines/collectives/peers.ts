import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { MemoryLayout } from "../memory/memoryLayout.js";
import type { MoveKernels } from "./moveKernels.js";

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

/** Copies bytes from the memory of one device to that of another. */
export type CopyBetween = (to: number, target: number, from: number, source: number, bytes: number) => void;

/** From this size on, calling a native function costs less time than it saves. */
const NATIVE_BYTES = 2048;

/**
 * The access of `device` to its peers in this layout.
 *
 * @param copyBetween the fastest way to copy between memories, where there is one besides JavaScript's
 */
export function connectPeers(
  layout: MemoryLayout,
  device: number,
  kernels: MoveKernels,
  copyBetween?: CopyBetween,
): Peers {
  return layout.kind === "shared"
    ? sharedPeers(kernels)
    : separatePeers(layout, device, kernels, copyBetween);
}

/** The access of devices that share one memory. */
export function sharedPeers(kernels: MoveKernels): Peers {
  return {
    direct: true,
    pull: (target, _peer, source, bytes) => kernels.copy(target, source, bytes),
    pullRows: (target, _peer, source, bytes, rows, targetStride, sourceStride) =>
      kernels.copyRows(target, source, bytes, rows, targetStride, sourceStride),
    push: (_peer, target, source, bytes) => kernels.copy(target, source, bytes),
    borrow: (_peer, source) => source,
  };
}

function separatePeers(
  layout: MemoryLayout,
  device: number,
  kernels: MoveKernels,
  copyBetween: CopyBetween | undefined,
): Peers {
  const views = layout.memories.map((memory) => new Uint8Array(memory.buffer));
  const own = at(views, device);
  const view = (peer: number): Uint8Array => {
    const found = views[peer];
    if (found === undefined) throw new InternalError(`[threads] no device ${peer}`);
    return found;
  };
  const pull: Peers["pull"] = (target, peer, source, bytes) => {
    if (peer === device) kernels.copy(target, source, bytes);
    else if (copyBetween && bytes >= NATIVE_BYTES) copyBetween(device, target, peer, source, bytes);
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
      else if (copyBetween && bytes >= NATIVE_BYTES) copyBetween(peer, target, device, source, bytes);
      else view(peer).set(own.subarray(source, source + bytes), target);
    },
    borrow(peer, source, bytes, scratch) {
      if (peer === device) return source;
      pull(scratch, peer, source, bytes);
      return scratch;
    },
  };
}
