import { createServer, type Server, type Socket } from "node:net";
import { getOrInsert } from "../../../ir/collections.js";
import { range } from "../../../ir/shape.js";
import {
  encodeFrame,
  FrameReader,
  MAX_BYTES,
  MAX_UNAUTHENTICATED_BYTES,
  readRequest,
  type StoreAnswer,
  type StoreRequest,
  statuses,
} from "./messageFrames.js";
import { isExpectedProof, newChallenge, proofOf } from "./secret.js";

/** A process that has joined. */
interface JoinedProcess {
  readonly process: number;
  readonly host: string;
  /** Whether it is connected, has announced that it leaves, or is lost: its connection ended without notice. */
  state: "here" | "left" | "lost";
}

/** A request that waits for a key, or for all processes. */
interface Waiter {
  readonly answer: Answer;
  readonly timer: NodeJS.Timeout;
  /** The process that would have to put the key. */
  readonly from?: number | undefined;
}

type Answer = (head: StoreAnswer, value?: Uint8Array) => void;

/** How long a connection may stay without joining, in milliseconds. */
const JOIN_MS = 60_000;

/** Maximum number of connections beyond one for each process that have not joined; the oldest is closed for another. */
const MAX_UNAUTHENTICATED = 16;

/**
 * A key-value store for the processes of one run, in process 0. A value is written once; a request for a missing one
 * waits, and on timeout the answer says which processes are missing.
 */
export class StoreServer {
  private readonly values = new Map<string, Uint8Array>();
  private readonly waiting = new Map<string, Set<Waiter>>();
  private readonly forAll = new Set<Waiter>();
  /** Process 0, which waits until all others have ended. */
  private readonly forEnd = new Set<Waiter>();
  private readonly members = new Map<number, JoinedProcess>();
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  /** Those that have not joined, the oldest first. */
  private readonly unauthenticated = new Set<Socket>();

  /** @param count the number of processes @param secret what all of them were told and nobody else */
  constructor(
    private readonly count: number,
    private readonly secret: string,
  ) {
    this.server = createServer((socket) => this.serve(socket));
  }

