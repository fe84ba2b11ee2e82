import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { reasonOf } from "../../../ir/errors.js";
import {
  encodeFrame,
  FrameReader,
  readAnswer,
  type StoreAnswer,
  type StoreRequest,
  statuses,
} from "./messageFrames.js";
import { proofOf } from "./secret.js";

/** An answer from the store with its value. */
export interface Answered {
  readonly head: StoreAnswer;
  readonly value: Uint8Array;
}

/** A process that joins: its index, the number of processes as it knows it, and its machine. */
export interface StoreMember {
  readonly process: number;
  readonly count: number;
  readonly host: string;
}

/** Milliseconds between two attempts to reach the store. */
const RETRY_MS = 100;

/** How many milliseconds an answer may come after the time that the store has for it. */
const GRACE_MS = 10_000;

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A connection to the store in process 0. */
export class StoreConnection {
  private readonly waiting = new Map<number, (answer: Answered) => void>();
  private next = 0;
  private end: string | undefined;

  private constructor(
    private readonly socket: Socket,
    private readonly at: string,
    private readonly timeoutMs: number,
  ) {
    const reader = new FrameReader(readAnswer);
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const { id, head, value } of reader.read(chunk)) this.settle(id, { head, value });
      } catch (error) {
        socket.destroy(error instanceof Error ? error : undefined);
      }
    });
    socket.on("error", (error) => this.lose(error.message));
    socket.on("close", () => this.lose("the connection has ended"));
  }

  /** Connects, retrying while nothing listens: process 0 may start later. */
  static async open(host: string, port: number, timeoutMs: number): Promise<StoreConnection> {
    const end = performance.now() + timeoutMs;
    for (;;) {
      try {
        return new StoreConnection(await connected(host, port), `${host}:${port}`, timeoutMs);
      } catch (error) {
        if (performance.now() + RETRY_MS > end) {
          throw new Error(
            `process 0 did not answer at ${host}:${port} within ${timeoutMs / 1000} s: ${reasonOf(error)}`,
          );
        }
        await sleep(RETRY_MS);
      }
    }
  }

  /** Joins the processes of a run. @param secret what all of them were told and nobody else */
  async join(member: StoreMember, secret: string): Promise<Answered> {
    const hello = await this.ask({ kind: "hello" });
    if (!hello.head.ok) return hello;
    return this.ask({ kind: "join", ...member, proof: proofOf(secret, hello.value, member.process) });
  }

  /**
   * Sends a request and waits for the answer; losing the connection yields a failure too, and so does a store that is
   * silent, because its machine has lost its power or its network and no connection says so.
   */
  ask(head: StoreRequest, value: Uint8Array = new Uint8Array()): Promise<Answered> {
    const id = this.next++;
    const allowed = ("timeoutMs" in head ? head.timeoutMs : this.timeoutMs) + GRACE_MS;
    return new Promise((resolve) => {
      const silent = () => this.settle(id, this.lost(`it has not answered within ${allowed / 1000} s`));
      const timer = setTimeout(silent, Math.min(allowed, LONGEST_TIMER_MS));
      this.waiting.set(id, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      if (this.end === undefined) this.socket.write(encodeFrame({ id, head, value }));
      else this.settle(id, this.lost(this.end));
    });
  }

  /** Disconnects; pending requests are no longer answered. */
  close(): void {
    this.socket.destroy();
  }

  private settle(id: number, answer: Answered): void {
    this.waiting.get(id)?.(answer);
    this.waiting.delete(id);
  }

  private lose(reason: string): void {
    this.end ??= reason;
    for (const id of [...this.waiting.keys()]) this.settle(id, this.lost(this.end));
  }

  private lost(reason: string): Answered {
    const text = `process 0 at ${this.at} is gone: ${reason}`;
    return { head: { ok: false, status: statuses.unavailable, reason: text }, value: new Uint8Array() };
  }
}

function connected(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.off("error", reject);
      resolve(socket);
    });
  });
}
