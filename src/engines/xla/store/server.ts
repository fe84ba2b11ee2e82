import { createServer, type Server, type Socket } from "node:net";
import { range } from "../../../ir/shape.js";
import {
  encodeFrame,
  FrameReader,
  readRequest,
  type StoreAnswer,
  type StoreRequest,
  statuses,
} from "./frames.js";

/** A process that has joined. */
interface JoinedProcess {
  readonly process: number;
  readonly host: string;
  /** Whether it is here, has said that it leaves, or is lost: its connection ended without a word. */
  state: "here" | "left" | "lost";
}

/** Somebody who waits for a key, or with an empty one for all processes. */
interface Waiter {
  readonly answer: Answer;
  readonly timer: NodeJS.Timeout;
  /** The process without which it waits in vain. */
  readonly from?: number | undefined;
}

type Answer = (head: StoreAnswer, value?: Uint8Array) => void;

/**
 * Keys and values for the processes of one run, in the first of them. A value is written once; who asks for one that
 * is not there yet waits, and is told in the end which processes are missing.
 */
export class StoreServer {
  private readonly values = new Map<string, Uint8Array>();
  private readonly waiting = new Map<string, Set<Waiter>>();
  private readonly forAll = new Set<Waiter>();
  /** Process 0, which waits for the end of all others. */
  private readonly forEnd = new Set<Waiter>();
  private readonly members = new Map<number, JoinedProcess>();
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();

  /** @param count how many processes there are */
  constructor(private readonly count: number) {
    this.server = createServer((socket) => this.serve(socket));
  }

  /** Begins to listen. @param host the address to listen at; all of the machine's where there is none */
  listen(port: number, host: string | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen({ port, ...(host === undefined ? {} : { host }) }, () => {
        this.server.off("error", reject);
        // One connection that cannot be accepted is tried again by who wants it.
        this.server.on("error", () => {});
        resolve();
      });
    });
  }

  /** The port that it listens at. */
  get port(): number {
    const address = this.server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** Ends it; who waits is told nothing. */
  close(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
    for (const waiters of [this.forAll, this.forEnd, ...this.waiting.values()]) {
      for (const { timer } of waiters) clearTimeout(timer);
    }
  }

  private serve(socket: Socket): void {
    const reader = new FrameReader(readRequest);
    let member: JoinedProcess | undefined;
    this.sockets.add(socket);
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const { id, head, value } of reader.read(chunk)) {
          const answer: Answer = (reply, bytes = new Uint8Array()) => {
            if (!socket.destroyed) socket.write(encodeFrame({ id, head: reply, value: bytes }));
          };
          if (head.kind === "join") member = this.join(head, answer);
          else if (member === undefined) answer(failure("invalidArgument", "join first"));
          else if (head.kind === "leave") this.leave(member, head.timeoutMs, answer);
          else this.handle(head, value, answer);
        }
      } catch {
        // What speaks otherwise is no process of this run.
        socket.destroy();
      }
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => {
      this.sockets.delete(socket);
      if (member?.state === "here") this.end(member, "lost");
    });
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
      return `process ${process} is none of the ${count} processes: they are 0 to ${count - 1}`;
    }
    const known = this.members.get(process);
    return known && `two processes say that they are process ${process}, on ${known.host} and here`;
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
    const waiters = this.waiting.get(key) ?? new Set();
    this.waiting.set(key, waiters);
    this.wait(waiters, timeoutMs, answer, `nobody has put "${key}"`, from);
  }

  private leave(member: JoinedProcess, timeoutMs: number, answer: Answer): void {
    if (member.process === 0) this.wait(this.forEnd, timeoutMs, answer, "others are still here");
    else answer({ ok: true });
    this.end(member, "left");
  }

  /** Notes that a process puts nothing any more, and tells those who wait for just that. */
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
