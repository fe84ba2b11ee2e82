import { addressSpace } from "#engines/system/machineMemory";
import { wantHugePages } from "#engines/system/pages";
import { describeRuntime, nodeMajor } from "#platform/system";
import { type AddressType, MAX_PAGES } from "../../compiler/wasm/addresses.js";
import { lazily } from "../../ir/identity.js";
import { formatBytes } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";

/**
 * Where the devices' tensors lie. One `WebAssembly.Memory` for all devices is fastest, because a kernel can read
 * a peer's elements in place, but it is limited to 4 GiB; beyond that every device has its own memory and peers'
 * elements are copied.
 *
 * @internal
 */
export interface MemoryLayout {
  readonly kind: LayoutKind;
  readonly addressType: AddressType;
  /** The memory of every device; the same one for all if it is shared. */
  readonly memories: readonly WebAssembly.Memory[];
  /** Where each device's part of its memory begins. */
  readonly bases: readonly number[];
  /** The bytes of every device's part. */
  readonly bytes: number;
}

/** Whether all devices share one memory or have one each. */
export type LayoutKind = "shared" | "separate";

/** A kind of layout, and the maximum bytes of a device in it. */
export interface LayoutChoice {
  readonly kind: LayoutKind;
  readonly addressType: AddressType;
  readonly reach: number;
}

const PAGE = 65536;
/** Bytes after the last part, which kernels may read but which hold nothing. */
const TAIL = 1024;
/** Minimum bytes of a device that are worth opening an engine for. */
const LEAST_BYTES = 16 * 1024 * 1024;

/** The layouts that this many devices can have here: the fastest first, then those with more memory. */
export function layoutChoices(numDevices: number): LayoutChoice[] {
  const choices: LayoutChoice[] = [
    { kind: "shared", addressType: "i32", reach: align(maxBytes("i32") / numDevices) },
    { kind: "separate", addressType: "i32", reach: align(maxBytes("i32")) },
  ];
  if (hasWideMemories()) {
    choices.push({ kind: "separate", addressType: "i64", reach: align(maxBytes("i64")) });
  }
  return choices.filter(({ reach }, i) => i === 0 || reach > (choices[i - 1]?.reach ?? 0));
}

function maxBytes(addressType: AddressType): number {
  return MAX_PAGES[addressType] * PAGE - TAIL;
}

/** Whether the runtime has memories whose addresses have 64 bits (Node 24 and newer). */
export const hasWideMemories = lazily((): boolean => {
  try {
    return newMemory("i64", PAGE).buffer.byteLength === PAGE;
  } catch {
    return false;
  }
});

/** Maximum bytes of a device in any of some layouts. */
export function farthest(choices: readonly LayoutChoice[]): number {
  return choices.at(-1)?.reach ?? 0;
}

/** How large a device's memory can be here and where it could be larger, for messages. */
export function describeReach(reach: number): string {
  const most = `${formatBytes(reach)} on ${describeRuntime()}`;
  return hasWideMemories() || nodeMajor >= THRIFTY_NODE
    ? most
    : `${most}, and up to 16 GiB from Node 24 on, which has 64-bit memories`;
}

function align(bytes: number): number {
  return Math.floor(bytes / 64) * 64;
}

/**
 * Reserves address space for all devices; pages become physical memory when they are first touched.
 *
 * @internal
 *
 * @param bytes the memory of each device
 * @param isExact whether it must be exactly this much; otherwise it is halved while the system refuses it
 */
export function createMemories(
  choice: Pick<LayoutChoice, "kind" | "addressType">,
  numDevices: number,
  bytes: number,
  isExact: boolean,
): MemoryLayout {
  for (let tried = Math.ceil(bytes / 64) * 64; ; tried = align(tried / 2)) {
    try {
      return reserve(choice, numDevices, tried);
    } catch (cause) {
      if (isExact || tried / 2 < LEAST_BYTES) throw refusal(numDevices, tried, cause);
    }
  }
}

function reserve(
  { kind, addressType }: Pick<LayoutChoice, "kind" | "addressType">,
  numDevices: number,
  bytes: number,
): MemoryLayout {
  if (kind === "shared") {
    const memory = newMemory(addressType, bytes * numDevices + TAIL);
    wantHugePages(memory);
    return {
      kind,
      addressType,
      memories: new Array<WebAssembly.Memory>(numDevices).fill(memory),
      bases: Array.from({ length: numDevices }, (_, device) => device * bytes),
      bytes,
    };
  }
  const memories = Array.from({ length: numDevices }, () => newMemory(addressType, bytes + TAIL));
  for (const memory of memories) wantHugePages(memory);
  return { kind, addressType, memories, bases: memories.map(() => 0), bytes };
}

/** @internal A shared memory of at least this many bytes that does not grow. */
export function newMemory(addressType: AddressType, bytes: number): WebAssembly.Memory {
  const pages = Math.min(MAX_PAGES[addressType], Math.ceil(bytes / PAGE));
  if (addressType === "i32") {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  }
  // TypeScript's types do not have such memories yet.
  const size = BigInt(pages);
  const descriptor = { address: addressType, initial: size, maximum: size, shared: true };
  return Reflect.construct(WebAssembly.Memory, [descriptor]);
}

/** Before this version of Node, a memory of any size reserved its whole address space. */
const THRIFTY_NODE = 24;

function refusal(numDevices: number, bytes: number, cause: unknown): OutOfMemoryError {
  const wanted = `[createThreadsEngine] the system refused address space for ${numDevices} x ${formatBytes(bytes)} (${String(cause)})`;
  const limited = addressSpace();
  if (limited === undefined) return new OutOfMemoryError(`${wanted}: ask for less with memoryBytes`);
  const why = `${limited.limit} and has ${formatBytes(limited.bytes)} left`;
  if (nodeMajor >= THRIFTY_NODE) {
    return new OutOfMemoryError(`${wanted} because of ${why}: raise it, or ask for less with memoryBytes`);
  }
  return new OutOfMemoryError(
    `${wanted} because of ${why}; ${describeRuntime()} reserves 10 GiB for every WebAssembly memory: raise the limit, start node with --disable-wasm-trap-handler, or use Node ${THRIFTY_NODE}`,
  );
}
