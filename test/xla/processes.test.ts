import { execFile } from "node:child_process";
import { connect, createServer } from "node:net";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { findProcesses } from "../../src/engines/xla/processes.js";
import { StoreConnection, type StoreMember } from "../../src/engines/xla/store/connection.js";
import {
  encodeFrame,
  FrameReader,
  readAnswer,
  readRequest,
  type StoreAnswer,
  type StoreRequest,
  statuses,
} from "../../src/engines/xla/store/messageFrames.js";
import { ProcessStore } from "../../src/engines/xla/store/openStore.js";
import { proofOf } from "../../src/engines/xla/store/secret.js";
import { StoreServer } from "../../src/engines/xla/store/server.js";
import { range } from "../../src/ir/shape.js";
import { nodeProgram } from "../support/built.js";
import { withoutChoices } from "../support/environment.js";
import { bothOf, compiler, describeWith, koffi } from "../support/optional.js";
import { buildFakePlugin } from "./fakePlugin.js";

/** Longer than all processes of a test need for what they ask of the store. */
const HOLD_MS = 500;

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** Runs processes together and gives what each of them printed. */
async function together(count: number, plugin: string, ...mode: string[]): Promise<unknown[]> {
  const coordinator = `127.0.0.1:${await freePort()}`;
  const args = [...nodeProgram("test/fixtures/xlaProcess.ts"), plugin];
  const run = (index: number) =>
    new Promise<unknown>((resolve) => {
      const env = {
        ...withoutChoices,
        SHARDWISE_COORDINATOR: coordinator,
        SHARDWISE_PROCESS_INDEX: String(index),
        SHARDWISE_PROCESS_COUNT: String(count),
      };
      execFile(process.execPath, [...args, ...mode], { env, timeout: 60_000 }, (error, stdout, stderr) => {
        const line = stdout.trim();
        resolve(line === "" ? { error: stderr, code: error?.code ?? 0 } : JSON.parse(line));
      });
    });
  return Promise.all(range(count).map(run));
}

describeWith(bothOf(compiler, koffi), "processes with a plug-in each", ([, loaded]) => {
  const fake = buildFakePlugin(loaded);

  const expected = range(2).map((index) => ({
    process: { index, count: 2 },
    addressable: [index],
    places: [0, 1],
    host: hostname(),
    shared: [
      ["first of 0", "first of 1"],
      ["second of 0", "second of 1"],
    ],
    result: [index, 7],
  }));

  test("find each other through the store, see all devices and run programs on their own", async () => {
    expect(await together(2, fake.path)).toEqual(expected);
  });

  test("go on after process 0 has done its part, when they are late by a second", async () => {
    const steps = ["share again", "run"];
    const seen = await Promise.all(steps.map((step) => together(2, fake.path, "late", step)));
    expect(seen).toEqual(steps.map(() => expected));
  });

  test("are told which key nobody put, and which process has ended", async () => {
    const [silent, left, failed] = await Promise.all([
      together(2, fake.path, "silent"),
      together(2, fake.path, "leave"),
      together(2, fake.path, "fail"),
    ]);
    // The second one to give up may find that the first has ended.
    expect(silent).toContainEqual({
      error: expect.stringMatching(
        /no process has put "client 0: topology\/\d" within 1\.5 s: all 2 processes/,
      ),
    });
    expect(left).toEqual([
      { error: expect.stringMatching(/process 1 on .* has ended/) },
      { error: "", code: 0 },
    ]);
    expect(failed).toEqual([
      { error: expect.stringMatching(/process 1 on .* is lost/) },
      { error: "", code: 1 },
    ]);
  });
});