  /** Starts listening. @param host the address to listen on; all addresses of the machine if undefined */
  listen(port: number, host: string | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen({ port, ...(host === undefined ? {} : { host }) }, () => {
        this.server.off("error", reject);
        // A connection that cannot be accepted is retried by its client.
        this.server.on("error", () => {});
        resolve();
      });
    });
  }

  /** The port it listens on. */
  get port(): number {
    const address = this.server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** Stops the server; waiting requests are not answered. */
  close(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
    for (const waiters of [this.forAll, this.forEnd, ...this.waiting.values()]) {
      for (const { timer } of waiters) clearTimeout(timer);
    }
  }

  private serve(socket: Socket): void {
    const reader = new FrameReader(readRequest);
    reader.maxBytes = MAX_UNAUTHENTICATED_BYTES;
    const challenge = newChallenge();
    let member: JoinedProcess | undefined;
    this.admit(socket);
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const { id, head, value } of reader.read(chunk)) {
          const answer: Answer = (reply, bytes = new Uint8Array()) => {
            if (!socket.destroyed) socket.write(encodeFrame({ id, head: reply, value: bytes }));
          };
          if (head.kind === "hello") answer({ ok: true }, challenge);
          else if (head.kind === "join") {
            if (!isExpectedProof(head.proof, proofOf(this.secret, challenge, head.process))) {
              answer(
                failure("permissionDenied", `process ${head.process} does not know the secret of process 0`),
              );
              socket.end();
              return;
            }
            member = this.join(head, answer) ?? member;
            if (member === undefined) continue;
            reader.maxBytes = MAX_BYTES;
            this.unauthenticated.delete(socket);
          } else if (member === undefined) answer(failure("invalidArgument", "join first"));
          else if (head.kind === "leave") this.leave(member, head.timeoutMs, answer);
          else this.handle(head, value, answer);
        }
      } catch {
        // A peer that sends anything else is not a process of this run.
        socket.destroy();
      }
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => {
      this.sockets.delete(socket);
      this.unauthenticated.delete(socket);
      if (member?.state === "here") this.end(member, "lost");
    });
  }

  /** Accepts a connection, which is unauthenticated until it has joined. */
  private admit(socket: Socket): void {
    this.sockets.add(socket);
    this.unauthenticated.add(socket);
    const [oldest] = this.unauthenticated;
    if (this.unauthenticated.size > this.count + MAX_UNAUTHENTICATED) oldest?.destroy();
    const timer = setTimeout(() => {
      if (this.unauthenticated.has(socket)) socket.destroy();
    }, JOIN_MS);
    socket.once("close", () => clearTimeout(timer));
  }

  private join(request: Extract<StoreRequest, { kind: "join" }>, answer: Answer): JoinedProcess | undefined {
    const { process, count, host } = request;
    const reason = this.whyNot(process, count);
    if (reason !== undefined) {
      answer(failure("invalidArgument", reason));
      return undefined;
    }
    const member: JoinedProcess = { process, host, state: "here" };
    this.members.set(process, member);
    answer({ ok: true });
    if (this.members.size === this.count) {
      for (const waiter of this.forAll) this.settle(waiter, { ok: true, hosts: this.hosts() });
      this.forAll.clear();
    }
    return member;
  }

  private whyNot(process: number, count: number): string | undefined {
    if (count !== this.count) {
      return `process ${process} was told that there are ${count} processes, and process 0 that there are ${this.count}`;
    }
    if (!(Number.isInteger(process) && process >= 0 && process < count)) {
      return `no process ${process}: the ${count} processes are 0 to ${count - 1}`;
    }
    const known = this.members.get(process);
    return known && `two processes claim to be process ${process}, on ${known.host} and here`;
  }

  private handle(
    request: Exclude<StoreRequest, { kind: "join" | "leave" }>,
    value: Uint8Array,
    answer: Answer,
  ): void {
    switch (request.kind) {
      case "members":
        if (this.members.size === this.count) answer({ ok: true, hosts: this.hosts() });
        else this.wait(this.forAll, request.timeoutMs, answer, "not all processes have joined");
        break;
      case "put":
        this.put(request.key, value, answer);
        break;
      case "remove":
        this.values.delete(request.key);
        answer({ ok: true });
        break;
      case "tryGet": {
        const found = this.values.get(request.key);
        if (found === undefined) answer(failure("notFound", `there is no "${request.key}"`));
        else answer({ ok: true }, found);
        break;
      }
      case "get":
        this.get(request, answer);
        break;
    }
  }

  private get({ key, timeoutMs, from }: Extract<StoreRequest, { kind: "get" }>, answer: Answer): void {
    const found = this.values.get(key);
    if (found !== undefined) {
      answer({ ok: true }, found);
      return;
    }
    if (from !== undefined && (this.members.get(from)?.state ?? "here") !== "here") {
      answer(failure("unavailable", this.whoIsMissing()));
      return;
    }
    const waiters = getOrInsert(this.waiting, key, () => new Set());
    this.wait(waiters, timeoutMs, answer, `no process has put "${key}"`, from);
  }

  private leave(member: JoinedProcess, timeoutMs: number, answer: Answer): void {
    if (member.process === 0) this.wait(this.forEnd, timeoutMs, answer, "others are still here");
    else answer({ ok: true });
    this.end(member, "left");
  }

  /** Records that a process puts nothing any more, and fails the requests that wait for it. */
  private end(member: JoinedProcess, state: "left" | "lost"): void {
    member.state = state;
    for (const waiters of this.waiting.values()) {
      for (const waiter of waiters) {
        if (waiter.from !== member.process) continue;
        waiters.delete(waiter);
        this.settle(waiter, failure("unavailable", this.whoIsMissing()));
      }
    }
    if ([...this.members.values()].some((one) => one.state === "here")) return;
    for (const waiter of this.forEnd) this.settle(waiter, { ok: true });
    this.forEnd.clear();
  }

  private put(key: string, value: Uint8Array, answer: Answer): void {
    if (this.values.has(key)) {
      answer(failure("alreadyExists", `"${key}" has a value already`));
      return;
    }
    this.values.set(key, value);
    answer({ ok: true });
    for (const waiter of this.waiting.get(key) ?? []) this.settle(waiter, { ok: true }, value);
    this.waiting.delete(key);
  }

  private wait(waiters: Set<Waiter>, timeoutMs: number, answer: Answer, what: string, from?: number): void {
    const waiter: Waiter = {
      answer,
      from,
      timer: setTimeout(() => {
        waiters.delete(waiter);
        answer(failure("deadlineExceeded", `${what} within ${timeoutMs / 1000} s: ${this.whoIsMissing()}`));
      }, timeoutMs),
    };
    waiters.add(waiter);
  }

  private settle({ answer, timer }: Waiter, head: StoreAnswer, value?: Uint8Array): void {
    clearTimeout(timer);
    answer(head, value);
  }

  private hosts(): string[] {
    return range(this.count).map((process) => this.members.get(process)?.host ?? "");
  }

  private whoIsMissing(): string {
    const absent = range(this.count).filter((process) => !this.members.has(process));
    const ended = [...this.members.values()].filter(({ state }) => state !== "here");
    const parts = [
      ...(absent.length > 0 ? [`${processes(absent)} of ${this.count} never joined`] : []),
      ...ended.map(
        ({ process, host, state }) =>
          `process ${process} on ${host} ${state === "left" ? "has ended" : "is lost"}`,
      ),
    ];
    return parts.length > 0 ? parts.join(", ") : `all ${this.count} processes are here and have diverged`;
  }
}

function processes(list: readonly number[]): string {
  return list.length === 1 ? `process ${list[0]}` : `processes ${list.join(", ")}`;
}

function failure(status: keyof typeof statuses, reason: string): StoreAnswer {
  return { ok: false, status: statuses[status], reason };
}
