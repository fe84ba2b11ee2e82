/**
 * The entry point of a thread on which a plug-in's calls to the store run. A plug-in calls from its own threads and
 * from the one that creates a client, and blocks until it has the answer; so this thread blocks too, while that of
 * `worker.ts` continues.
 */
import { parentPort, workerData } from "node:worker_threads";
import { type Koffi, loadKoffi } from "../../system/koffi.js";
import { storeCallbacks } from "../pjrt/apiLayout.js";
import { type StoreRequest, statuses } from "./messageFrames.js";
import { answer, type PortEnd, waitForMessage } from "./ports.js";
import type { PortAnswer, PortRequest } from "./worker.js";

/** A callback that the plug-in calls. */
export type CallbackName = keyof typeof storeCallbacks;

/** The data that this thread starts with. */
export interface CallbackWorkerData {
  readonly names: readonly CallbackName[];
  /** The port to the thread with the store. */
  readonly store: PortEnd;
  /** The port to the thread that started this one and waits for it. */
  readonly parent: PortEnd;
  /** Prefix of all keys, so that clients of one process do not collide. */
  readonly prefix: string;
}

/** The addresses of the callbacks; none if there is no FFI. */
export type CallbackAddresses = Readonly<Partial<Record<CallbackName, bigint>>>;

/** Longer than any wait of the store itself. */
const FOR_EVER_MS = 2 ** 30;

class Callbacks {
  private readonly malloc: (size: number) => bigint;
  private readonly free: bigint;
  private readonly error: ReturnType<Koffi["proto"]>;
  private nextId = 0;

  constructor(
    private readonly koffi: Koffi,
    private readonly data: CallbackWorkerData,
  ) {
    const system = koffi.load(null);
    this.malloc = system.func("void *malloc(size_t size)");
    // The plug-in frees values with it, from any thread and without JavaScript.
    this.free = system.symbol("free");
    this.error = koffi.proto("void *", ["int", "const char *", "size_t"]);
  }

  addresses(): CallbackAddresses {
    const { koffi } = this;
    const type = koffi.pointer(koffi.proto("void *", ["void *"]));
    const addresses = this.data.names.map((name) => [
      name,
      koffi.register((args: bigint) => this.serve(name, args), type),
    ]);
    return Object.fromEntries(addresses);
  }

  /** Answers one call; returns the plug-in's error, or undefined. */
  private serve(name: CallbackName, address: bigint): bigint | null {
    const layout: Readonly<Record<string, number>> = storeCallbacks[name];
    const words = new BigUint64Array(this.koffi.view(address, layout.bytes ?? 0));
    const word = (field: string) => words[layout[field] ?? 0] ?? 0n;
    try {
      const key = this.data.prefix + this.bytesAt(word("key"), word("keySize")).toString("utf8");
      const value = name === "put" ? this.bytesAt(word("value"), word("valueSize")) : undefined;
      const timeoutMs = Number(BigInt.asIntN(32, word("timeout")));
      const answered = this.ask(name === "get" ? { kind: name, key, timeoutMs } : { kind: name, key }, value);
      if (!answered.head.ok) return this.fail(word("makeError"), answered.head.status, answered.head.reason);
      if (name !== "put") {
        const bytes = answered.value;
        const memory = this.malloc(Math.max(1, bytes.length));
        if (bytes.length > 0) new Uint8Array(this.koffi.view(memory, bytes.length)).set(bytes);
        words[layout.value ?? 0] = memory;
        words[layout.valueSize ?? 0] = BigInt(bytes.length);
        words[layout.deleter ?? 0] = this.free;
      }
      return null;
    } catch (error) {
      return this.fail(word("makeError"), statuses.cancelled, String(error));
    }
  }

  private ask(head: StoreRequest, value: Uint8Array | undefined): PortAnswer {
    const id = this.nextId++;
    const request: PortRequest = { id, head, ...(value === undefined ? {} : { value }) };
    this.data.store.port.postMessage(request);
    return waitForMessage(this.data.store, FOR_EVER_MS) as PortAnswer;
  }

  /** A plug-in error, made by the constructor to which the plug-in passed a pointer. */
  private fail(maker: bigint, status: number, reason: string): bigint | null {
    const [makeError = 0n] = new BigUint64Array(this.koffi.view(maker, 8));
    return this.koffi.call(makeError, this.error, status, reason, Buffer.byteLength(reason));
  }

  private bytesAt(address: bigint, size: bigint): Buffer {
    return size === 0n ? Buffer.alloc(0) : Buffer.from(this.koffi.view(address, Number(size)).slice(0));
  }
}

const data: CallbackWorkerData = workerData;
const koffi = loadKoffi();
answer(data.parent, koffi === undefined ? {} : new Callbacks(koffi, data).addresses());
// A listener keeps the thread alive for the plug-in's calls.
parentPort?.on("message", () => {});