describe("the store", () => {
  const secret = "what only these processes know";
  const member = (process: number, count = 2) => ({ process, count, host: `host${process}` });

  async function withServer(use: (open: () => Promise<StoreConnection>, port: number) => Promise<void>) {
    const server = new StoreServer(2, secret);
    await server.listen(0, "127.0.0.1");
    const connections: StoreConnection[] = [];
    try {
      await use(async () => {
        const connection = await StoreConnection.open("127.0.0.1", server.port, 1000);
        connections.push(connection);
        return connection;
      }, server.port);
    } finally {
      for (const connection of connections) connection.close();
      server.close();
    }
  }

  test("keeps values that are written once, lets readers wait, and forgets what is removed", async () => {
    await withServer(async (open) => {
      const [a, b] = [await open(), await open()];
      expect((await b.ask({ kind: "tryGet", key: "k" })).head).toMatchObject({
        ok: false,
        reason: "join first",
      });
      await a.join(member(0), secret);
      const members = a.ask({ kind: "members", timeoutMs: 5000 });
      await b.join(member(1), secret);
      expect((await members).head).toEqual({ ok: true, hosts: ["host0", "host1"] });
      const waiting = a.ask({ kind: "get", key: "k", timeoutMs: 5000 });
      const value = Uint8Array.from(range(300_000).map((i) => i % 251));
      await b.ask({ kind: "put", key: "k" }, value);
      expect(Buffer.compare((await waiting).value, value)).toBe(0);
      expect((await a.ask({ kind: "put", key: "k" })).head).toMatchObject({ status: statuses.alreadyExists });
      await a.ask({ kind: "remove", key: "k" });
      expect((await a.ask({ kind: "tryGet", key: "k" })).head).toMatchObject({ status: statuses.notFound });
    });
  });

  test("says who never joined and who has ended", async () => {
    await withServer(async (open) => {
      const a = await open();
      await a.join(member(0), secret);
      expect((await a.ask({ kind: "get", key: "k", timeoutMs: 20 })).head).toEqual({
        ok: false,
        status: statuses.deadlineExceeded,
        reason: 'no process has put "k" within 0.02 s: process 1 of 2 never joined',
      });
      const b = await open();
      await b.join(member(1), secret);
      b.close();
      await expect
        .poll(async () => (await a.ask({ kind: "get", key: "k", timeoutMs: 20 })).head)
        .toMatchObject({ reason: expect.stringContaining("process 1 on host1 is lost") });
    });
  });

  test("lets process 0 end last: when the others have left or are lost, or after its deadline", async () => {
    await withServer(async (open) => {
      const [a, b] = [await open(), await open()];
      await a.join(member(0), secret);
      await b.join(member(1), secret);
      expect((await a.ask({ kind: "leave", timeoutMs: 20 })).head).toEqual({
        ok: false,
        status: statuses.deadlineExceeded,
        reason: "others are still here within 0.02 s: process 0 on host0 has ended",
      });
      const left = a.ask({ kind: "leave", timeoutMs: 60_000 });
      b.close();
      expect((await left).head).toEqual({ ok: true });
    });
  });

  /** The requests of a process after it has joined, to its last, as an engine and a plug-in make them. */
  const requests = (process: number, count: number): readonly StoreRequest[] => {
    const timeoutMs = 60_000;
    const others = range(count);
    const get = (key: string, from: number) =>
      ({ kind: "get", key: `${key} ${from}`, timeoutMs, from }) as const;
    return [
      { kind: "members", timeoutMs },
      { kind: "put", key: `share 0 ${process}` },
      ...others.map((from) => get("share 0", from)),
      { kind: "put", key: `share 1 ${process}` },
      ...others.map((from) => get("share 1", from)),
      { kind: "remove", key: `share 0 ${process}` },
      { kind: "tryGet", key: "share 1 0" },
      { kind: "leave", timeoutMs },
    ];
  };

  /**
   * Runs processes of which one is held up before it sends its request of this number, or before it takes the answer.
   * Process 0 ends as processes do: all connections of the store end with it, at once.
   */
  async function runHeld(
    count: number,
    held: { process: number; request: number; at: "sending" | "answer" },
  ) {
    const server = new StoreServer(count, secret);
    await server.listen(0, "127.0.0.1");
    const run = async (process: number) => {
      const connection = await StoreConnection.open("127.0.0.1", server.port, 60_000);
      const answers: StoreAnswer[] = [];
      const asking = [
        () => connection.join(member(process, count), secret),
        ...requests(process, count).map((head) => () => connection.ask(head)),
      ];
      for (const [request, ask] of asking.entries()) {
        const isHeld = process === held.process && request === held.request;
        if (isHeld && held.at === "sending") await sleep(HOLD_MS);
        const answered = ask();
        if (isHeld && held.at === "answer") await sleep(HOLD_MS);
        answers.push((await answered).head);
      }
      if (process === 0) server.close();
      connection.close();
      return answers;
    };
    return Promise.all(range(count).map(run));
  }

  test("answers all processes to their end, whichever of them is late at whichever step", async () => {
    const count = 3;
    const steps = range(1 + requests(0, count).length);
    const cases = range(count).flatMap((process) =>
      steps.flatMap((request) => (["sending", "answer"] as const).map((at) => ({ process, request, at }))),
    );
    expect(cases.length).toBe(2 * count * 13);
    await Promise.all(
      cases.map(async (held) => {
        const answers = await runHeld(count, held);
        // What a process hears when it leaves does not matter to it.
        const failed = answers.map((own) => own.slice(0, -1).filter(({ ok }) => !ok));
        expect(failed, JSON.stringify(held)).toEqual(range(count).map(() => []));
      }),
    );
  });

  test("refuses those who do not belong, and survives what is no message", async () => {
    await withServer(async (open, port) => {
      const [a, b] = [await open(), await open()];
      await a.join(member(0), secret);
      const reason = async (own: StoreMember) => (await b.join(own, secret)).head;
      expect(await reason(member(0))).toMatchObject({
        reason: expect.stringContaining("two processes claim"),
      });
      expect(await reason(member(1, 3))).toMatchObject({
        reason: expect.stringContaining("there are 3 processes"),
      });
      expect(await reason(member(2))).toMatchObject({
        reason: expect.stringContaining("no process 2: the 2 processes are 0 to 1"),
      });
      const stranger = connect({ host: "127.0.0.1", port });
      stranger.on("error", () => {});
      const closed = new Promise((resolve) => stranger.on("close", resolve));
      stranger.write("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n");
      await closed;
      expect((await b.join(member(1), secret)).head).toEqual({ ok: true });
    });
  });

  test("refuses those who do not know the secret, or repeat what others proved", async () => {
    await withServer(async (open) => {
      const denied = { ok: false, status: statuses.permissionDenied };
      const gone = { ok: false, status: statuses.unavailable };
      for (const guess of ["", "what only these processes kno", `${secret} `]) {
        const stranger = await open();
        expect((await stranger.join(member(1), guess)).head).toMatchObject(denied);
        expect((await stranger.join(member(1), secret)).head).toMatchObject(gone);
      }
      const [a, b] = [await open(), await open()];
      const { value: challenge } = await a.ask({ kind: "hello" });
      const proof = proofOf(secret, challenge, 0);
      expect((await b.ask({ kind: "join", ...member(0), proof })).head).toMatchObject(denied);
      // The proof is for one process.
      expect((await a.ask({ kind: "join", ...member(1), proof })).head).toMatchObject(denied);
    });
  });

  test("limits what those may send and how many they may be who have not joined", async () => {
    await withServer(async (open, port) => {
      const first = await open();
      const joined = await open();
      await joined.join(member(0), secret);
      const long = new Uint8Array(5000);
      expect((await joined.ask({ kind: "put", key: "k" }, long)).head).toEqual({ ok: true });
      const stranger = connect({ host: "127.0.0.1", port });
      stranger.on("error", () => {});
      const closed = new Promise((resolve) => stranger.on("close", resolve));
      stranger.write(encodeFrame({ id: 0, head: { kind: "hello" }, value: long }));
      await closed;
      // Two processes and sixteen others; the oldest of them makes room.
      const others = await Promise.all(range(18).map(open));
      for (const other of others) expect((await other.ask({ kind: "hello" })).head.ok).toBe(true);
      expect((await first.ask({ kind: "hello" })).head.ok).toBe(false);
      expect((await joined.ask({ kind: "tryGet", key: "k" })).value.length).toBe(5000);
    });
  });

  test("reads messages however they are cut", () => {
    const heads = [{ kind: "tryGet", key: "a" }, { kind: "put", key: "ü" }, { kind: "hello" }] as const;
    const frames = heads.map((head, id) => ({ id, head, value: new Uint8Array(7 * id).fill(id) }));
    const bytes = Buffer.concat(frames.map(encodeFrame));
    for (const size of [1, 2, 7, 8, 9, 50, bytes.length]) {
      const reader = new FrameReader(readRequest);
      const pieces = range(Math.ceil(bytes.length / size)).map((i) =>
        bytes.subarray(size * i, size * (i + 1)),
      );
      expect(pieces.flatMap((piece) => reader.read(piece))).toEqual(frames);
    }
  });

  test("refuses messages whose parts have other types", () => {
    const frame = (id: unknown, head: unknown) =>
      encodeFrame({ id, head, value: new Uint8Array() } as unknown as Parameters<typeof encodeFrame>[0]);
    // JSON may hold objects that JavaScript cannot convert to anything.
    const stubborn = { toString: 0, valueOf: 0 };
    expect(() => new FrameReader(readRequest).read(frame(stubborn, { kind: "hello" }))).toThrow(/has no id/);
    expect(() => new FrameReader(readRequest).read(frame(1, undefined))).toThrow(/has no head/);
    const answers = new FrameReader(readAnswer);
    expect(() => answers.read(frame(1, { ok: true, hosts: [stubborn] }))).toThrow(/malformed hosts/);
  });

  test("is opened only when all processes are there", async () => {
    const coordinator = `127.0.0.1:${await freePort()}`;
    const open = (index: number) => () =>
      ProcessStore.open({ coordinator, index, count: 3, secret, timeoutMs: 400 });
    expect(open(1)).toThrow(
      /process 1 of 3 did not find the others .* process 0 did not answer at 127\.0\.0\.1/,
    );
    expect(open(0)).toThrow(/within 0\.4 s: processes 1, 2 of 3 never joined/);
    expect(() =>
      ProcessStore.open({ coordinator: "nowhere", index: 0, count: 2, secret, timeoutMs: 1 }),
    ).toThrow(/host:port/);
  });
});

