import { ValueError } from "../../../ir/errors.js";
import { parseJson } from "../../../ir/jsonReaders.js";

/** A request from a process to the store. */
export type StoreRequest =
  /** The first on every connection: asks for the challenge that a process must answer when it joins. */
  | { readonly kind: "hello" }
  /** The process, the number of processes, its machine, and the proof that it knows the secret (`secret.ts`). */
  | {
      readonly kind: "join";
      readonly process: number;
      readonly count: number;
      readonly host: string;
      readonly proof: string;
    }
  /** Waits until all processes have joined; the answer lists their machines. */
  | { readonly kind: "members"; readonly timeoutMs: number }
  | { readonly kind: "put"; readonly key: string }
  /** Waits until a key has a value, or until it cannot get one because the process that would put it has ended. */
  | { readonly kind: "get"; readonly key: string; readonly timeoutMs: number; readonly from?: number }
  | { readonly kind: "tryGet"; readonly key: string }
  | { readonly kind: "remove"; readonly key: string }
  /**
   * The last on every connection: the process is ending without a failure. It may exit once it has the answer, which is
   * sent immediately, except to process 0, without which no process can read any more: it is answered after all others
   * have left or are lost.
   */
  | { readonly kind: "leave"; readonly timeoutMs: number };

/** An answer from the store; a value is sent along with it. */
export type StoreAnswer =
  | { readonly ok: true; readonly hosts?: readonly string[] }
  | { readonly ok: false; readonly status: number; readonly reason: string };

/** PJRT's error codes. */
export const statuses = {
  cancelled: 1,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  alreadyExists: 6,
  permissionDenied: 7,
  unavailable: 14,
} as const;

/** A message between a process and the store: a JSON head with the number of the request, and bytes. */
export interface MessageFrame<H> {
  readonly id: number;
  readonly head: H;
  readonly value: Uint8Array;
}

/** Maximum length of a key or value in bytes; a declared length is untrusted input. */
export const MAX_BYTES = 1 << 28;

/** Its maximum from a peer that has not proved that it belongs here. */
export const MAX_UNAUTHENTICATED_BYTES = 4096;

/** Encodes a message: both lengths, the head, the value. */
export function encodeFrame<H>({ id, head, value }: MessageFrame<H>): Buffer {
  const text = Buffer.from(JSON.stringify({ id, head }));
  const lengths = Buffer.alloc(8);
  lengths.writeUInt32LE(text.length, 0);
  lengths.writeUInt32LE(value.length, 4);
  return Buffer.concat([lengths, text, value]);
}

/** Extracts messages from the bytes of a connection as they arrive. */
export class FrameReader<H> {
  /** Maximum length of a head or value in bytes. */
  maxBytes = MAX_BYTES;
  /** What has arrived of the next message, and how many bytes must arrive before it can be looked at again. */
  private chunks: Uint8Array[] = [];
  private numBytes = 0;
  private needed = 8;

  /** @param check throws unless a head is valid */
  constructor(private readonly check: (head: unknown) => H) {}

  /** The messages that are complete now; throws if one is malformed. */
  read(chunk: Uint8Array): MessageFrame<H>[] {
    this.chunks.push(chunk);
    this.numBytes += chunk.length;
    const frames: MessageFrame<H>[] = [];
    // A long message arrives in thousands of chunks, which are joined once.
    if (this.numBytes < this.needed) return frames;
    let bytes = Buffer.concat(this.chunks);
    for (;;) {
      this.needed = 8;
      if (bytes.length < this.needed) break;
      const [head, value] = [bytes.readUInt32LE(0), bytes.readUInt32LE(4)];
      if (head > this.maxBytes || value > this.maxBytes) {
        throw new ValueError(`[xla] ${head} and ${value} bytes are not a message of the store`);
      }
      const end = 8 + head + value;
      this.needed = end;
      if (bytes.length < end) break;
      const read = parseJson(
        bytes.toString("utf8", 8, 8 + head),
        (reason) => new ValueError(`[xla] a message of the store is not JSON (${reason})`),
      );
      if (typeof read !== "object" || read === null || !("head" in read)) {
        throw new ValueError("[xla] a message of the store has no head");
      }
      frames.push({
        id: numberIn(read, "id"),
        head: this.check(read.head),
        value: Uint8Array.from(bytes.subarray(8 + head, end)),
      });
      bytes = bytes.subarray(end);
    }
    this.chunks = [bytes];
    this.numBytes = bytes.length;
    return frames;
  }
}

/** Validates a request; throws if it is malformed. */
export function readRequest(head: unknown): StoreRequest {
  if (typeof head === "object" && head !== null && "kind" in head) {
    const [text, number] = [(name: string) => textIn(head, name), (name: string) => numberIn(head, name)];
    switch (head.kind) {
      case "hello":
        return { kind: "hello" };
      case "join":
        return {
          kind: "join",
          process: number("process"),
          count: number("count"),
          host: text("host"),
          proof: text("proof"),
        };
      case "members":
      case "leave":
        return { kind: head.kind, timeoutMs: number("timeoutMs") };
      case "get":
        return {
          kind: "get",
          key: text("key"),
          timeoutMs: number("timeoutMs"),
          ...("from" in head ? { from: number("from") } : {}),
        };
      case "put":
      case "tryGet":
      case "remove":
        return { kind: head.kind, key: text("key") };
    }
  }
  throw new ValueError("[xla] malformed request to the store");
}

/** Validates an answer; throws if it is malformed. */
export function readAnswer(head: unknown): StoreAnswer {
  if (typeof head !== "object" || head === null || !("ok" in head)) {
    throw new ValueError("[xla] malformed answer from the store");
  }
  if (head.ok !== true)
    return { ok: false, status: numberIn(head, "status"), reason: textIn(head, "reason") };
  if (!("hosts" in head)) return { ok: true };
  const { hosts } = head;
  if (Array.isArray(hosts) && hosts.every((host) => typeof host === "string")) return { ok: true, hosts };
  throw new ValueError("[xla] an answer from the store has malformed hosts");
}

function fieldOf(object: object, name: string): unknown {
  return Object.entries(object).find(([key]) => key === name)?.[1];
}

function textIn(object: object, name: string): string {
  const value = fieldOf(object, name);
  if (typeof value === "string") return value;
  throw new ValueError(`[xla] a message of the store has no ${name}`);
}

function numberIn(object: object, name: string): number {
  const value = fieldOf(object, name);
  if (typeof value === "number") return value;
  throw new ValueError(`[xla] a message of the store has no ${name}`);
}