describe("the processes of a run", () => {
  const coordinator = "node1:8476";
  const SHARDWISE_SECRET = "sixteen random characters";
  const slurm = { SLURM_PROCID: "3", SLURM_STEP_NUM_TASKS: "4", SLURM_LOCALID: "1" };

  test("come from options, from variables or from a launcher", () => {
    expect(findProcesses(undefined, {})).toBeUndefined();
    expect(
      findProcesses(undefined, { SHARDWISE_COORDINATOR: coordinator, SHARDWISE_SECRET, ...slurm }),
    ).toEqual({
      coordinator,
      index: 3,
      count: 4,
      secret: SHARDWISE_SECRET,
      timeoutMs: 300_000,
      localDevices: [1],
    });
    const shared = {
      SHARDWISE_COORDINATOR: coordinator,
      SHARDWISE_SECRET,
      CUDA_VISIBLE_DEVICES: "5",
      ...slurm,
    };
    expect(findProcesses(undefined, shared)?.localDevices).toBeUndefined();
    const own = { SHARDWISE_PROCESS_INDEX: "1", SHARDWISE_PROCESS_COUNT: "2" };
    expect(findProcesses({ coordinator, secret: SHARDWISE_SECRET }, own)).toMatchObject({
      index: 1,
      count: 2,
    });
    expect(findProcesses(false, { ...own, ...slurm })).toBeUndefined();
    expect(findProcesses(undefined, { ...slurm, SHARDWISE_PROCESS_COUNT: "1" })).toBeUndefined();
  });

  test("are refused with what to do where something is missing", () => {
    expect(() => findProcesses(undefined, slurm)).toThrow(
      /process 3 of 4, but the address of process 0 is unknown/,
    );
    expect(() => findProcesses({ coordinator }, slurm)).toThrow(
      /node1:8476.* no secret: set SHARDWISE_SECRET/,
    );
    expect(() => findProcesses({ coordinator, secret: "short" }, slurm)).toThrow(/secret has 5 characters/);
    for (const host of ["localhost", "127.0.0.1", "[::1]"])
      expect(findProcesses({ coordinator: `${host}:8476` }, slurm)?.secret).toBe("");
    expect(() => findProcesses({ coordinator: "127.0.0.1.example.com:1" }, slurm)).toThrow(/no secret/);
    expect(() => findProcesses({ count: 2 }, {})).toThrow(/SHARDWISE_PROCESS_INDEX to 0 … 1/);
    expect(() => findProcesses({ count: 2, index: 2 }, {})).toThrow(
      /no process 2: the 2 processes are 0 … 1/,
    );
    expect(() => findProcesses(undefined, { SHARDWISE_PROCESS_COUNT: "two" })).toThrow(/use an integer/);
  });
});
